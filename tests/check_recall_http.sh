#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Every dialogue keeps its own facts through the daemon: recall_http.py says what is tested.

set -u
command -v python3 >/dev/null || { echo "SKIPPED: check_recall_http needs python3" >&2; exit 77; }
exec python3 -B "${SRCDIR:-.}/tests/recall_http.py"
