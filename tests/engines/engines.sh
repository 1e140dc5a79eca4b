# engines.sh - for tests of a backend on the engine of a bed: the bed, what they run on it, and what that has to say. They
# source it, after `engine` is set and `clean` says what to put right at the end.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # some names are of those who source it
set -euo pipefail

bed=${TEST_BED:-${TEST_SOURCE_DIR:?}/tests/beds/$engine/bed}
prog=${TEST_BINARY_DIR:?}/tests/engines/docker_prog
fiber=$TEST_BINARY_DIR/cli/fiber

[[ -x $prog && -x $fiber ]] || { echo "$prog or $fiber is not built"; exit 77; }
"$bed" try
eval "$("$bed" env)"
work=$(mktemp -d)
launcher= # what `begins` has started, until `ends`
trap '[[ ! $launcher ]] || kill "$launcher" || :; clean; rm -rf "$work" || :' EXIT

failed() {
    echo "FAILED: $1"
    tail -n 30 "$work/out" | cut -c 1-300 | sed 's/^/    /'
    exit 1
}
ok() { echo "ok: $1"; }
# wait_for WHAT COMMAND...: asks again until it holds, and ever later: a question takes the processors from the answer
wait_for() {
    local end=$((SECONDS + 300)) what=$1 tenths=1
    shift
    until "$@"; do
        ((SECONDS < end)) || failed "$what"
        read -rt 0.$tenths <> <(:) || :
        ((tenths == 8)) || tenths=$((2 * tenths))
    done
}

# does SECONDS COMMAND...: it ends in time; its exit code is in $code
does() {
    local seconds=$1
    shift
    code=0
    timeout "$seconds" "$@" >"$work/out" 2>&1 || code=$?
    [[ $code != 124 ]] || failed "it hangs: $*"
}
# gives CODE COMMAND...: it ends with that exit code
gives() {
    local want=$1
    shift
    does 300 "$@"
    ((code == want)) || failed "exit code $code, not $want: $*"
}
says() { grep -qE -- "$1" "$work/out" || failed "it should say '$1'"; }

# begins N TEXT COMMAND...: starts it, and waits for N lines with TEXT; its output is on $out, its pid in $launcher
begins() {
    local n=$1 text=$2
    shift 2
    exec {out}< <(echo "$BASHPID" && exec "$@" 2>&1)
    : >"$work/out"
    read -r launcher <&"$out"
    more "$n" "$text"
}
more() {  # N TEXT: waits for so many more lines
    local n=$1 line
    while ((n > 0)) && IFS= read -r -t 300 line <&"$out"; do
        echo "$line" >>"$work/out"
        [[ $line != *$2* ]] || n=$((n - 1))
    done
    ((n == 0)) || failed "$n more lines with '$2' should have come"
}
ends() { timeout 300 cat <&"$out" >>"$work/out" || failed "it does not end"; exec {out}<&-; launcher=; }
has_jobs() { (($("$bed" jobs | wc -l) >= $1)); }
# await_jobs N: waits for N jobs or more, which are in $jobs then, and the first in $job; an engine may list a job later than
# its output comes
await_jobs() {
    wait_for "$1 jobs should run" has_jobs "$1"
    jobs=$("$bed" jobs)
    job=${jobs%%$'\n'*}
}
