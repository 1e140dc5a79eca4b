# kubernetes_commands_test.sh - the command line over a cluster: doctor with each verb taken out of the Role, ps, top, logs,
# kill, scale and cp of what runs there, gc of what dead runs left.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source=tests/engines/kubernetes.sh disable=SC2016,SC2154
space="fiber-commands"
clean() { "$bed" kubectl delete namespace $space --ignore-not-found --wait=false >/dev/null 2>&1 || :; }
. "$(dirname "$0")/kubernetes.sh"
export FIBER_KUBERNETES_NAMESPACE=$space
"$bed" kubectl delete namespace $space --ignore-not-found >/dev/null # of a run before, which may be going yet
"$bed" kubectl create namespace $space >/dev/null
manifest $space | "$bed" kubectl apply -f - >/dev/null
wait_for "its Role should hold" may_begin
lacks() { ! grep -qE -- "$1" "$work/out" || failed "it should not say '$1'"; }

# --- doctor: all is well; then one verb less in the Role each time
gives 0 "$fiber" doctor --backend kubernetes
says '^ok +kubernetes permissions all that is needed in namespace fiber-commands$'
says '^ok +kubernetes way back '
in_space get role fiber -o json | jq 'del(.metadata.resourceVersion, .metadata.uid, .metadata.managedFields)' >"$work/role"
may_not() {
    local sub=()
    [[ $2 != */* ]] || sub=("--subresource=${2#*/}")
    ! "$bed" kubectl auth can-i "$1" "${2%/*}" "${sub[@]}" -n $space --as system:serviceaccount:fiber:fiber >/dev/null
}
# without CODE STATE VERB RESOURCE SENTENCE: what it says then, and that the lines it prints are those that were taken out
without() {
    local want=$1 state=$2 verb=$3 resource=$4 sentence=$5
    jq --arg v "$verb" --arg r "$resource" '.rules |= map(if .resources == [$r] then .verbs -= [$v] else . end |
        select(.verbs != []))' "$work/role" | in_space replace -f - >/dev/null
    wait_for "the Role should be without $verb $resource" may_not "$verb" "$resource"
    gives "$want" "$fiber" doctor --backend kubernetes
    says "^$state +$sentence"
    lacks 'all that is needed'
    grep -A9 -e '-> in a Role:' "$work/out" >"$work/lines" || failed "it should print what mends it"
    grep -qF "resources: [\"$resource\"]" "$work/lines" || failed "its line should name $resource"
    grep -qF "verbs: [\"$verb\"]" "$work/lines" || failed "its line should name $verb"
}
for verb in create get watch delete; do without 1 bad $verb pods "kubernetes $verb pods +not allowed in namespace $space"; done
without 1 bad list pods 'backend kubernetes .*cannot list resource "pods"'
without 0 absent get pods/log 'kubernetes get pods/log +not allowed .*needed for showing the output of jobs'
for verb in create list delete; do without 1 bad $verb configmaps "kubernetes $verb configmaps +not allowed"; done
for verb in create delete; do
    without 1 bad $verb secrets "kubernetes $verb secrets +not allowed"
    without 0 absent $verb jobs "kubernetes $verb jobs +not allowed .*needed for .* masters in the cluster"
done
without 0 absent list events 'kubernetes list events +not allowed .*needed for explaining why a pod does not start'
manifest $space | "$bed" kubectl apply -f - >/dev/null
wait_for "its Role should hold" may_begin
ok "doctor names each verb that is missing, and the line that mends it"

# --- a pool of pods: ps, top, cp, scale
enough=$work/enough
begins 1 begun "$prog" pool 2 200 20 "$enough"
gives 0 "$fiber" ps
says '^[0-9a-f]{8} +docker_prog +pool +kubernetes +running +2/2 '
uid=$(awk '/docker_prog/ { print $1 }' "$work/out")
gives 0 "$fiber" ps --all-backends
[[ $(grep -c kubernetes "$work/out") == 1 ]] || failed "its pods are those of a run that is listed"
gives 0 "$fiber" top "$uid" -c 1 --json
[[ $(jq -c '[.workers[] | select(.state == "running")] | length' "$work/out") == 2 ]] || failed "both workers should be shown"
in_space get pods -l fiber.io/run -o jsonpath='{.items[*].metadata.name}' >"$work/pods"
for pod in $(jq -r '.workers[].host' "$work/out"); do
    grep -qw "$pod" "$work/pods" || failed "$pod is not a pod"
done
worker=$(jq '.workers[0].worker' "$work/out")
gives 0 "$fiber" cp "$prog" "$uid/$worker:/tmp/there"
gives 0 "$fiber" cp "$uid/$worker:/tmp/there" "$work/back"
cmp "$prog" "$work/back" || failed "it is not as it was"
gives 0 "$fiber" scale "$uid" 3
working() { (($(in_space get pods -l fiber.io/run --field-selector status.phase=Running -o name | wc -l) == $1)); }
wait_for "three workers should run" working 3
gives 0 "$fiber" scale "$uid" 1
wait_for "one worker should be left" working 1
touch "$enough"
ends
gives 0 "$fiber" ps --all
says "^$uid +docker_prog +pool +kubernetes +exit 0 "
nothing_left
ok "ps, top, cp and scale of a pool of pods"

# --- a ring of pods: logs, kill of a rank, kill
begins 2 'of 2 on' "$fiber" run -n 2 -N 1 --name living --on-failure restart \
    sh -c 'trap "echo tick $FIBER_RANK" USR1; "$0" rank & while :; do wait; done' "$prog"
cat <&"$out" >/dev/null & # all the time
reader=$!
"$fiber" logs -f --tag living >"$work/logs" 2>&1 &
logs=$!
# It follows from the beginning.
ticks() { "$fiber" kill -s USR1 living && grep -qxF '[0] tick 0' "$work/logs" && grep -qxF '[1] tick 1' "$work/logs"; }
wait_for "logs should show what both ranks print at a signal" ticks
# A place without its registry knows it by its pods only.
mkdir -m 700 "$work/elsewhere"
elsewhere=(env XDG_RUNTIME_DIR="$work/elsewhere" FIBER_LOG_DIR="$work/elsewhere")
two() {
    "${elsewhere[@]}" "$fiber" ps -b kubernetes --json >"$work/out" &&
        [[ $(jq -c '.[] | [.jobs, .running]' "$work/out") == "[2,2]" ]]
}
wait_for "two jobs should be listed" two
gives 0 "${elsewhere[@]}" "$fiber" logs "$(jq -r '.[].uid' "$work/out")"
says 'the output of the ranks of a ring is at its master, .*: use .fiber logs. there$'
gives 0 "$fiber" kill living 1
is_whole() { "$fiber" ps --json | jq -e '.[0] | .restarts == 1 and .running == 2' >/dev/null; }
wait_for "the ring should be whole again" is_whole
gives 0 "$fiber" kill living
wait $reader $logs || failed "logs should end with the run"
exec {out}<&-
launcher=
nothing_left
ok "logs and kill of a ring of pods"

# --- a master in the cluster: what only it can be asked is said, and can be done so
# It runs as another user there, but what it starts is ours.
FIBER_KUBERNETES_USER=1000 begins 2 'of 2 on' "$fiber" run --in-cluster -n 2 -N 1 --name inner "$prog" rank
pod=$(in_space get pods -l fiber.io/role=master -o 'jsonpath={.items[0].metadata.name}')
both() {
    "$fiber" ps -b kubernetes --json >"$work/out" && uid=$(jq -er '.[] | select(.state == "elsewhere") | .uid' "$work/out") &&
        outer=$(jq -er '.[] | select(.state == "running") | .uid' "$work/out")
}
wait_for "the master and its ring should be listed" both # the cluster says later than the ranks that they run
for run in "$uid" "$outer"; do
    for verb in top scale stack; do
        [[ $verb != scale ]] && more=() || more=(3)
        gives 1 "$fiber" $verb "$run" "${more[@]}"
        says "only its master, .*, can do that.* kubectl exec -n $space $pod -- $fiber ps; .* kubectl exec -n $space $pod -- $fiber $verb$"
    done
    gives 1 "$fiber" cp "$run:/etc/hosts" "$work/hosts"
    says "only its master, .*, can do that.* kubectl exec -n $space $pod -- $fiber ps; .* $fiber cp$"
done
gives 0 "$bed" kubectl -n $space exec "$pod" -- "$fiber" ps
says '^[0-9a-f]{8} +inner +ring +kubernetes +running +2/2 '
gives 0 "$bed" kubectl -n $space exec "$pod" -- "$fiber" top inner -c 1
says '^ +1 running '
gives 0 "$bed" kubectl -n $space exec "$pod" -- "$fiber" cp inner/1:/etc/hosts /tmp/hosts
gives 0 "$fiber" logs "$outer"
says '^rank 1 of 2 on '
gives 0 "$fiber" kill -b kubernetes "$outer"
ends
nothing_left
ok "a master in the cluster is asked there, as it is said here"

# --- what runs left whose masters are dead, alive, or not here
begins 1 'waits in' "$prog" process wait
living=$(in_space get pods -l fiber.io/run -o 'jsonpath={.items[0].metadata.annotations.fiber\.io/master}')
user=$(in_space get pods -l fiber.io/run -o 'jsonpath={.items[0].metadata.labels.fiber\.io/user}')
gone=${living%.*}.1 there=elsewhere:1:0123456789abcdef.1
# leaves NAME RUN MASTER SCRIPT [FIELD]: a pod that nobody looks after
leaves() {
    in_space create -f - >/dev/null <<END
apiVersion: v1
kind: Pod
metadata:
  name: $1
  labels: {fiber.io/run: $2, fiber.io/job: $1, fiber.io/user: $user}
  annotations: {fiber.io/master: "$3"}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers: [{name: fiber, image: fiber-system:1, imagePullPolicy: Never, command: [/bin/sh, -c, "$4"]}]
  ${5:-}
END
}
leaves left-a aaaaaaaa0000000000000000000000aa "$gone" 'echo said; printf open'
leaves left-b aaaaaaaa0000000000000000000000aa "$gone" 'sleep 600'
leaves left-c bbbbbbbb0000000000000000000000bb "$living" 'sleep 600'
leaves left-d cccccccc0000000000000000000000cc $there 'echo last'
leaves left-e dddddddd0000000000000000000000dd $there 'sleep 600' 'nodeSelector: {no: node}'
for pod in left-a left-d; do
    in_space wait "pod/$pod" --for=jsonpath='{.status.phase}'=Succeeded --timeout=300s >/dev/null || failed "$pod should end"
done
in_space wait pod/left-b pod/left-c --for=jsonpath='{.status.phase}'=Running --timeout=300s >/dev/null || failed "they should run"
gives 0 "$fiber" ps --backend kubernetes
says '^aaaaaaaa +- +- +kubernetes +lost +1/2 .*gone: use fiber gc'
says '^cccccccc +- +- +kubernetes +elsewhere +0/1 '
says '^dddddddd +- +- +kubernetes +elsewhere +0/1 '
gives 0 "$fiber" gc --all --backend kubernetes dddd
gives 0 "$fiber" logs --tag aaaaaaaa left-a
[[ $(sort "$work/out") == "$(printf '[left-a] %s\n' open said)" ]] || failed "what it wrote"
gives 0 "$fiber" logs -f --backend kubernetes cccccccc
says '^last$'
gives 1 "$fiber" logs aaaaaaaa nobody
says 'has no job nobody; it has left-a, left-b$'
gives 1 "$fiber" kill -s USR1 aaaaaaaa
says 'only its master, .* can forward a signal'
gives 1 "$fiber" top aaaaaaaa
says 'only its master can do that, and the master is gone; use .fiber gc. to remove'
gives 1 "$fiber" cp aaaaaaaa:/x .
says 'and the master is gone'
gives 1 "$fiber" scale cccccccc 3
says 'is not on this host .elsewhere:1.: use .fiber ps. and .fiber scale. there'
gives 0 "$fiber" kill aaaaaaaa left-a
says '1 job removed$'
gives 0 "$fiber" gc --backend kubernetes --dry-run
says '^would remove kubernetes job left-b of run aaaaaaaa: its master is gone'
lacks 'removed|left-c'
gives 0 "$fiber" gc --backend kubernetes
says '^removed +kubernetes job left-b of run aaaaaaaa'
says '^kept +kubernetes job left-d of run cccccccc: its master is not on this host .elsewhere:1.$'
says '-> fiber gc --all cccccccc, or kubectl delete -n fiber-commands pod/left-d$'
lacks left-c
gives 0 "$fiber" gc --all --backend kubernetes cccc
says '^removed +kubernetes job left-d'
in_space get pod left-c >/dev/null || failed "a pod of a living master was removed"
kill -KILL "$launcher"
ends
gives 0 "$fiber" gc --backend kubernetes
says '^removed +kubernetes job left-c'
nothing_left
ok "ps, logs, kill and gc of what is left"
