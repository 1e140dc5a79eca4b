# help_test.sh - each page of help is the one that is kept in expected/, and fits a terminal.
#
# After a change of an option: UPDATE=1 TEST_SOURCE_DIR=. TEST_BINARY_DIR=build/dev bash tests/cli/help_test.sh
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

fiber=${TEST_BINARY_DIR:?}/cli/fiber
expected=${TEST_SOURCE_DIR:?}/tests/cli/expected
work=$(mktemp -d)
trap 'rm -rf "$work" || :' EXIT
unset COLUMNS
bad=0

complain() { # complain <text>...
    echo "$*"
    bad=1
}

compare() { # compare <name> <argument>...: what fiber prints is expected/<name>.txt
    local name=$1
    shift
    "$fiber" "$@" >"$work/$name.txt" </dev/null || complain "$name: exit code $?"
    [ -z "${UPDATE:-}" ] || cp "$work/$name.txt" "$expected/$name.txt"
    diff -u "$expected/$name.txt" "$work/$name.txt" || complain "$name: is not what is expected"
    ! grep -nE '.{81}' "$work/$name.txt" || complain "$name: more than 80 columns"
}

commands=$("$fiber" help | sed -n 's/^  \([a-z]*\)  .*/\1/p')
[ "$(echo "$commands" | wc -l)" -ge 10 ] || complain "fiber help lists: $commands"
compare fiber help
for command in $commands; do
    compare "$command" help "$command"
    "$fiber" "$command" --help | diff -q - "$work/$command.txt" >/dev/null || complain "$command --help differs from help"
done
exit $bad
