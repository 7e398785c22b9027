#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The daemon over TCP: keys, isolation, reload, and hundreds of slow clients.  tcp.py says what is tested.

set -u
command -v python3 >/dev/null || { echo "SKIPPED: check_tcp needs python3" >&2; exit 77; }
exec python3 -B "${SRCDIR:-.}/tests/tcp.py"
