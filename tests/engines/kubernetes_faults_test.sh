# kubernetes_faults_test.sh - Kubernetes' backend with an API server that refuses, answers late, wrongly or not at all.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/engines/faults.sh disable=SC2031
. "$(dirname "$0")/faults.sh"

on kubernetes
behind_proxy() {
    begin_proxy --listen 127.0.0.1:0 --kubeconfig "$KUBECONFIG" --client "$work/kubeconfig"
    export KUBECONFIG=$work/kubeconfig
}
at_once=4
export FIBER_START_TIMEOUT=300s

objects() { "$TEST_BED" kubectl -n fiber get pods,secrets,configmaps -l fiber.io/run -o name; }
objects >"$work/before" # of tests that failed

create='"method": "POST", "path": "/pods(\\\\?|$)"'
secret='"method": "POST", "path": "/secrets(\\\\?|$)"'
owner='"method": "POST", "path": "/configmaps(\\\\?|$)"'
list='"method": "GET", "path": "/pods\\\\?(?!.*watch=)"'
watch='"method": "GET", "path": "/pods\\\\?.*watch="'
remove='"method": "DELETE", "path": "/pods/"'
forget='"method": "DELETE", "path": "/(secrets|configmaps)/"'
log='"method": "GET", "path": "/log"'
# What a namespace's quota says: there is no room; it is not counted yet; another was faster.
full='"times": 2, "action": "status", "status": 403, "body": "{\"message\": \"is forbidden: exceeded quota: few\"}"'
unknown='"times": 1, "action": "status", "status": 403, "body": "{\"message\": \"status unknown for quota: few\"}"'
faster='"times": 2, "action": "status", "status": 409,
    "body": "{\"message\": \"Operation cannot be fulfilled on resourcequotas \\\"few\\\"\"}"'

under "the watch is silent" "{$watch, \"times\": 1, \"action\": \"stall\", \"bytes\": 1}" "exit codes" # it takes longest
for status in 429 500 503; do
    under "create answers $status" "{$create, \"times\": 1, \"action\": \"status\", \"status\": $status}" "exit codes"
done
under "create is closed" "{$create, \"times\": 1, \"action\": \"close\"}" "exit codes"
under "create's answer is lost" "{$create, \"times\": 2, \"action\": \"lost\"}" "exit codes"
under "create's answer is cut short" "{$create, \"times\": 1, \"action\": \"truncate\", \"bytes\": 10}" "exit codes"
under "the secret answers 503" "{$secret, \"times\": 1, \"action\": \"status\", \"status\": 503}" "exit codes"
under "a quota has no room for the secret" "{$secret, $full}" "exit codes"
under "the owner answers 503" "{$owner, \"times\": 1, \"action\": \"status\", \"status\": 503}" "exit codes"
under "a quota has no room for the owner" "{$owner, $full}" "exit codes"
under "the owner's answer is lost" "{$owner, \"times\": 1, \"action\": \"lost\"}" "exit codes"
under "a quota is not counted yet" "{$secret, $unknown}, {$create, $unknown}" "exit codes"
under "others are faster at a quota" "{$secret, $faster}, {$create, $faster}" "exit codes"
under "the secret's answer is lost" "{$secret, \"times\": 1, \"action\": \"lost\"}" "exit codes"
under "the list is refused" "{$list, \"times\": 1, \"action\": \"status\", \"status\": 500}" "exit codes"
under "the list is cut short" "{$list, \"times\": 1, \"action\": \"truncate\", \"bytes\": 40}" "exit codes"
under "the watch is refused" "{$watch, \"times\": 2, \"action\": \"status\", \"status\": 429}" "exit codes"
under "the watch is late" "{$watch, \"times\": 1, \"action\": \"delay\", \"ms\": 12000}" "death by its own signal"
under "the watch is not allowed" "{$watch, \"times\": 2, \"action\": \"status\", \"status\": 401}" "death by its own signal"
under "the watch is reset" "{$watch, \"times\": 3, \"action\": \"reset\", \"bytes\": 3000}" "death by its own signal"
under "the watch is closed" "{$watch, \"times\": 2, \"action\": \"close\"}" "death by its own signal"
under "the watch ends again and again" "{$watch, \"action\": \"end\", \"events\": 2}" "death by its own signal"
under "the watch is cut in the middle of an event" "{$watch, \"times\": 3, \"action\": \"truncate\", \"bytes\": 3000}" \
    "death by its own signal"
under "the watch is too old" "{$watch, \"times\": 3, \"action\": \"gone\", \"events\": 1}" "death by its own signal"
under "the watch is garbage" "{$watch, \"times\": 2, \"action\": \"garbage\"}" "exit codes"
under "the watch is gone as a status" "{$watch, \"times\": 1, \"action\": \"status\", \"status\": 410}" "exit codes"
under "the end of the secret is not answered" "{$forget, \"times\": 1, \"action\": \"stall\"}" "exit codes"
under "a delete's answer is lost" "{$remove, \"times\": 1, \"action\": \"lost\"}" "terminate and kill"
under "a delete answers 503" "{$remove, \"times\": 1, \"action\": \"status\", \"status\": 503}" "terminate and kill"
under "the log is closed" "{$log, \"times\": 1, \"action\": \"close\"}" "last lines in the report"
under "the log answers 500" "{$log, \"times\": 1, \"action\": \"status\", \"status\": 500}" "last lines in the report"

all_ended
# The cluster takes away what belonged to a ConfigMap that is gone.
for ((look = 0; look < 1500; look++)); do
    objects >"$work/after" && ! grep -vxF -f "$work/before" "$work/after" >"$work/more" && exit $bad
    read -rt 0.2 <> <(:) || :
done
echo "FAILED: that is left:"
cat "$work/more"
exit 1
