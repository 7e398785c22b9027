#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The units as they will be installed: systemd finds nothing to say about them, and the service
# stays below an exposure of 1.0.  `verify` exits 0 on a line that it cannot parse and only prints,
# so any output is a failure.
#
# The environment gives BUILDDIR and, when there is one, SYSTEMD_ANALYZE.

set -u
build=${BUILDDIR:-.} src=${SRCDIR:-.}
analyze=${SYSTEMD_ANALYZE:-}

in_code=$(sed -n 's/^ *return "\([0-9a-f]\{32\}\)";/\1/p' "$src/daemon/log.c" | sort)
in_catalog=$(sed -n 's/^-- \([0-9a-f]\{32\}\)$/\1/p' "$build/units/strata.catalog" | sort)
if [ -z "$in_code" ] || [ "$in_code" != "$in_catalog" ]; then
    printf 'check_units: daemon/log.c has the events\n%s\nand the catalogue explains\n%s\n' "$in_code" "$in_catalog" >&2
    exit 1
fi

if [ -z "$analyze" ]; then
    echo "SKIPPED: systemd-analyze is not installed, so the units were not checked" >&2
    exit 77
fi
t=$(mktemp -d) || exit 99
trap 'rm -rf "$t"' EXIT

# The program named by ExecStart= must exist; before installation it is the one just built.
prepare()
{
    for u in strata@.service strata@.socket strata-control@.socket strata.slice; do
        sed -e "s|^ExecStart=[^ ]*|ExecStart=/bin/true|" -e '/^Documentation=/d' "$build/units/$u" >"$t/$u" || exit 1
    done
}

verify()
{
    (cd "$t" && "$analyze" verify --recursive-errors=no ./strata@.service ./strata@.socket \
        ./strata-control@.socket ./strata.slice 2>&1)
}

prepare
# That the check can fail at all:
echo 'WachdogSec=1s' >>"$t/strata@.service"
[ -n "$(verify)" ] || { echo "check_units: verify said nothing about an unknown key" >&2; exit 1; }

prepare
out=$(verify)
if [ -n "$out" ]; then
    printf '%s\n' "$out" >&2
    exit 1
fi
if ! out=$("$analyze" security --offline=true --threshold=10 --no-pager "$t/strata@.service" 2>&1); then
    printf '%s\n' "$out" >&2
    exit 1
fi
printf '%s\n' "$out" | tail -n 1
