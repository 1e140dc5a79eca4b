# docker_faults_test.sh - Docker's backend with an engine that refuses, answers late, wrongly or not at all.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/system/faults.sh
. "$(dirname "$0")/faults.sh"

on docker
begin_proxy --listen "$work/sock" --unix "${DOCKER_HOST#unix://}"
export DOCKER_HOST=unix://$work/sock

create='"method": "POST", "path": "/containers/create"'
begin='"method": "POST", "path": "/start$"'
ticket='"method": "PUT", "path": "/archive"'
output='"method": "POST", "path": "/attach"'
events='"method": "GET", "path": "/events"'
list='"method": "GET", "path": "/containers/json"'
signal='"method": "POST", "path": "/kill"'
image='"method": "GET", "path": "/images/"'

for status in 429 503; do
    under "create answers $status" "{$create, \"times\": 1, \"action\": \"status\", \"status\": $status}" "exit codes"
done
under "create is closed" "{$create, \"times\": 1, \"action\": \"close\"}" "exit codes"
under "create's answer is lost" "{$create, \"times\": 1, \"action\": \"lost\"}" "exit codes"
under "create's answer is cut short" "{$create, \"times\": 1, \"action\": \"truncate\", \"bytes\": 10}" "exit codes"
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

echo '{}' >"$work/rules"
"$TEST_BED" empty all || { echo "FAILED: containers are left"; bad=1; }
exit $bad
