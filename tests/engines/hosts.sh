# hosts.sh - what the tests on several hosts share; they source it. It brings up the bed of hosts (tests/beds/hosts) if it
# is not there, and sets the backend so that `bed exec` starts jobs on them.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
set -euo pipefail

bed=${TEST_SOURCE_DIR:?}/tests/beds/hosts/bed
prog=${TEST_BINARY_DIR:?}/tests/engines/hosts_prog

"$bed" check
[[ -x $prog ]] || { echo "$prog is not built"; exit 77; }
"$bed" up 4

work=$(mktemp -d)
private=$("$bed" private)
trap '"$bed" heal; rm -rf "$work" || :' EXIT

for host in h1 h2 h3 h4; do # a test before this one has checked it, unless it was killed
    "$bed" crash $host
    "$bed" exec $host find /dev/shm "$private" -mindepth 1 -delete
done
"$bed" heal

h1=$("$bed" address h1) h2=$("$bed" address h2)
export FIBER_BACKEND=command FIBER_RUN_DIR=$private FIBER_GRACE=500ms
export FIBER_COMMAND_START="$bed exec {host}" FIBER_COMMAND_HOSTS="$h1,$h2"

failed() {
    echo "FAILED: $1"
    [[ ! -s $work/out ]] || sed 's/^/    /' "$work/out"
    exit 1
}

# holds TITLE COMMAND...: it ends well; its lines, sorted, are in $work/out
holds() {
    local title=$1
    shift
    if ! timeout 300 "$@" >"$work/raw" 2>&1; then
        mv "$work/raw" "$work/out"
        failed "$title: exit code not 0"
    fi
    sort "$work/raw" >"$work/out"
    echo "ok: $title"
}

# says TEXT...: these are the lines of the last that `holds`, but for what we say about bindings
says() {
    local lines
    lines=$(grep -v '^fiber: ' "$work/out" || :)
    [[ $lines == "$(printf '%s\n' "$@")" ]] || failed "it should have said: $(printf '\n    %s' "$@")"
}

# begins N COMMAND...: starts it, and waits until N lines with "rank" or "done" have come. Then $launcher is its pid.
begins() {
    local n=$1 line
    shift
    exec 3< <(echo "$BASHPID" && exec "$@" 2>&1)
    : >"$work/out"
    # shellcheck disable=SC2034 # the test needs it
    read -r launcher <&3
    while ((n > 0)) && IFS= read -r -t 300 line <&3; do
        echo "$line" >>"$work/out"
        [[ $line != *rank* && $line != *done* ]] || n=$((n - 1))
    done
    ((n == 0)) || failed "it did not begin"
}

# ends: what it still says goes to $work/out
ends() {
    timeout 300 cat <&3 >>"$work/out" || failed "it did not end"
    exec 3<&-
}

# nothing_left: no process of ours on any host, no file, no segment; a run sweeps what killed ones left
nothing_left() {
    local host
    for host in h1 h2 h3 h4; do
        "$bed" empty $host || failed "processes are left on $host"
    done
    FIBER_COMMAND_HOSTS="$h1,$h2,$("$bed" address h3),$("$bed" address h4)" "$prog" ring 4 4 "$prog" who >/dev/null
    [[ -z $(ls -A "$private") ]] || failed "left here: $(ls -A "$private")"
    for host in h1 h2 h3 h4; do
        [[ -z $("$bed" exec $host find /dev/shm "$private" -mindepth 1) ]] || failed "files are left on $host"
    done
    echo "ok: nothing is left"
}
