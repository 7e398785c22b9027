#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The manual says what the programs know: every setting of options.def is in strata.json(5) and in
# `strataD --help`, every family of models in strataD(8), every verb and option of stratactl in
# stratactl(1), every exit code of the headers in its page, and mandoc finds nothing to say about
# the pages.
#
# The environment gives SRCDIR and BUILDDIR.

set -u
src=${SRCDIR:-.}
build=${BUILDDIR:-.}
failures=0

fail()
{
    echo "check_docs: $*" >&2
    failures=$((failures + 1))
}

# has FILE MACROS WORD: a line of the page marks the word up with one of the macros.
has()
{
    grep -qE "^\.(It |Op )?(.* )?($2) $3( |\$)" "$1"
}

options=$(sed -n 's/^OPTION_[A-Z]*(\([a-z_]*\),.*/\1/p' "$src/daemon/options.def" | sort -u)
[ "$(echo "$options" | wc -l)" -ge 28 ] || fail "options.def could not be read"
help=$("$build/strataD" --help) || fail "strataD --help failed"
for o in $options; do
    dashed=$(echo "$o" | tr _ -)
    if [ "$o" = name ]; then
        has "$src/man/strataD.8.in" "Fl Fl" name || fail "strataD(8) does not have --name"
    else
        has "$src/man/strata.json.5.in" Li "$o" || fail "strata.json(5) does not have $o"
    fi
    echo "$help" | grep -qE "^  --$dashed( |\$)" || fail "strataD --help does not have --$dashed"
done
for o in config check version help; do
    has "$src/man/strataD.8.in" "Fl Fl" "$o" || fail "strataD(8) does not have --$o"
done

families=$(sed -n '/families\[\] = {/,/};/s/^ *{*"\([a-z0-9]*\)",.*/\1/p' "$src/engine/model_family.c")
[ "$(echo "$families" | wc -l)" -ge 7 ] || fail "model_family.c could not be read"
for f in $families; do
    grep -qw "$f" "$src/man/strataD.8.in" || fail "strataD(8) does not have the family $f"
done

# Nothing in the manual that is no setting any more.
gone=$(sed -n 's/^\.It Li \([a-z_]*\) No .*/\1/p' "$src/man/strata.json.5.in" | while read -r o; do
    echo "$options" | grep -qx "$o" || echo "$o"
done)
[ -z "$gone" ] || fail "strata.json(5) has what is no setting: $gone"

verbs=$(sed -n 's/^VERB("\([a-z]*\)", "\([a-z]*\)".*/\1 \2/p' "$src/ctl/verbs.def" | sed 's/ $//')
[ "$(echo "$verbs" | wc -l)" -ge 4 ] || fail "verbs.def could not be read"
ctl_help=$("$build/stratactl" help) || fail "stratactl help failed"
missing=$(
    echo "$verbs" | while read -r v; do
        grep -qE "^\.It Cm $v( |\$)" "$src/man/stratactl.1.in" || echo "stratactl(1) does not have $v"
        echo "$ctl_help" | grep -qE "^  $v( |\$)" || echo "stratactl help does not have $v"
    done
    cat "$src/ctl/gen_options.c" "$src/ctl/cmd_chat.c" | grep -oE '"--[a-z-]+"' | tr -d '"' | while read -r o; do
        has "$src/man/stratactl.1.in" "Fl Fl" "${o#--}" || echo "stratactl(1) does not have $o"
    done
    sed -n 's/^ *{"\(\/[a-z]*\)", .*/\1/p' "$src/ctl/chat_command.c" | while read -r o; do
        has "$src/man/stratactl.1.in" Ic "$o" || echo "stratactl(1) does not have $o"
    done
)
[ -z "$missing" ] || fail "$missing"

if command -v mandoc >/dev/null 2>&1; then
    for page in strataD.8 stratactl.1 strata.json.5; do
        # Our own pages are not installed where this runs, and mandoc's database may be old.
        said=$(mandoc -Tlint "$build/man/$page" 2>&1 |
            grep -v -e 'referenced manual not found' -e 'outdated mandoc.db')
        [ -z "$said" ] || fail "$said"
    done
else
    echo "check_docs: mandoc is not installed, so the pages' markup was not checked" >&2
fi

[ $failures -eq 0 ] || exit 1
echo "check_docs: $(echo "$options" | wc -l) settings and $(echo "$verbs" | wc -l) verbs are documented"
