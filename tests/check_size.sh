#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Two rules about every source file: at most 600 lines, and the licence line at its top (first in C,
# second in a script).  A file near 500 lines is split by concept; see HACKING.md.
#
# usage: check_size.sh [TREE]

set -u
LC_ALL=C
export LC_ALL
MAX_LINES=600

check_tree()
{
    (cd "$1" && find util engine cache persist ctl daemon tests bench scripts .ci m4 units \
        -type f ! -path 'tests/data/*' ! -path 'tests/fuzz/corpus/*' 2>/dev/null) | sort | while read -r f; do
        case $f in
        *.c | *.h | *.cu | *.cuh) at=1 ;;
        *.sh) at=2 ;;
        *)
            # Scripts without a suffix are known by their first line.
            head -c 2 "$1/$f" | grep -q '^#!' || continue
            at=2
            ;;
        esac
        n=$(wc -l <"$1/$f")
        [ "$n" -le $MAX_LINES ] || echo "$f: $n lines, more than $MAX_LINES"
        sed -n "${at}p" "$1/$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' ||
            echo "$f: line $at is not the SPDX line"
    done
}

self_test()
{
    t=$(mktemp -d) || exit 99
    trap 'rm -rf "$t"' EXIT
    mkdir -p "$t/util"
    spdx='/* SPDX-License-Identifier: Apache-2.0 */'
    {
        echo "$spdx"
        yes '' | head -n 599
    } >"$t/util/fits.c"
    [ -z "$(check_tree "$t")" ] || { echo "check_size: 600 lines were refused" >&2; exit 1; }
    { cat "$t/util/fits.c"; echo; } >"$t/util/long.c"
    echo 'int x;' >"$t/util/bare.h"
    [ "$(check_tree "$t" | wc -l)" -eq 2 ] || { echo "check_size: it missed something" >&2; exit 1; }
}

self_test
out=$(check_tree "${1:-${SRCDIR:-.}}")
[ -z "$out" ] && exit 0
printf '%s\n' "$out" >&2
exit 1
