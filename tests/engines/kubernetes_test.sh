# kubernetes_test.sh - pools, processes and rings as pods of a real cluster: what kills them, what stops the API server, what
# they print, what cannot be started, and masters within. The cluster is the bed's (tests/beds/kubernetes).
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source=tests/engines/kubernetes.sh disable=SC2016
# A namespace of our own for the manifest; and what a test that failed may have left.
clean() {
    "$bed" thaw 2>/dev/null || :
    "$bed" start 2>/dev/null || :
    "$bed" start kube-controller-manager || :
    "$bed" kubectl delete namespace fiber-manifest --ignore-not-found --wait=false >/dev/null 2>&1 || :
}
space=fiber
. "$(dirname "$0")/kubernetes.sh"
"$bed" kubectl delete namespace fiber-manifest --ignore-not-found >/dev/null # of a run before, which may be going yet
"$fiber" gc -b kubernetes >/dev/null 2>&1 # of masters that other tests killed
nothing_left() { "$bed" empty all || failed "pods are left"; } # what belonged to them the cluster takes away later

# --- what becomes of a process
does 300 "$prog" process hello
says '^hello from fiber-'
does 300 "$prog" process exit 7
says '^code 7: '
does 300 "$prog" process signal 11
says '^code -11: .*signal 11'
does 300 "$prog" process -n _.-odd-. exit 0
says '^code 0: '
ok "exit codes, signals, names"

does 300 "$prog" process -m 64 eat 200
says '^code -9: .*its limit of 64Mi'
ok "a limit of memory is told"
FIBER_KUBERNETES_PENDING_TIMEOUT=10s does 300 "$prog" process -c 1000 hello
says '^code 125: .*no node takes it: .*Insufficient cpu'
ok "too many processors are told"
does 300 "$prog" process -i no-such-image:1 hello
says "^code 125: .*image 'no-such-image:1' is not on the node"
ok "an image that is not there is told"
does 300 "$prog" process -i 'No image' hello
says '^code 125: .*has an invalid name'
ok "an image that cannot be is told"
does 300 "$prog" process program /no/such/program
says 'code 125: .*cannot be started: .*no such file'
ok "a program that is not there is told"
nothing_left

# --- where the cluster is, and what we may there
KUBECONFIG=/dev/null does 300 "$prog" process hello
says 'no context is chosen'
FIBER_KUBERNETES_NAMESPACE=default does 300 "$prog" process hello
says 'cannot list resource "pods".*'
sed 's/token: .*/token: wrong}/' "$KUBECONFIG" >"$work/wrong"
KUBECONFIG=$work/wrong does 300 "$prog" process hello
says 'Unauthorized'
sed 's/\(server: [^ ,]*\):[0-9]*/\1:1/' "$KUBECONFIG" >"$work/wrong"
KUBECONFIG=$work/wrong does 300 "$prog" process hello
says 'does not answer'
ok "no context, another's namespace, a wrong token, a wrong address"

# --- the template has the last word
printf 'spec:\n  activeDeadlineSeconds: 3\n  containers: [{env: [{name: A, value: b}]}]\n' >"$work/template"
FIBER_KUBERNETES_POD_TEMPLATE=$work/template does 300 "$prog" process wait
says 'activeDeadlineSeconds'
echo 'containers: []' >"$work/template"
FIBER_KUBERNETES_POD_TEMPLATE=$work/template does 300 "$prog" process hello
says "kubernetes_pod_template .*a pod has no 'containers'"
ok "template"
does 300 "$prog" nested
[[ $(grep -c '^leaf beside its parent$' "$work/out") == 2 ]] || failed "they should be in its pod"
ok "nested processes"

# --- output: whole lines of both streams, in order, also over a break
begins 1 'out 0000050 ' "$prog" output 10500 /tmp/go
cat <&"$out" >>"$work/out" & # all the time: what nobody reads for a second may be lost at its end
reader=$!
"$bed" stop
"$bed" start
await_jobs 1
until in_space exec "$job" -- sh -c ': >/tmp/go' 2>/dev/null; do read -rt 0.2 <> <(:) || :; done
wait $reader
ends
for stream in out err; do
    awk -v stream=$stream '$1 == stream { if ($2 != n++) bad = 1 } END { exit bad || n != 10500 }' "$work/out" ||
        failed "lines of $stream are missing, torn or out of order"
done
ok "1 MiB of each stream, although the API server dies"

# --- a pool whose workers die
enough=$work/enough
FIBER_HEARTBEAT=200s begins 1 begun "$prog" pool 4 400 20 "$enough"
await_jobs 4
in_space delete pod --wait=false "$(sed -n 1p <<<"$jobs")" >/dev/null
"$bed" vanish "$(sed -n 2p <<<"$jobs")"
touch "$enough"
ends
says '^right 400 of 400$'
says '^deaths 0$' # it is no fault of theirs
nothing_left
ok "a pool survives a pod that is deleted and one that vanishes"

# --- several workers in each pod, one of which is killed
rm "$enough"
FIBER_HEARTBEAT=200s begins 1 begun "$prog" jobs 2 3 300 "$enough"
await_jobs 2
(($(wc -l <<<"$jobs") == 2)) || failed "six workers should be in two pods"
touch "$enough"
ends
says '^right 300 of 300$'
says '^deaths 1$'
nothing_left
ok "a pool of two pods with three workers each"

# --- an API server that dies, or hangs, and comes back
rm "$enough"
FIBER_HEARTBEAT=200s begins 1 begun "$prog" pool 2 400 20 "$enough"
"$bed" stop
"$bed" start
touch "$enough"
ends
says '^right 400 of 400$'
says '^deaths 0$'
nothing_left
ok "the API server dies and comes back while a pool maps"
watches() { # the namespace's pods, as only our masters do
    "$bed" kubectl get --raw /metrics |
        grep -E '^apiserver_longrunning_requests\{.*resource="pods",scope="namespace",.*verb="WATCH".* [1-9]' >/dev/null
}
begins 1 'waits in' "$prog" process wait
"$bed" stop
"$bed" start
wait_for "the process should be watched again" watches # a pod that is gone before has an unknown end
await_jobs 1
in_space delete pod --wait=false "$job" >/dev/null
ends
says '^code -15: '
nothing_left
ok "a process is watched again when the API server is back"
rm "$enough"
FIBER_HEARTBEAT=200s begins 1 begun "$prog" pool 2 200 20 "$enough"
"$bed" freeze
read -rt 5 <> <(:) || :
touch "$enough"
"$bed" thaw
ends
says '^right 200 of 200$'
says '^deaths 0$'
ok "an API server that hangs harms nobody"

# A ring that ends then takes about 15 s: its agents are killed after 3 s, and their objects are asked for during 10 s.
begins 2 'of 2 on' "$fiber" run -n 2 -N 1 "$prog" rank
"$bed" stop
kill -TERM "$launcher"
timeout 40 cat <&"$out" >>"$work/out" || failed "a ring should end without an API server"
exec {out}<&-
launcher=
says 'objects of the run .* may remain .*: .fiber gc. removes them'
"$bed" start
gives 0 "$fiber" gc -b kubernetes
nothing_left
ok "a ring ends without an API server"

# --- a master that is killed
begins 1 begun "$prog" pool 4 400 20 "$work/never"
kill -KILL "$launcher"
ends
"$bed" empty || failed "pods run on"
"$fiber" gc -b kubernetes >"$work/out" 2>&1 || failed "fiber gc"
nothing_left
ok "nothing outlives its master, and gc removes what it left"

# --- many at once
does 300 "$prog" many "${KUBERNETES_MANY:-40}"
says "^${KUBERNETES_MANY:-40} ended well$"
nothing_left
ok "many at once"

# --- a master in the cluster, with the permissions of the manifest, in a strict namespace
"$bed" kubectl create namespace fiber-manifest >/dev/null
"$bed" kubectl label namespace fiber-manifest pod-security.kubernetes.io/enforce=baseline >/dev/null
"$fiber" kubernetes manifest -N fiber-manifest -i fiber-system:1 -- "$prog" pool 2 40 20 |
    "$bed" kubectl apply -f - >"$work/out"
"$bed" kubectl -n fiber-manifest wait --for=condition=complete --timeout=120s job/fiber-master >>"$work/out" 2>&1 ||
    failed "the Job does not end well"
"$bed" kubectl -n fiber-manifest logs job/fiber-master >"$work/out"
says '^right 40 of 40$'
ok "a master in the cluster, with the least permissions"

# --- rings
gives 5 "$fiber" run -n 4 -N 2 sh -c 'echo "$FIBER_RANK of $FIBER_SIZE"; [ "$FIBER_RANK" != 3 ] || exit 5'
says '^3 of 4$' # the others may have been ended before they spoke
begins 4 'of 4 on' "$fiber" run -n 4 -N 2 --on-failure restart "$prog" rank
await_jobs 1
"$bed" vanish "$job"
more 4 'of 4 on'
kill -TERM "$launcher"
ends
nothing_left
ok "a ring goes on after a pod was lost"

# --- a ring that is looked at, and a directory to a pod of it and back
begins 4 'of 4 on' "$fiber" run -n 4 -N 2 --name looked "$prog" rank
if [[ -x $TEST_BINARY_DIR/fiber/fiber-stack ]]; then
    until does 60 "$fiber" stack looked && grep -q '^ranks 0-3: main threads of docker_prog' "$work/out"; do
        kill -0 "$launcher" || failed "the ring has ended"
    done
fi
mkdir -p "$work/tree/sub"
head -c 300000 /dev/urandom >"$work/tree/sub/large"
ln -s sub/large "$work/tree/link"
gives 0 "$fiber" cp "$work/tree" looked/3:/tmp
gives 0 "$fiber" cp looked/2:/tmp/tree "$work/back"
diff -r --no-dereference "$work/tree" "$work/back" || failed "it is not as it was"
kill -TERM "$launcher"
ends
nothing_left
ok "stacks of pods, and a directory to one and back"

# --- all or none: three of its four pods get a place, which is no use. What the template says is on each of them
"$bed" kubectl patch node node1 --subresource=status --type=merge \
    -p '{"status": {"capacity": {"fiber.io/place": "3"}, "allocatable": {"fiber.io/place": "3"}}}' >/dev/null
cat >"$work/template" <<'END'
metadata:
  labels: {kueue.x-k8s.io/queue-name: team, scheduling.x-k8s.io/pod-group: train-7}
  annotations: {scheduling.k8s.io/group-name: train-7}
spec:
  schedulerName: default-scheduler
  containers: [{resources: {limits: {fiber.io/place: "1"}, requests: {fiber.io/place: "1"}}}]
END
export FIBER_KUBERNETES_POD_TEMPLATE=$work/template
begins 1 '1 Insufficient fiber.io/place' "$fiber" run -n 4 -N 1 "$prog" rank # it waits, and says for what
marks='{.metadata.labels.kueue\.x-k8s\.io/queue-name} {.metadata.labels.scheduling\.x-k8s\.io/pod-group} {.metadata.annotations.scheduling\.k8s\.io/group-name}'
in_space get pods -l fiber.io/run -o "jsonpath={range .items[*]}$marks{\"\n\"}{end}" >"$work/marks"
[[ $(grep -cx 'team train-7 train-7' "$work/marks") == 4 ]] || failed "pods lack what the template says"
kill -TERM "$launcher"
ends
nothing_left
FIBER_GANG_TIMEOUT=2s gives 125 "$fiber" run -n 4 -N 1 "$prog" rank
says 'of the ring.s 4 nodes have joined, and [123] got no place within 2 s \(gang_timeout\), so all are released'
nothing_left
FIBER_KUBERNETES_PENDING_TIMEOUT=5s gives 125 "$fiber" run -n 4 -N 1 "$prog" rank
unset FIBER_KUBERNETES_POD_TEMPLATE
says 'an agent could not be started: .*no node takes it: .*Insufficient fiber.io/place.*given up after kubernetes_pending_timeout'
! grep -q 'of 4 on' "$work/out" || failed "no rank should have begun"
nothing_left
ok "a ring begins with all of its pods or none"

# --- a Job of which nobody makes the pod, as when a queue has suspended it
"$bed" stop kube-controller-manager
FIBER_KUBERNETES_PENDING_TIMEOUT=1s gives 125 "$fiber" run --in-cluster -n 2 "$prog" rank
says 'its Job has no pod yet .*suspended it. .given up after kubernetes_pending_timeout.'
"$bed" start kube-controller-manager
nothing_left
ok "a master whose Job gets no pod is given up"

# --- --nodes K needs K nodes, and there is one
FIBER_KUBERNETES_PENDING_TIMEOUT=5s gives 125 "$fiber" run --nodes 2 "$prog" rank
says 'an agent could not be started: .*no node takes it: .*anti-affinity.*given up after kubernetes_pending_timeout'
nothing_left
gives 0 "$fiber" run --nodes 1 -n 2 sh -c 'echo "rank $FIBER_RANK"'
nothing_left
# Who may list the nodes knows how many ranks go into a pod.
"$bed" kubectl create clusterrole fiber-nodes --verb=list --resource=nodes >/dev/null
"$bed" kubectl create clusterrolebinding fiber-nodes --clusterrole=fiber-nodes --serviceaccount=fiber:fiber >/dev/null
processors=$("$bed" kubectl get node node1 -o 'jsonpath={.status.allocatable.cpu}')
two_pods() { "$fiber" run --dry-run -n $((2 * processors)) "$prog" rank | grep '^backend kubernetes, 2 agents$' >/dev/null; }
wait_for "a pod should have as many ranks as its node has processors" two_pods
"$bed" kubectl delete clusterrolebinding,clusterrole fiber-nodes >/dev/null
ok "nodes are distinct, and as large as they are"

# --- the cluster is asked before anything is started
gives 0 "$fiber" run --dry-run=server -n 4 -N 2 "$prog" rank
says '^kind: "Pod"'
says '^# pod: the server would accept it'
says '^# Secret: the server would accept it'
FIBER_KUBERNETES_SERVICE_ACCOUNT=nobody gives 125 "$fiber" run --dry-run=server -n 4 -N 2 "$prog" rank
says 'pod: refused by the server: .*serviceaccount "nobody" not found'
nothing_left
ok "a dry run asks the server"
wait_for "nothing should be left" empty
