#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# `stratactl chat` at a pseudo terminal and in pipes: chat_pty.py says what is tested.

set -u
command -v python3 >/dev/null || { echo "SKIPPED: check_chat needs python3" >&2; exit 77; }
exec python3 -B "${SRCDIR:-.}/tests/chat_pty.py"
