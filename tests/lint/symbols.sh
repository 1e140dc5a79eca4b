# symbols.sh - libfiber.so exports what fiber.h declares, no more and no less; libfiber.a keeps to fiber_ and fbr_.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

shared=${TEST_BINARY_DIR:?}/libfiber.so
static=$TEST_BINARY_DIR/libfiber.a
header=${TEST_SOURCE_DIR:?}/include/fiber.h
bad=0

complain() { # complain <names> <what is wrong with them>
    [ -z "$1" ] && return
    echo "$2:"
    while read -r name; do echo "  $name"; done <<<"$1"
    bad=1
}

exported=$(nm -D --defined-only "$shared" | awk '{print $3}' | sort -u)
declared=$(tr '\n' ' ' <"$header" | grep -oE 'FIBER_API [^;(]*\b(fiber_[a-z0-9_]+)\(' | sed -E 's/.*\b(fiber_\w+)\($/\1/' | sort -u)

complain "$(comm -23 <(echo "$exported") <(echo "$declared"))" "libfiber.so exports and fiber.h does not declare"
complain "$(comm -13 <(echo "$exported") <(echo "$declared"))" "fiber.h declares and libfiber.so does not export"
complain "$(nm --defined-only --extern-only "$static" 2>/dev/null | awk 'NF == 3 && $3 !~ /^(fiber|fbr)_/ {print $3}')" \
    "libfiber.a defines outside fiber_ and fbr_"
exit $bad
