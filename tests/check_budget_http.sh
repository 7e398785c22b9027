#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Thinking that is ended, through the daemon: budget_http.py says what is tested.

set -u
command -v python3 >/dev/null || { echo "SKIPPED: check_budget_http needs python3" >&2; exit 77; }
exec python3 -B "${SRCDIR:-.}/tests/budget_http.py"
