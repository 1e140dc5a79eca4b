# faults.sh - what the tests with a faulty engine share; they source it. Between Fiber and the bed's engine stands the proxy
# of tests/beds/faults, and the cases of the conformance test must hold in spite of what it does.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2030,SC2031,SC2034 # `bad` is the exit code of the test
set -euo pipefail

beds=${TEST_SOURCE_DIR:?}/tests/beds
program=${TEST_BINARY_DIR:?}/tests/backends/conformance_test
command -v python3 >/dev/null || { echo "python3 is missing"; exit 77; }
[[ -x $program ]] || { echo "$program is not built"; exit 77; }

# on ENGINE: its bed is up, and says where it is
on() {
    local settings code=0
    settings=$("$beds/run" --env "$1" "$program") || code=$?
    [[ $code == 0 ]] || exit $code
    eval "$settings"
}

work=$(mktemp -d)
trap 'rm -rf "$work" || :' EXIT
bad=0

# begin_proxy OPTION...
begin_proxy() {
    echo '{}' >"$work/rules"
    exec 3< <(echo "$BASHPID"; exec python3 -B "$beds/faults/proxy.py" --rules "$work/rules" --counts "$work/counts" "$@" 2>&1)
    read -r proxy <&3
    trap 'kill "$proxy" 2>/dev/null || :; cat <&3 >/dev/null; rm -rf "$work" || :' EXIT # when it has written its last counts
    read -r line <&3
    [[ $line == ready ]] || { echo "FAILED: the proxy does not begin: $line"; exit 1; }
}

# faults_met: how many there have been since the proxy began
faults_met() {
    rm -f "$work/counts"
    kill -USR1 "$proxy" || return
    until [[ -s $work/counts ]]; do read -rt 0.02 <> <(:) || :; done
    python3 -c 'import json, sys; print(sum(c["faults"] for c in json.load(open(sys.argv[1])).values()))' "$work/counts"
}

# holds TITLE RULE CASE...: with that rule the cases hold, and it was met
holds() {
    local title=$1 rule=$2 name before code=0; shift 2
    echo "{\"rules\": [$rule]}" >"$work/new"
    mv "$work/new" "$work/rules"
    before=$(faults_met)
    for name; do
        TEST_CASES="$TEST_BACKENDS: $name" timeout 600 "$program" >"$work/out" 2>&1 || code=$?
        [[ $code != 77 ]] || { cat "$work/out"; exit 77; }
        grep -q 'Running 1 test' "$work/out" || code=1
        [[ $code == 0 ]] || break
    done
    if [[ $code != 0 ]]; then
        bad=1
        echo "FAILED: $name, under: $title (exit code $code)"
        grep -v RUN "$work/out" | cut -c 1-300 | sed 's/^/    /' | tail -20
    elif (($(faults_met) == before)); then
        bad=1
        echo "FAILED: never met: $title"
    else
        echo "ok: $title"
    fi
}

# under TITLE RULE CASE...: it holds. With `at_once` above 1 so many go on at the same time, each behind a proxy of its own,
# which the function `behind_proxy` begins; `all_ended` waits for the last.
at_once=1 begun=()
under() {
    if ((at_once == 1)); then
        holds "$@"
        return
    fi
    if ((${#begun[@]} == 0)); then
        mkfifo "$work/ended"
        exec {ended}<>"$work/ended"
    fi
    ((${#begun[@]} < at_once)) || read -r <&"$ended"
    (
        code=0 work=$work/${#begun[@]}
        trap 'echo >&"$ended"' EXIT
        mkdir "$work"
        (
            behind_proxy
            holds "$@"
            exit $bad
        ) >"$work.said" 2>&1 &
        wait $! || code=$?
        cat "$work.said"
        ((code == 0 || code == 77)) || echo "FAILED: $1 (exit code $code)"
        exit $code
    ) &
    begun+=($!)
}
all_ended() {
    local pid code skipped=0
    for pid in "${begun[@]}"; do
        code=0
        wait "$pid" || code=$?
        ((code != 77)) || skipped=1
        ((code == 0)) || bad=1
    done
    ((skipped == 0)) || exit 77
}
