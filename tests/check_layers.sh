#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Who may include whom, and where a third-party header may be included.  The rule is the table in
# HACKING.md; this script is what enforces it.  It first proves on a made-up tree that it can fail.
#
# usage: check_layers.sh [TREE]

set -u
LC_ALL=C
export LC_ALL

# What the daemon may know of ctl/: the protocol, not the client.
CTL_PROTOCOL='^ctl/(varlink|paths|verbs)[a-z_]*\.(h|def)$'

# list_includes TREE: one line "file kind name" for each include, kind " or <.
list_includes()
{
    (cd "$1" && find util engine cache persist ctl daemon tests bench \
        -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.def' -o -name '*.inc' \) 2>/dev/null) |
        sort | while read -r f; do
        sed -n -e 's|^[ \t]*#[ \t]*include[ \t]*"\([^"]*\)".*|" \1|p' \
            -e 's|^[ \t]*#[ \t]*include[ \t]*<\([^>]*\)>.*|< \1|p' "$1/$f" |
            while read -r kind name; do
                printf '%s %s %s\n' "$f" "$kind" "$name"
            done
    done
}

# check_tree TREE: prints each violation; the result is in its output.
check_tree()
{
    list_includes "$1" | awk -v protocol="$CTL_PROTOCOL" '
        function bad(why) { printf "%s: includes %s: %s\n", $1, $3, why }
        BEGIN {
            may["util"] = " util "
            may["engine"] = " engine util "
            may["cache"] = " cache util "
            may["persist"] = " persist util "
            may["ctl"] = " ctl util "
            may["daemon"] = " daemon ctl persist cache engine util "
            # header (a prefix) -> the folders that may include it, tests and bench always may
            home["systemd/"] = " daemon "
            home["microhttpd.h"] = " daemon "
            home["jansson.h"] = " daemon ctl "
            home["histedit.h"] = " ctl "
            home["openssl/"] = " util "
            home["lmdb.h"] = " persist "
            home["cuda"] = " engine/cuda "
            home["cublas"] = " engine/cuda "
            home["nccl.h"] = " engine/cuda "
            home["check.h"] = " "
        }
        {
            split($1, path, "/")
            folder = path[1]
            free = folder == "tests" || folder == "bench"
        }
        $2 == "\"" {
            if ($3 == "strata-config.h")
                next
            if ($3 !~ /\//) {
                bad("write the path from the top, \"folder/file.h\"")
                next
            }
            split($3, to, "/")
            if (!free && index(may[folder], " " to[1] " ") == 0)
                bad(folder "/ may include only" may[folder])
            else if (folder == "daemon" && to[1] == "ctl" && $3 !~ protocol)
                bad("daemon/ may know the protocol of ctl/ only")
        }
        $2 == "<" && !free {
            sub_folder = $1
            sub(/\/[^\/]*$/, "", sub_folder)
            for (h in home)
                if (index($3, h) == 1 && index(home[h], " " folder " ") == 0 && index(home[h], " " sub_folder " ") == 0)
                    bad("this header belongs in" (home[h] == " " ? " tests/ only" : home[h] "only"))
        }
    '
    # The first include of x.c is x.h, which proves that the header stands on its own.
    (cd "$1" && find util engine cache persist ctl daemon -name '*.c' 2>/dev/null) | sort | while read -r f; do
        h=${f%.c}.h
        [ -f "$1/$h" ] || continue
        first=$(sed -n 's|^[ \t]*#[ \t]*include[ \t]*\(.*\)|\1|p' "$1/$f" | head -n 1)
        [ "$first" = "\"$h\"" ] || echo "$f: its first include is $first, not \"$h\""
    done
    # Errors travel up; only main() may end the process.
    (cd "$1" && find util engine cache persist ctl daemon -name '*.c' ! -name main.c -print0 2>/dev/null |
        xargs -0 grep -nE '(^|[^a-z_A-Z0-9>.])(exit|_exit|abort|quick_exit)[ ]*\(' /dev/null) |
        grep -vE ':[0-9]+: *(/?\*|//)' | sed 's|$|: only main.c may end the process|'
}

self_test()
{
    t=$(mktemp -d) || exit 99
    trap 'rm -rf "$t"' EXIT
    mkdir -p "$t/util" "$t/cache" "$t/engine" "$t/ctl" "$t/daemon" "$t/tests"
    try()
    {
        # try FILE LINE WANTED: WANTED is the number of violations that LINE must give
        printf '%s\n' "$2" >"$t/$1"
        n=$(check_tree "$t" | wc -l)
        rm -f "$t/$1"
        [ "$n" -eq "$3" ] && return
        echo "check_layers: '$2' in $1 gave $n violations, not $3" >&2
        exit 1
    }
    try util/a.c '#include "engine/a.h"' 1
    try engine/a.c '#include "util/a.h"' 0
    try engine/a.c '#include "daemon/a.h"' 1
    try cache/a.c '#include "util/a.h"' 0
    try cache/a.c '#include "engine/a.h"' 1
    try engine/a.c '#include "cache/a.h"' 1
    try daemon/a.c '#include "cache/cache.h"' 0
    try engine/a.c '  #  include <systemd/sd-event.h>' 1
    try ctl/a.c '#include <jansson.h>' 0
    try ctl/a.c '#include <microhttpd.h>' 1
    try ctl/a.c '#include "engine/engine.h"' 1
    try daemon/a.c '#include "ctl/varlink.h"' 0
    try daemon/a.c '#include "ctl/client.h"' 1
    try daemon/a.c '#include "a.h"' 1
    try daemon/a.c '#include "strata-config.h"' 0
    try daemon/a.c '    exit(1);' 1
    try daemon/main.c '    exit(1);' 0
    try daemon/a.c '    request_exit(1);' 0
    try util/a.c '#include <check.h>' 1
    try tests/a.c '#include <check.h>' 0
    : >"$t/util/b.h"
    try util/b.c '#include <stdio.h>' 1
    try util/b.c '#include "util/b.h"' 0
}

self_test
out=$(check_tree "${1:-${SRCDIR:-.}}")
[ -z "$out" ] && exit 0
printf '%s\n' "$out" >&2
exit 1
