#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Chats through the daemon: chat_http.py says what is tested.

set -u
command -v python3 >/dev/null || { echo "SKIPPED: check_chat_http needs python3" >&2; exit 77; }
exec python3 -B "${SRCDIR:-.}/tests/chat_http.py"
