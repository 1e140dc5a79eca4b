# man_test.sh - every function of fiber.h has a man page of its own, with its call, what it returns and an example; every
# constant is in a page, every setting in fiber.conf(5), every option in the page of its subcommand; groff and mandoc take
# the pages without a warning.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

header=${TEST_SOURCE_DIR:?}/include/fiber.h
cd "${TEST_BINARY_DIR:?}/docs/man" 2>/dev/null || {
    echo "the man pages are not built: python3 was missing"
    exit 77
}
bad=0

complain() { # complain <text>...
    echo "$*"
    bad=1
}

check_function() { # check_function <name>: its page names it and its call, and has all sections
    local page=man3/$1.3 section
    [ -f "$page" ] && sed -n 4p "$page" | grep -q "^$1 .- ." && grep -q "^\\\\fB.*\b$1(" "$page" || return 1
    for section in DESCRIPTION EXAMPLE; do grep -q "^\.SH $section$" "$page" || return 1; done
    grep -q "^\\\\fBvoid [^*]*\b$1(" "$page" || grep -q '^\.SH RETURN VALUE$' "$page"
}

functions=$(tr '\n' ' ' <"$header" | grep -oE 'FIBER_API [^;(]*\bfiber_[a-z0-9_]+\(' | grep -oE 'fiber_\w+' | sort -u)
[ -n "$functions" ] || complain "fiber.h declares no function"
for function in $functions; do
    check_function "$function" || complain "$function: has no man page of its own with all sections"
done
constants=$(sed '1,/---- Processes/d' "$header" | grep -oE '\bFIBER_[A-Z0-9_]+[A-Z0-9]\b' | sort -u)
for constant in $constants; do
    [[ $constant == FIBER_API || $constant == FIBER_PRINTF ]] || grep -qw "$constant" man3/*.3 ||
        complain "$constant: is in no man page"
done
! grep -l 'clang.*format' man3/*.3 || complain "these pages speak to the formatter"
conf=../cli/man5/fiber.conf.5
if [ -f "$conf" ]; then
    for key in $(env -i "$TEST_BINARY_DIR/cli/fiber" config | awk 'NR > 1 { print $1 }'); do
        grep -q "^\\\\fB$key\\\\fR = " "$conf" || complain "$key: is not in fiber.conf(5)"
    done
else
    conf=
fi
cli=
if [ -d ../cli/man1 ]; then
    cli=$(echo ../cli/man1/*.1)
    for name in $("$TEST_BINARY_DIR/cli/fiber" help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
        page=../cli/man1/fiber-$name.1
        for option in $("$TEST_BINARY_DIR/cli/fiber" help "$name" | sed -nE 's/^  (-.,|   ) (--[a-z-]+).*/\2/p'); do
            grep -qF -- "${option//-/\\-}" "$page" || complain "$option: is not in $page"
        done
        grep -q "^\.BR fiber\\\\-$name (1)" ../cli/man1/fiber.1 || complain "fiber.1 does not name $name"
    done
    grep -A9 '^\.SH OTHER SPELLINGS$' ../cli/man1/fiber-run.1 | grep -q '^the same as' || complain "fiber run has no spellings"
fi
for page in man3/*.3 man7/*.7 $conf $cli; do
    said=
    ! command -v groff >/dev/null || said=$(groff -man -Tutf8 -ww -z "$page" 2>&1)
    if [ -z "$said" ] && command -v mandoc >/dev/null && ! grep -q '^\.so ' "$page"; then
        said=$(mandoc -Tlint -W warning "$page") || true
    fi
    [ -z "$said" ] || complain "$page: $said"
done
exit $bad
