# kubernetes_scale_test.sh - 1,000 pods on simulated nodes, and what the API server is asked for them, counted by a proxy before
# it: one POST each, at most one look at its output and one DELETE each, and one watch for all. They run nothing and end well
# after two seconds.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source=tests/engines/kubernetes.sh
proxy=
clean() {
    [[ ! $proxy ]] || kill "$proxy" 2>/dev/null || :
    "$bed" kubectl delete node -l type=kwok >/dev/null 2>&1 || :
}
space=fiber
. "$(dirname "$0")/kubernetes.sh"
pods=${KUBERNETES_PODS:-1000}
bench=$TEST_BINARY_DIR/benchmarks/pods_bench
[[ -x $bench ]] || { echo "skipped: $bench is not built"; exit 77; }
"$bed" up --fake-nodes 5 >/dev/null

cat >"$work/rules" <<'END'
{"count": [{"name": "create", "method": "POST", "path": "/pods(\\?|$)"},
           {"name": "delete", "method": "DELETE", "path": "/pods/"},
           {"name": "watch", "method": "GET", "path": "/pods\\?.*watch="},
           {"name": "list", "method": "GET", "path": "/pods\\?(?!.*watch=)"},
           {"name": "log", "method": "GET", "path": "/log(\\?|$)"},
           {"name": "why", "method": "GET", "path": "/events\\?"},
           {"name": "secret", "path": "/secrets"}]}
END
exec {said}< <(echo "$BASHPID"; exec python3 -B "$TEST_SOURCE_DIR/tests/beds/faults/proxy.py" --rules "$work/rules" \
    --counts "$work/counts" --listen 127.0.0.1:0 --kubeconfig "$KUBECONFIG" --client "$work/kubeconfig" 2>&1)
read -r proxy <&"$said"
read -r line <&"$said"
[[ $line == ready ]] || { echo "FAILED: the proxy does not begin: $line"; exit 1; }

begun=$SECONDS
KUBECONFIG=$work/kubeconfig FIBER_LOG_LEVEL=info FIBER_KUBERNETES_POD_TEMPLATE=$TEST_SOURCE_DIR/benchmarks/simulated_pod.yaml \
    does 900 "$bench" "$pods"
seconds=$((SECONDS - begun + 1))
((code == 0)) || failed "exit code $code"
kill -TERM "$proxy" # it writes its counts, and ends
cat <&"$said" >"$work/proxy"
proxy=
counted() { jq --arg n "$1" --arg key "${2-requests}" '.[$n][$key] // 0' "$work/counts"; }
# What was sent again after a refusal or a connection that broke, as the client says.
again=$(sed -nE 's/.* watches and logs, ([0-9]+) repeated.*/\1/p' "$work/out")
all=$(jq '[.[].requests] | add' "$work/counts")
create=$(counted create) delete=$(counted delete) watch=$(counted watch) list=$(counted list) log=$(counted log) why=$(counted why)
mib=$(sed -nE 's/.*"mib": ([0-9]+).*/\1/p' "$work/out")
echo "$pods pods in $seconds s: $all requests, of them create $create, log $log, delete $delete, watch $watch, list $list," \
    "why $why, secret $(counted secret); $again repeated; the master had $mib MiB"
jq -c 'map_values([.requests, .ended])' "$work/counts" >"$work/out"
((create >= pods && create <= pods + again)) || failed "one POST for each pod"
((delete <= pods + again)) || failed "at most one DELETE for each pod"
((log <= pods + again)) || failed "its output is read at most once"
# A server ends a watch after some minutes, and at once when it cannot get rid of its events: machines are busy in a test.
((watch >= 1 && watch <= 1 + $(counted watch ended) && list <= watch + 1)) ||
    failed "one watch for all, another only when the server has ended it"
((why <= 4 * seconds)) || failed "why pods wait is asked at most four times in a second"
((all - why <= 3 * pods + again + 20)) || failed "at most three requests for each pod"
((mib < 100)) || failed "the master should stay small"
nothing_left
ok "$pods pods"
