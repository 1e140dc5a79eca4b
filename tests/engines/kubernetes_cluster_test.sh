# kubernetes_cluster_test.sh - what a cluster does to pods while a pool maps and a ring runs: it evicts and preempts them, loses
# its node, cuts two of them off from each other, deletes the master's.
#
# What is promised: no task is lost or done wrong; what the cluster does is no worker's and no task's fault ("deaths 0");
# nothing outlives its master.
#
# A cluster takes its time. What leaves the node and the API server alone goes on at the same time, each case in a namespace
# of its own.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source=tests/engines/kubernetes.sh disable=SC2016,SC2030,SC2031
clean() {
    "$bed" start kubelet 2>/dev/null || :
    "$bed" kubectl delete node -l type=kwok >/dev/null 2>&1 || :
    "$bed" kubectl delete priorityclass fiber-low fiber-high --ignore-not-found >/dev/null 2>&1 || :
    "$bed" kubectl delete namespace -l fiber-test=cluster --wait=false >/dev/null 2>&1 || :
}
space=fiber # each case has one of its own
. "$(dirname "$0")/kubernetes.sh"
"$bed" kubectl delete namespace -l fiber-test=cluster >/dev/null # of a run before, which may be going yet

is_gone() {
    local list
    list=$(in_space get pod "$1" --ignore-not-found -o name) && [[ ! $list ]]
}
# beside CASE...: these functions at the same time, each in a new namespace
beside() {
    local name pid bad=0
    local -A named
    for name in "${@//_/-}"; do
        printf 'apiVersion: v1\nkind: Namespace\nmetadata: {name: fiber-%s, labels: {fiber-test: cluster}}\n---\n' "$name"
        manifest "fiber-$name"
        echo ---
    done | "$bed" kubectl apply -f - >/dev/null
    for name; do
        mkdir "$work/$name"
        (
            work=$work/$name space=fiber-${name//_/-}
            trap '[[ ! $launcher ]] || kill "$launcher" 2>/dev/null || :' EXIT
            : >"$work/out"
            wait_for "its Role should hold" may_begin
            export FIBER_KUBERNETES_NAMESPACE=$space
            "$name"
        ) &
        named[$!]=$name
    done
    for pid in "${!named[@]}"; do
        wait "$pid" || { echo "FAILED: ${named[$pid]}"; bad=1; }
    done
    [[ $bad == 0 ]] || exit 1
}

# --- evicted, as `kubectl drain` does
evict() {  # POD
    printf '{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "%s", "namespace": "%s"}}' "$1" "$space" |
        "$bed" kubectl create --raw "/api/v1/namespaces/$space/pods/$1/eviction" -f - >/dev/null
}
evicted() {
    local pod
    maps
    pod=$(pods | sed -n 1p)
    evict "$pod"
    wait_for "the evicted pod should go" is_gone "$pod"
    wait_for "another worker should come" has_two
    finish
    nothing_left
    ok "an evicted pod"
}

# A ring that may fail once is evicted twice, and then fails.
staying() {  # the pods that are not about to end
    in_space get pods -l fiber.io/run --field-selector status.phase=Running --no-headers \
        -o custom-columns=name:.metadata.name,until:.metadata.deletionTimestamp | awk '$2 == "<none>" { print $1 }'
}
one_stays() { (($(staying | wc -l) == 1)); }
evicted_ring() {
    local policy=$1 time
    begins 1 'of 1 on' "$fiber" run -n 1 --on-failure "$policy" --max-restarts 1 "$prog" rank
    for time in 1 2; do
        wait_for "its pod should run" one_stays
        evict "$(staying)"
        more 1 "($time of 100 after disruptions by the cluster)"
        more 1 'of 1 on'
    done
    wait_for "its pod should run" one_stays
    in_space exec "$(staying)" -- sh -c 'kill -9 -1' >/dev/null 2>&1 || :
    more 1 '(1 of 1)'
    more 1 'of 1 on'
    kill -TERM "$launcher"
    ends
    nothing_left
    ok "evictions are not what a ring may fail: $policy"
}
restarting() { evicted_ring restart; }
replacing() { evicted_ring replace; }

# --- preempted by one of a higher class: the node has two places, and the pool both
runs() { [[ $(in_space get pod intruder -o 'jsonpath={.status.phase}') == Running ]]; }
preempted() {
    local class node place
    for class in low:1 high:1000; do
        "$bed" kubectl create priorityclass "fiber-${class%:*}" --value "${class#*:}" >/dev/null
    done
    node=$("$bed" kubectl get nodes -l 'type!=kwok' -o name)
    "$bed" kubectl patch "$node" --subresource=status --type=merge \
        -p '{"status": {"capacity": {"fiber.io/place": "2"}, "allocatable": {"fiber.io/place": "2"}}}' >/dev/null
    place='resources: {limits: {fiber.io/place: "1"}, requests: {fiber.io/place: "1"}}'
    printf 'spec:\n  priorityClassName: fiber-low\n  containers: [{%s}]\n' "$place" >"$work/template"
    FIBER_KUBERNETES_POD_TEMPLATE=$work/template maps
    in_space apply -f - >/dev/null <<END
apiVersion: v1
kind: Pod
metadata: {name: intruder}
spec:
  priorityClassName: fiber-high
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: fiber-system:1, imagePullPolicy: Never, command: [$prog, rank], $place}]
END
    wait_for "the intruder should run" runs
    (($(pods | wc -l) == 1)) || failed "one worker should have been preempted"
    in_space delete pod intruder --wait=false >/dev/null
    wait_for "the worker should come back" has_two
    finish
    nothing_left
    ok "a preempted pod"
}

# --- two pods that cannot reach each other: a master in the cluster and one of its workers
workers() { in_space get pods -l 'fiber.io/role!=master' --field-selector status.phase=Running -o name | cut -d/ -f2; }
master() { in_space get pods -l fiber.io/role=master -o name | cut -d/ -f2; }
both_work() { (($(workers | wc -l) >= 2)); }
# port POD: its end of the bridge; isolated ports do not reach each other, but all others. The cluster says later than the pod itself
# where that is, and the node forgets it now and then.
end_of() {
    local ip mac
    ip=$(in_space get pod "$1" -o 'jsonpath={.status.podIP}') && [[ $ip ]] || return 1
    "$bed" enter bash -c "exec 3<>/dev/tcp/$ip/9" 2>/dev/null || : # the node asks for its address
    mac=$("$bed" enter ip neigh show "$ip" | grep -oE '([0-9a-f]{2}:){5}[0-9a-f]{2}') || return 1
    "$bed" enter bridge fdb show br cni0 | awk -v mac="$mac" '$1 == mac && !/self/ { print $3; exit }'
}
port() {
    local found
    finds() { found=$(end_of "$1") && [[ $found ]]; }
    wait_for "the port of $1 should be known" finds "$1"
    echo "$found"
}
apart() {
    local cut one two port
    FIBER_HEARTBEAT=5s begins 1 begun "$fiber" kubernetes run -- sh -c "exec $prog pool 2 200 20 /tmp/go 1"
    wait_for "both workers should run" both_work
    cut=$(workers | sed -n 1p)
    one=$(port "$(master)") two=$(port "$cut")
    [[ -n $one && -n $two ]] || failed "no ports: '$one' '$two'"
    for port in "$one" "$two"; do "$bed" enter bridge link set dev "$port" isolated on; done
    # It may end by itself before it is deleted; what has ended may stay for a look, as long as its master does.
    is_replaced() {
        local list
        list=$(workers) && ! grep -qx "$cut" <<<"$list" && (($(wc -l <<<"$list") >= 2))
    }
    (wait_for "a worker that is cut off should be replaced" is_replaced) || {
        "$bed" enter bridge -d link show | grep -A3 -E "$one|$two" || :
        in_space get pods -o wide
        for pod in "$cut" "$(master)"; do in_space logs "$pod" | tail -n 20; done
        exit 1
    }
    in_space exec "$(master)" -- sh -c ': >/tmp/go'
    ends
    says '^right 200 of 200$'
    says '^deaths [1-9]' # this nobody can tell from a fault of its own
    nothing_left
    ok "two pods that cannot reach each other"
}

# --- a ring that adds up by MPI, one pod of which is cut off from all others, and a pool whose pods are
down() { "$bed" enter ip link set dev "$1" down; }
cut_ring() {
    local in one
    image_of_mpi
    [[ $mpi ]] || return 0
    mkfifo "$work/in"
    exec {in}<>"$work/in"
    FIBER_IMAGE=fiber-mpi:1 begins 1 'step 0' sh -c '"$@" <"$0"; echo "exit code $?"' "$work/in" \
        "$fiber" run -n 2 -N 1 "$mpi"
    one=$(port "$(in_space get pods -l fiber.io/index=1 -o name | cut -d/ -f2)")
    [[ $one ]] || failed "no port"
    down "$one"
    ends
    exec {in}>&-
    says 'the agent .* is gone.*no heartbeat for'
    says '^exit code [1-9]'
    nothing_left
    ok "a ring of which a pod is cut off"
}
cut_pool() {
    local cut pod
    maps
    cut=$(pods)
    for pod in $cut; do
        pod=$(port "$pod")
        [[ $pod ]] || failed "no port"
        down "$pod"
    done
    are_replaced() { ! grep -qxF "$cut" <<<"$(pods)" && has_two; }
    wait_for "workers that are cut off should be replaced" are_replaced
    touch "$work/go"
    ends
    says '^right 200 of 200$'
    says '^deaths 2$' # both were killed by us, for their heartbeats or their data links
    nothing_left
    ok "a pool whose pods are all cut off"
}

# --- pods whose containers do not begin: at once, after some time, never
cannot_begin() {
    local variable secret='secret "none" not found'
    echo 'spec: {containers: [{env: [{name: A, valueFrom: {secretKeyRef: {name: none, key: a}}}]}]}' >"$work/variable"
    echo 'spec: {volumes: [{name: a, secret: {secretName: none}}], containers: [{volumeMounts: [{name: a, mountPath: /a}]}]}' \
        >"$work/volume"
    FIBER_KUBERNETES_POD_TEMPLATE=$work/variable "$prog" process hello >"$work/said" 2>&1 &
    variable=$!
    FIBER_KUBERNETES_POD_TEMPLATE=$work/volume FIBER_KUBERNETES_PENDING_TIMEOUT=20s does 300 "$prog" process hello
    says "^code 125: .*FailedMount: .*$secret \\(given up after kubernetes_pending_timeout\\)"
    FIBER_KUBERNETES_PULL_POLICY=IfNotPresent FIBER_KUBERNETES_PULL_TIMEOUT=2s does 300 "$prog" process -i 127.0.0.1:1/x:1 hello
    says "^code 125: .*image '127.0.0.1:1/x:1' cannot be pulled: .*refused"
    does 300 "$prog" process program /etc/hosts
    says 'its program cannot be started: it is not executable: .*permission denied'
    wait $variable || :
    cp "$work/said" "$work/out"
    says "^code 125: .*CreateContainerConfigError: $secret"
    nothing_left
    ok "what cannot begin is told, and given up"
}

# --- the master's object is deleted at once, without a word to its process
no_master() {
    begins 2 'rank ' "$fiber" run --in-cluster -n 2 -N 1 "$prog" rank
    in_space delete pod "$(master)" --grace-period=0 --force >/dev/null 2>&1
    ends
    nothing_left
    ok "a master's pod that vanishes takes all with it"
}

# --- a node that is lost for a while: its pods are to go, and are asked again when it is back
# Where all nodes are lost, a cluster suspects itself and ends no pod: two others stay.
lost_node() {
    local taint first
    "$bed" up --fake-nodes 2 >/dev/null
    printf 'spec:\n  tolerations:\n' >"$work/template"
    for taint in not-ready unreachable; do
        printf '    - {key: node.kubernetes.io/%s, operator: Exists, effect: NoExecute, tolerationSeconds: 1}\n' $taint >>"$work/template"
    done
    FIBER_KUBERNETES_POD_TEMPLATE=$work/template maps
    first=$(pods | sed -n 1p)
    "$bed" stop kubelet
    # What the cluster's controllers say of it by themselves, when they have not heard of it for 50 s.
    "$bed" kubectl patch node node1 --subresource=status -p \
        '{"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}' >/dev/null
    marked() { [[ -n $(in_space get pod "$first" -o 'jsonpath={.metadata.deletionTimestamp}') ]]; }
    wait_for "the pods of the lost node should be marked" marked
    "$bed" start kubelet
    wait_for "they should go" is_gone "$first"
    wait_for "others should come" has_two
    finish
    nothing_left
    "$bed" kubectl delete node -l type=kwok >/dev/null
    ok "a lost node"
}

beside evicted restarting replacing preempted apart no_master cut_ring cut_pool cannot_begin
beside lost_node
