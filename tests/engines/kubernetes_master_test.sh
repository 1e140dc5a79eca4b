# kubernetes_master_test.sh - masters that are started in the cluster from here: `fiber run --in-cluster` and `fiber kubernetes
# run`. Their output, exit codes and interrupts; what is said when something is missing there; that nothing is left.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source=tests/engines/kubernetes.sh disable=SC2016
space="fiber-master"
clean() { "$bed" kubectl delete namespace $space --ignore-not-found --wait=false >/dev/null 2>&1 || :; }
. "$(dirname "$0")/kubernetes.sh"
unset FIBER_BACKEND # they say it themselves
export FIBER_KUBERNETES_NAMESPACE=$space
"$bed" image fiber-none:1 "$prog" /bin/sh >/dev/null

# A namespace with what the manifest has; our own account may start masters there.
"$bed" kubectl delete namespace $space --ignore-not-found >/dev/null # of a run before, which may be going yet
"$bed" kubectl create namespace $space >/dev/null
"$bed" kubectl label namespace $space pod-security.kubernetes.io/enforce=baseline >/dev/null
manifest $space | "$bed" kubectl apply -f - >/dev/null
wait_for "its Role should hold" may_begin

# --- rings and masters
gives 3 "$fiber" run --in-cluster -n 4 -N 2 -x A=b sh -c 'echo "rank $FIBER_RANK of $FIBER_SIZE, $A"; [ "$FIBER_RANK" != 2 ] || exit 3'
says '^rank 2 of 4, b$'
says 'the master is pod fiber-[0-9a-f]*-master-0-[a-z0-9]*$'
gives 0 "$fiber" run -q --in-cluster -n 2 sh -c 'echo "rank $FIBER_RANK"'
[[ $(sort "$work/out") == "$(printf 'rank 0\nrank 1')" ]] || failed "it should say what its ranks do, and no more"
nothing_left
ok "a ring whose master is in the cluster"
# Pods start in another folder than this one.
cd "$(dirname "$fiber")"
for how in '-b kubernetes' '--in-cluster'; do
    # shellcheck disable=SC2086
    gives 0 "$fiber" run -q $how -n 2 ./fiber version
    [[ $(grep -c '^fiber ' "$work/out") == 2 ]] || failed "both ranks should say their version"
done
gives 0 "$fiber" kubernetes run -q -- ./fiber version
says '^fiber '
gives 125 "$fiber" run -b kubernetes -n 2 ./no-such-program
says 'there is no such file in the working directory /; use --workdir DIR'
gives 125 "$fiber" run -b kubernetes --workdir /tmp -n 2 ./fiber
says 'there is no such file in the working directory /tmp; use --workdir DIR'
cd - >/dev/null
ok "a program of this folder"
# A template that is longer than a setting may be: it goes along as a file.
printf 'metadata: {labels: {team: red}, annotations: {long: "%05000d"}}\n' 0 >"$work/template"
A='$(HOME) $x' FIBER_KUBERNETES_POD_TEMPLATE=$work/template gives 0 "$fiber" kubernetes run -x A -- "$prog" pool 2 40 20
says '^right 40 of 40$'
FIBER_KUBERNETES_POD_TEMPLATE=$work/template gives 0 "$fiber" kubernetes run -q -- \
    sh -c 'read -r x <"$FIBER_KUBERNETES_POD_TEMPLATE"; echo "${#x} characters"'
says '^5[0-9]{3} characters$'
gives 5 "$fiber" kubernetes run -N $space -i fiber-system:1 -- sh -c 'echo "$A"; exit 5'
gives 137 "$fiber" kubernetes run -q -- sh -c 'kill -KILL $$'
nothing_left
ok "a program that is a master"
A='$(HOME) $x' gives 0 "$fiber" kubernetes run -q -x A -x B=1=2 -- sh -c 'echo "$A $B"'
[[ $(cat "$work/out") == '$(HOME) $x 1=2' ]] || failed "its variables"
ok "variables as they are"

# --- what is missing
gives 125 env FIBER_KUBERNETES_MASTER_ACCOUNT=nobody "$fiber" run --in-cluster -n 2 "$prog" rank
says "serviceaccount \"nobody\" not found; .fiber kubernetes manifest -N $space \| kubectl apply"
gives 125 env FIBER_KUBERNETES_MASTER_ACCOUNT=fiber-worker FIBER_KUBERNETES_SERVICE_ACCOUNT=fiber-worker \
    "$fiber" run --in-cluster -n 2 "$prog" rank
says 'cannot list resource "pods"; .fiber kubernetes manifest. prints the Role'
in_space get role fiber -o json | jq '.rules |= map(select(.apiGroups != ["batch"]))' |
    "$bed" kubectl apply -f - >/dev/null 2>&1
gives 125 "$fiber" run --in-cluster -n 2 "$prog" rank
says 'its Job cannot be created: .*cannot create resource "jobs"; .fiber kubernetes manifest. prints the Role'
manifest $space | "$bed" kubectl apply -f - >/dev/null
gives 125 env FIBER_IMAGE= "$fiber" run --in-cluster -n 2 "$prog" rank
says 'no image is set'
gives 125 "$fiber" run --in-cluster --image no-such-image:1 -n 2 "$prog" rank
says "image 'no-such-image:1' is not on the node"
gives 127 "$fiber" run --in-cluster --image fiber-none:1 -n 2 "$prog" rank
says 'the image fiber-none:1 must have the command fiber'
gives 127 "$fiber" run --in-cluster -n 2 sh -c 'no-such-program'
says 'programs and files come from the image fiber-system:1'
! grep 'must have the command fiber' "$work/out" || failed "its launcher has run"
gives 125 "$fiber" run --in-cluster -n 2 /no/such/program
says 'cannot start /no/such/program'
says 'programs and files come from the image fiber-system:1'
gives 127 "$fiber" kubernetes run -- /no/such/program
says 'programs and files come from the image fiber-system:1'
gives 2 "$fiber" run --in-cluster -b docker -n 2 "$prog" rank
says 'in-cluster is for --backend kubernetes, not docker'
nothing_left
ok "what is missing is told"

# --- an image without Fiber, into which another brings it
"$bed" image fiber-agent:1 "$fiber" "$TEST_BINARY_DIR/fiber" >/dev/null
gives 0 env FIBER_KUBERNETES_AGENT_IMAGE=fiber-agent:1 "$fiber" run -q --in-cluster --image fiber-none:1 -n 2 -N 1 \
    sh -c 'echo "rank $FIBER_RANK"'
[[ $(sort "$work/out") == "$(printf 'rank 0\nrank 1')" ]] || failed "both ranks"
# What only that master can be asked is done there by the line that is printed here.
begins 2 'rank ' env FIBER_KUBERNETES_AGENT_IMAGE=fiber-agent:1 "$fiber" run --in-cluster --image fiber-none:1 -n 2 -N 1 \
    --name inner "$prog" rank
runs() { uid=$("$fiber" ps -b kubernetes --json | jq -er '.[] | select(.state == "running") | .uid'); }
wait_for "the cluster should say that it runs" runs # later than its ranks do
gives 1 "$fiber" top "$uid"
says 'kubectl exec'
read -ra there <<<"$(sed -nE 's/.*: (kubectl exec .*) top$/\1/p' "$work/out")"
gives 0 "$bed" "${there[@]}" ps
says '^[0-9a-f]{8} +inner +ring +kubernetes +running +2/2 '
gives 0 "$bed" "${there[@]}" top inner -c 1
says '^ +1 running '
kill -TERM "$launcher"
ends
nothing_left
ok "an image without Fiber"

# --- interrupts: the ranks hear of it, and nothing is left
begins 2 'rank ' "$fiber" run --in-cluster -n 2 -N 1 "$prog" rank
kill -INT "$launcher"
ends
nothing_left
ok "an interrupt ends all of it"
begins 2 'rank ' "$fiber" run --in-cluster -n 2 -N 1 sh -c 'trap "" TERM; echo "rank $FIBER_RANK"; while :; do read -r x </dev/zero; done'
kill -INT "$launcher"
kill -INT "$launcher"
ends
nothing_left
ok "two interrupts kill"

# --- a reader that takes nothing does not delay a stop
begins 1 'line 0,' "$fiber" kubernetes run -q -- \
    sh -c 'i=0; while [ $i -lt 5000 ]; do echo "line $i, of which the pipe to the reader has no room for all"; i=$((i + 1)); done'
written() { [[ $(in_space get pods -l fiber.io/role=master -o 'jsonpath={.items[*].status.phase}') == Succeeded ]]; }
wait_for "the master should have written all" written
kill -TERM "$launcher"
timeout 60 tail --pid="$launcher" -f /dev/null || { kill -KILL "$launcher"; failed "it should end"; }
ends
nothing_left
ok "a reader that takes nothing does not delay a stop"

# --- the master's pod, or the launcher, is no longer there
begins 2 'rank ' "$fiber" run --in-cluster -n 2 -N 1 "$prog" rank
in_space delete pod --wait=false -l fiber.io/role=master >/dev/null
ends
says 'the master fiber-.*: .*deleted by somebody else'
nothing_left
ok "a master's pod that is deleted takes all with it"
begins 2 'rank ' "$fiber" run --in-cluster -n 2 -N 1 "$prog" rank
[[ $(in_space get jobs -o 'jsonpath={.items[*].spec.ttlSecondsAfterFinished} {.items[*].spec.backoffLimit}') == "3600 0" ]] ||
    failed "its Job should go by itself, and not try again"
in_space delete job --wait=false -l fiber.io/role=master >/dev/null
ends
says 'the master fiber-.*: .*deleted by somebody else'
nothing_left
ok "a master's Job that is deleted takes all with it"
begins 2 'rank ' "$fiber" run --in-cluster -n 2 -N 1 "$prog" rank
kill -KILL "$launcher"
ends
[[ -n $(in_space get pods -l fiber.io/role=master --field-selector status.phase=Running -o name) ]] ||
    failed "the master should go on without us"
"$fiber" gc -b kubernetes >"$work/out" 2>&1 || failed "fiber gc"
nothing_left
ok "a master goes on without its launcher, until fiber gc ends it"
