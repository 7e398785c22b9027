#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Fetching the model of the README: fetch.py says what is tested.

set -u
command -v python3 >/dev/null || { echo "SKIPPED: check_fetch needs python3" >&2; exit 77; }
exec python3 -B "${SRCDIR:-.}/tests/fetch.py"
