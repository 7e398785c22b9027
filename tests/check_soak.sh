#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mixed requests against the daemon: soak.py says what is tested.  `make check-long` asks for 2,800.

set -u
command -v python3 >/dev/null || { echo "SKIPPED: check_soak needs python3" >&2; exit 77; }
exec python3 -B "${SRCDIR:-.}/tests/soak.py" "${SOAK_REQUESTS:-200}"
