# engines.sh - for tests of a backend on the engine of a bed: what they run, and what it has to say. To be read by them, after
# `bed` and `work` are set.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # some names are of those who read it

failed() {
    echo "FAILED: $1"
    tail -n 30 "$work/out" | cut -c 1-300 | sed 's/^/    /'
    exit 1
}
ok() { echo "ok: $1"; }

# does SECONDS COMMAND...: it ends in time; its exit code is in $code
does() {
    local seconds=$1
    shift
    code=0
    timeout "$seconds" "$@" >"$work/out" 2>&1 || code=$?
    [[ $code != 124 ]] || failed "it hangs: $*"
}
says() { grep -qE -- "$1" "$work/out" || failed "it should say '$1'"; }

# begins N TEXT COMMAND...: starts it, and waits for N lines with TEXT; $launcher is its pid
begins() {
    local n=$1 text=$2
    shift 2
    exec 3< <(echo "$BASHPID" && exec "$@" 2>&1)
    : >"$work/out"
    read -r launcher <&3
    more "$n" "$text"
}
more() {  # N TEXT: waits for so many more lines
    local n=$1 line
    while ((n > 0)) && IFS= read -r -t 300 line <&3; do
        echo "$line" >>"$work/out"
        [[ $line != *$2* ]] || n=$((n - 1))
    done
    ((n == 0)) || failed "$n more lines with '$2' should have come"
}
ends() { timeout 300 cat <&3 >>"$work/out" || failed "it does not end"; exec 3<&-; }
one_job() { "$bed" jobs | head -1; }
