# docker_faults_test.sh - Docker's backend with an engine that refuses, answers late, wrongly or not at all.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/engines/faults.sh disable=SC2030,SC2031
. "$(dirname "$0")/faults.sh"

prog=$TEST_BINARY_DIR/tests/engines/docker_prog
[[ -x $prog ]] || { echo "$prog is not built"; exit 77; }
on docker
socket=${DOCKER_HOST#unix://}
failed() {
    echo "FAILED: $1"
    tail -n 30 "$work/out" | cut -c 1-300 | sed 's/^/    /'
    exit 1
}

# --- what takes its time goes on beside the others, each behind a proxy of its own
besides=()
# beside FUNCTION: what it says is in $work/FUNCTION.said
beside() {
    (
        work=$work/$1
        mkdir "$work"
        begin_proxy --listen "$work/sock" --unix "$socket"
        export DOCKER_HOST=unix://$work/sock FIBER_BACKEND=docker FIBER_GRACE=500ms
        "$1"
    ) >"$work/$1.said" 2>&1 &
    besides+=($!)
}
# begins TEXT COMMAND...: starts it, and waits until it says that; its output is on $out, its pid in $launcher
begins() {
    local text=$1
    shift
    exec {out}< <(echo "$BASHPID" && exec "$@" 2>&1)
    read -r launcher <&"$out"
    : >"$work/out"
    more "$text"
}
more() { # TEXT: waits until it says that
    local line=''
    until [[ $line == *$1* ]]; do
        IFS= read -r -t 300 line <&"$out" || failed "it should say '$1'"
        echo "$line" >>"$work/out"
    done
}
ends() { timeout 300 cat <&"$out" >>"$work/out" || failed "it does not end"; }

# A worker dies meanwhile. Another one takes its place when the engine is back, and not before; nothing else is taken for dead.
# It may have ended with the engine, so that no task is to blame, and it does not count.
a_minute_away() {
    FIBER_START_TIMEOUT=300s begins begun "$prog" jobs 2 1 200 "$work/enough" 0
    kill -KILL "$proxy"
    touch "$work/enough"
    read -rt 60 <> <(:) || : # it is away for so long
    kill -0 "$launcher" || failed "it did not wait for the engine"
    rm "$work/sock"
    begin_proxy --listen "$work/sock" --unix "$socket"
    ends
    for line in 'right 200 of 200' 'deaths 0'; do
        grep -qx "$line" "$work/out" || failed "it should say '$line'"
    done
    echo "ok: the engine is away for a minute while a pool maps"
}

# Nothing comes of a pull. What is waited for is told, and told again when more than the time to start in is over.
a_slow_pull() {
    echo '{"rules": [{"path": "/images/create", "action": "stall"}]}' >"$work/rules"
    FIBER_START_TIMEOUT=30s begins 'waiting for 3[0-9] s' "$prog" process -i slow:1 exit 0
    grep -qE 'waiting for 3[0-9] s: 1 of 1 job pending: image slow:1 is not on the engine, and is pulled' "$work/out" ||
        failed "it should say that it is pulled"
    kill "$launcher"
    ends
    echo "ok: a pull that takes longer than a job may take to start"
}

# The time of one request is over; the next attempt is answered.
a_create_without_answer() {
    echo '{"rules": [{"method": "POST", "path": "/containers/create", "times": 1, "action": "stall"}]}' >"$work/rules"
    FIBER_START_TIMEOUT=300s begins 'code 7: ' "$prog" process exit 7
    ends
    (($(faults_met) == 1)) || failed "never met"
    echo "ok: create is never answered"
}

# The output breaks off, and the engine keeps only the last lines of the log. What comes later is shown, nevertheless.
a_log_without_its_beginning() {
    local log='"LogConfig": {"Type": "json-file", "Config": {"max-size": "20k", "max-file": "1"}}'
    echo "{\"HostConfig\": {$log}}" >"$work/template"
    mkdir "$work/shared"
    mkfifo "$work/shared/fifo"
    cat >"$work/shared/lines" <<END
#!/bin/sh
i=100
while [ \$i -lt 400 ]; do
    echo "line \$i ..................................................................................."
    i=\$((i + 1))
done
read -r word <$work/shared/fifo
echo "the last line"
END
    chmod +x "$work/shared/lines"
    export FIBER_IMAGE_ADD=/bin/sh FIBER_DOCKER_TEMPLATE=$work/template FIBER_DOCKER_MOUNTS=$work/shared:$work/shared
    FIBER_START_TIMEOUT=300s begins 'line 399 ' "$prog" process program "$work/shared/lines"
    kill -KILL "$proxy"
    rm "$work/sock"
    begin_proxy --listen "$work/sock" --unix "$socket"
    more 'no longer has the beginning of its log'
    echo go | timeout 300 tee "$work/shared/fifo" >/dev/null || failed "the container does not read"
    ends
    for line in 'line 100 \.*' 'line 399 \.*' 'the last line'; do
        grep -qx "$line" "$work/out" || failed "it should say '$line'"
    done
    echo "ok: a log without its beginning"
}
for what in a_minute_away a_slow_pull a_create_without_answer a_log_without_its_beginning; do beside "$what"; done

# --- faults one after the other
begin_proxy --listen "$work/sock" --unix "$socket"
export DOCKER_HOST=unix://$work/sock

create='"method": "POST", "path": "/containers/create"'
begin='"method": "POST", "path": "/start$"'
ticket='"method": "PUT", "path": "/archive"'
output='"method": "POST", "path": "/attach"'
events='"method": "GET", "path": "/events"'
list='"method": "GET", "path": "/containers/json"'
version='"method": "GET", "path": "/version"'
pull='"method": "POST", "path": "/images/create"'
taken='"status": 409, "body": "{\"message\":\"that name is in use\"}"'
none='"status": 404, "body": "{\"message\":\"No such image\"}"'
signal='"method": "POST", "path": "/kill"'
image='"method": "GET", "path": "/images/"'

for status in 429 503; do
    under "create answers $status" "{$create, \"times\": 1, \"action\": \"status\", \"status\": $status}" "exit codes"
done
under "create is closed" "{$create, \"times\": 1, \"action\": \"close\"}" "exit codes"
under "create's answer is lost" "{$create, \"times\": 1, \"action\": \"lost\"}" "exit codes"
under "create's answer is cut short" "{$create, \"times\": 1, \"action\": \"truncate\", \"bytes\": 10}" "exit codes"
under "create's answer ends within a header" "{$create, \"times\": 1, \"action\": \"head\", \"bytes\": 40}" "exit codes"
under "start's answer ends within a header" "{$begin, \"times\": 1, \"action\": \"head\", \"bytes\": 40}" "exit codes"
under "the ticket's answer ends within a header" "{$ticket, \"times\": 1, \"action\": \"head\", \"bytes\": 20}" "exit codes"
under "events end within a header" "{$events, \"times\": 2, \"action\": \"head\", \"bytes\": 40}" "exit codes" "death by its own signal"
under "create is late" "{$create, \"times\": 1, \"action\": \"delay\", \"ms\": 300}" "exit codes"
under "start is closed" "{$begin, \"times\": 1, \"action\": \"close\"}" "exit codes"
under "start's answer is lost" "{$begin, \"times\": 1, \"action\": \"lost\"}" "exit codes"
under "start answers 503" "{$begin, \"times\": 1, \"action\": \"status\", \"status\": 503}" "exit codes"
under "the ticket is not taken" "{$ticket, \"times\": 1, \"action\": \"status\", \"status\": 503}" "exit codes"
under "the ticket's answer is lost" "{$ticket, \"times\": 1, \"action\": \"lost\"}" "exit codes"
under "the output is not attached" "{$output, \"times\": 1, \"action\": \"close\"}" "exit codes"
under "events are refused" "{$events, \"times\": 2, \"action\": \"status\", \"status\": 503}" "exit codes" "terminate and kill"
under "events are closed" "{$events, \"times\": 2, \"action\": \"close\"}" "exit codes" "death by its own signal"
under "events end again and again" "{$events, \"action\": \"end\", \"events\": 3}" "exit codes" "death by its own signal"
under "events are cut short" "{$events, \"times\": 3, \"action\": \"truncate\", \"bytes\": 700}" "exit codes" "terminate and kill"
under "events are garbage" "{$events, \"times\": 2, \"action\": \"garbage\"}" "exit codes" "death by its own signal"
under "events are silent" "{$events, \"action\": \"stall\", \"bytes\": 1}" "exit codes"
under "the list is refused" "{$list, \"times\": 1, \"action\": \"status\", \"status\": 503}, {$events, \"action\": \"end\", \"events\": 3}" \
    "exit codes" "death by its own signal"
under "a signal's answer is lost" "{$signal, \"times\": 1, \"action\": \"lost\"}" "terminate and kill"
under "a signal is refused once" "{$signal, \"times\": 1, \"action\": \"status\", \"status\": 503}" "terminate and kill"
under "images cannot be asked for" "{$image, \"times\": 1, \"action\": \"status\", \"status\": 503}" "exit codes"

# As a rootless engine, which is in a network name space of its own, answers before it is started again.
under "the network has neither a bridge nor a gateway" "{\"path\": \"/networks/bridge$\", \"action\": \"status\", \"status\": 200,
    \"body\": \"{\\\"IPAM\\\": {\\\"Config\\\": [{\\\"Subnet\\\": \\\"${TEST_BED_GATEWAY%.*}.0/24\\\"}]}}\"}" "exit codes"
"$TEST_BINARY_DIR/cli/fiber" doctor --backend docker >"$work/out" 2>&1 || failed "the doctor should not mind"
grep -q '^ok *docker network .*: only a running container shows' "$work/out" || failed "the doctor should know no better"

under "create says that the image is gone" "{$create, \"times\": 1, \"action\": \"status\", $none}" "exit codes"
under "the list is garbage" "{$list, \"times\": 1, \"action\": \"garbage\"}, {$events, \"action\": \"end\", \"events\": 3}" \
    "exit codes" "death by its own signal"
under "the list is cut short" "{$list, \"times\": 1, \"action\": \"truncate\", \"bytes\": 10}, {$events, \"action\": \"end\", \"events\": 3}" \
    "exit codes" "death by its own signal"
under "the output is cut short" "{$output, \"times\": 1, \"action\": \"close\"}" "last lines in the report"

# refuses TITLE RULE TEXT [OPTION...]: the process is not started, and says why; nothing is left of it
refuses() {
    local title=$1 rule=$2 text=$3
    shift 3
    echo "{\"rules\": [$rule]}" >"$work/new"
    mv "$work/new" "$work/rules"
    timeout 300 env FIBER_BACKEND=docker FIBER_START_TIMEOUT=300s "$prog" process "$@" exit 0 >"$work/out" 2>&1 || :
    if ! grep -qE -- "$text" "$work/out"; then
        bad=1
        echo "FAILED: it should say '$text': $title"
        cut -c 1-300 "$work/out" | sed 's/^/    /' | tail -20
    else
        echo "ok: $title"
    fi
}
cannot='^code 125: .*could not be started by the Docker engine: '
refuses "create answers 500" "{$create, \"action\": \"status\", \"status\": 500}" "${cannot}a fault that was ordered"
refuses "create is garbage" "{$create, \"action\": \"garbage\", \"status\": 201}" "${cannot}HTTP status 201: "
refuses "create is not HTTP" "{$create, \"action\": \"noise\"}" "${cannot}.*HTTP"
refuses "the name is in use, and then it is not" "{$create, \"action\": \"status\", $taken}" "${cannot}No such container: "
refuses "start does not find the network" \
    "{$begin, \"action\": \"status\", \"status\": 404, \"body\": \"{\\\"message\\\": \\\"network x not found\\\"}\"}" "${cannot}network x not found"
refuses "start answers 500" "{$begin, \"action\": \"status\", \"status\": 500}" "${cannot}a fault that was ordered"
unmapped='failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process'
unmapped+=': unable to setup user: cannot set uid to unmapped user in user namespace: unknown'
refuses "a user is not mapped" \
    "{$begin, \"action\": \"status\", \"status\": 400, \"body\": \"{\\\"message\\\": \\\"$unmapped\\\"}\"}" \
    "$cannot$unmapped; .*docker_user sets one that it can map"
refuses "the ticket answers 404" "{$ticket, \"action\": \"status\", \"status\": 404}" "${cannot}a fault that was ordered"
refuses "the output answers 500" "{$output, \"action\": \"status\", \"status\": 500}" "${cannot}a fault that was ordered"
refuses "a pull answers 500" "{$pull, \"action\": \"status\", \"status\": 500}" "${cannot}image slow:1 is not on the engine, and cannot be pulled: " -i slow:1
refuses "a pull is closed" "{$pull, \"action\": \"close\"}" "${cannot}image slow:1 is not on the engine, and cannot be pulled: " -i slow:1
refuses "the version answers 500" "{$version, \"action\": \"status\", \"status\": 500}" 'the Docker engine at .*: a fault that was ordered'
refuses "the version is garbage" "{$version, \"action\": \"garbage\"}" 'the Docker engine at .*JSON'
refuses "the version is cut short" "{$version, \"action\": \"truncate\", \"bytes\": 10}" 'the Docker engine at .*sock: '
refuses "the version is never answered" "{$version, \"action\": \"stall\"}" 'the Docker engine at .*: no answer in time'

for i in "${!besides[@]}"; do wait "${besides[i]}" || bad=1; done
cat "$work"/*.said
echo '{}' >"$work/rules"
"$TEST_BED" empty all || { echo "FAILED: containers are left"; bad=1; }
exit $bad
