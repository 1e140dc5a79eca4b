# kubernetes_spaces_test.sh - namespaces that do not take everything: quotas, limits, policies, webhooks, Pod Security at its
# strictest; what a run has in them while it goes on and when it ends; who chooses the backend in a pod.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source=tests/engines/kubernetes.sh disable=SC2016
space="fiber-spaces"
refusing=validatingwebhookconfiguration,validatingadmissionpolicybinding,validatingadmissionpolicy
refuse_no_more() { "$bed" kubectl delete "$refusing" $space --ignore-not-found >/dev/null 2>&1; }
clean() {
    refuse_no_more || :
    "$bed" kubectl delete namespace $space --ignore-not-found --wait=false >/dev/null 2>&1 || :
}
. "$(dirname "$0")/kubernetes.sh"
export FIBER_KUBERNETES_NAMESPACE=$space
"$bed" kubectl delete namespace $space --ignore-not-found >/dev/null # of a run before, which may be going yet
"$bed" kubectl create namespace $space >/dev/null
manifest $space | "$bed" kubectl apply -f - >/dev/null
wait_for "its Role should hold" may_begin

# --- a quota: what is refused says why, and comes when there is room. Ring pods say which node of the ring they are
quota() { in_space create quota few --hard="${2-pods}=$1" --dry-run=client -o yaml | in_space apply -f - >/dev/null 2>&1; }
counts() { [[ $(in_space get quota few -o "jsonpath={.status.hard.${2-pods}}") == "$1" ]]; }
quota 1
wait_for "the quota should be counted" counts 1
begins 1 'exceeded quota: few' "$fiber" run -n 2 -N 1 "$prog" rank
says 'pending: its pod cannot be created: .*exceeded quota: few.*limited: pods=1'
quota 2
more 2 'of 2 on'
[[ $(in_space get pods -l fiber.io/run -L fiber.io/index --no-headers | awk '{ print $NF }' | sort | xargs) == "0 1" ]] ||
    failed "its pods should be numbered"
kill -TERM "$launcher"
ends
nothing_left
ok "a quota delays a ring, and says so; its pods are numbered"

# The same of Secrets; and that one may give it up.
quota 0 secrets
wait_for "the quota should be counted" counts 0 secrets
begins 1 'exceeded quota: few' "$fiber" run -n 2 -N 1 "$prog" rank
says 'pending: its ticket cannot be handed over .*exceeded quota: few, requested: secrets=1'
quota 2 secrets
more 2 'of 2 on'
kill -TERM "$launcher"
ends
nothing_left
quota 0 secrets
wait_for "the quota should be counted" counts 0 secrets
FIBER_KUBERNETES_PENDING_TIMEOUT=2s does 300 "$prog" process hello
says '^code 125: .*its ticket cannot be handed over .*exceeded quota: few.*given up after kubernetes_pending_timeout'
quota 0
wait_for "the quota should be counted" counts 0
FIBER_KUBERNETES_PENDING_TIMEOUT=2s does 300 "$prog" process hello
says '^code 125: .*its pod cannot be created: .*exceeded quota: few.*given up after kubernetes_pending_timeout'
nothing_left
ok "a quota of Secrets delays it, too; who does not want to wait need not"

# --- limits and a policy refuse for good; a webhook that is away refuses for now
rules="[{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]"
here="namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $space}}"
tried() { ! in_space run tried --image fiber-system:1 --dry-run=server >"$work/tried" 2>&1 && grep -q "$1" "$work/tried"; }
in_space delete quota few >/dev/null
in_space apply -f - >/dev/null <<<"{apiVersion: v1, kind: LimitRange, metadata: {name: few}, spec: {limits: [{type: Container, max: {cpu: 100m}}]}}"
does 300 "$prog" process -c 1 hello
says '^code 125: .*its pod cannot be created: .*maximum cpu usage per Container is 100m'
in_space delete limitrange few >/dev/null
"$bed" kubectl apply -f - >/dev/null <<END
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: $space}
spec:
  matchConstraints: {$here, resourceRules: $rules}
  validations: [{expression: 'false', message: not on a Sunday}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: $space}
spec: {policyName: $space, validationActions: [Deny]}
END
wait_for "the policy should hold" tried 'not on a Sunday'
does 300 "$prog" process hello
says '^code 125: .*its pod cannot be created: .*not on a Sunday'
refuse_no_more
"$bed" kubectl apply -f - >/dev/null <<END
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: $space}
webhooks:
- name: away.fiber.test
  clientConfig: {url: 'https://127.0.0.1:1/'}
  sideEffects: None
  admissionReviewVersions: [v1]
  $here
  rules: $rules
END
wait_for "the webhook should be called" tried 'failed calling webhook'
begins 1 'failed calling webhook' "$fiber" run -n 2 -N 1 "$prog" rank
says 'pending: the API server .* has not accepted it yet: .*failed calling webhook'
refuse_no_more
more 2 'of 2 on'
kill -TERM "$launcher"
ends
nothing_left
ok "limits, a policy, and a webhook that is away are told"

# --- a master that is killed before its first pod: it has left a ConfigMap and a Secret, and nobody may list Secrets
owners() { in_space get configmaps -l fiber.io/run -o name; }
secrets() { in_space get secrets -l fiber.io/run -o name; }
orphan() {
    begins 1 'exceeded quota: few' "$fiber" run -n 2 -N 1 "$prog" rank
    kill -KILL "$launcher"
    ends
    [[ $(owners) == configmap/fiber-* && $(secrets) == secret/fiber-* ]] || failed "its ConfigMap and Secret should be left"
}
quota 0
wait_for "the quota should be counted" counts 0
orphan
left=$(owners)
left=${left:0:24} # as it is shown
gives 0 "$fiber" gc --backend kubernetes --dry-run
says "^would remove kubernetes job $left of run .*: its master is gone"
gives 0 "$fiber" gc --backend kubernetes
says "^removed +kubernetes job $left of run"
[[ ! $(owners) ]] || failed "gc should remove it"
is_all_gone() { [[ ! $(secrets) ]]; }
wait_for "the cluster should remove the Secret" is_all_gone
gives 0 "$fiber" gc --backend kubernetes
says '^nothing to remove'
ok "gc removes the objects of a master that died before its first pod"
orphan
in_space delete quota few >/dev/null
is_no_quota() { [[ ! $(in_space get quota -o name) ]]; }
wait_for "the quota should go" is_no_quota
does 300 "$prog" process hello
says '^code 0: '
nothing_left
ok "the next run removes it"

# --- in a pod with an account the backend is Kubernetes, in one without it is not; and one may always say otherwise
# asks NAME TOKEN [VARIABLE VALUE [ACCOUNT]]: a pod that runs a ring of two nodes; its host has another name than it has
asks() {
    in_space create -f - >/dev/null <<END
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  restartPolicy: Never
  serviceAccountName: ${5-fiber}
  hostname: $1-host
  automountServiceAccountToken: $2
  containers:
  - name: main
    image: fiber-system:1
    imagePullPolicy: Never
    env: [{name: ${3-NOTHING}, value: "${4-}"}]
    command: [$fiber, run, -q, -n, "2", -N, "1", sh, -c, 'read -r host </etc/hostname; echo "a rank on \$host"']
END
}
asks chosen true
asks local true FIBER_BACKEND local
asks without false
asks powerless true NOTHING '' default
for pod in chosen local without; do
    in_space wait pod/$pod --for=jsonpath='{.status.phase}'=Succeeded --timeout=300s >"$work/out" 2>&1 ||
        { in_space logs $pod >>"$work/out" 2>&1 || :; failed "$pod should end well"; }
    in_space logs $pod >"$work/out"
    where=$pod-host
    [[ $pod != chosen ]] || where='fiber-[0-9a-f]+-agent-[12]'
    [[ $(grep -cE "^a rank on $where$" "$work/out") == 2 ]] || failed "both ranks should be on $where"
done
in_space wait pod/powerless --for=jsonpath='{.status.phase}'=Failed --timeout=300s >"$work/out" 2>&1 || failed "it may not"
in_space logs powerless >"$work/out"
says 'pods is forbidden: .* and with FIBER_BACKEND=local jobs start in this pod'
in_space delete pod chosen local without powerless --wait=false >/dev/null
nothing_left
ok "in a pod the backend is chosen by itself, unless it is said"

# --- gang_timeout is for places: a pod that has its node, and is not ready there, is waited for
mkdir "$work/gate"
mkfifo "$work/gate/open"
cat >"$work/template" <<END
spec:
  volumes: [{name: gate, hostPath: {path: $work/gate}}]
  initContainers:
  - name: gate
    image: fiber-system:1
    imagePullPolicy: Never
    env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts: [{name: gate, mountPath: /gate}]
    command: [/bin/sh, -c, 'case \$NAME in *-agent-2) read -r x </gate/open;; esac']
END
FIBER_KUBERNETES_POD_TEMPLATE=$work/template FIBER_GANG_TIMEOUT=5s FIBER_LOG_LEVEL=info \
    begins 1 'gang_timeout has expired, and all nodes have their places' "$fiber" run -n 2 -N 1 "$prog" rank
! grep -q 'of 2 on' "$work/out" || failed "no rank should have begun"
timeout 300 sh -c 'echo >"$0"' "$work/gate/open" || failed "nobody waits at the gate"
more 2 'of 2 on'
kill -TERM "$launcher"
ends
nothing_left
ok "gang_timeout does not count what is set up on its node"

# --- what would be made of a master in the cluster
gives 0 "$fiber" run --in-cluster --dry-run=server -n 4 -N 2 "$prog" rank
for kind in '"Pod"' '"Job"' ServiceAccount Role RoleBinding; do says "^kind: $kind$"; done
[[ $(grep -c '^# pod: the server would accept it' "$work/out") == 2 ]] || failed "it should take the master's pod, too"
FIBER_KUBERNETES_MASTER_ACCOUNT=nobody gives 125 "$fiber" run --in-cluster --dry-run=server -n 4 -N 2 "$prog" rank
says 'pod: refused by the server: .*serviceaccount "nobody" not found'
gives 0 "$fiber" run --in-cluster --dry-run --json -n 4 -N 2 "$prog" rank
[[ $(jq -r '.manifest.kind, .master.kind' "$work/out" | xargs) == "Pod Job" ]] || failed "the same as JSON"
nothing_left
ok "a dry run shows the master, and what it needs"

# --- pods that have ended: the last 16 at most stay while their run goes on, and each has ended well
begins 1 '24 ended well' "$prog" many 24 "$work/fifo"
are_kept() {
    local phases
    phases=$(in_space get pods -l fiber.io/run --no-headers -o custom-columns=p:.status.phase | sort | uniq -c | xargs)
    [[ $phases =~ ^([0-9]+)\ Succeeded$ ]] && ((BASH_REMATCH[1] <= 16))
}
(wait_for "at most 16 pods should stay, all of them Succeeded" are_kept) || { in_space get pods; exit 1; }
timeout 300 sh -c ': >"$0"' "$work/fifo" || failed "it has ended"
ends
nothing_left
ok "pods that have ended do not pile up"

# --- Pod Security at its strictest
"$bed" kubectl label namespace $space pod-security.kubernetes.io/enforce=restricted >/dev/null
does 300 "$prog" process hello
says '^code 125: .*violates PodSecurity "restricted:.*runAsNonRoot.*; kubernetes_user sets a user id'
gives 1 "$fiber" doctor --backend kubernetes
says '^bad +kubernetes pod +refused by the server: .*; kubernetes_user sets a user id'
export FIBER_KUBERNETES_USER=1000
gives 0 "$prog" pool 2 40 20
says '^right 40 of 40$'
gives 0 "$fiber" run -n 4 -N 2 sh -c 'echo "rank $FIBER_RANK"'
says '^rank 3$'
gives 0 "$fiber" run --in-cluster -n 2 sh -c 'echo "rank $FIBER_RANK"'
says '^rank 1$'
gives 0 "$fiber" doctor --backend kubernetes
"$bed" image fiber-none:1 "$prog" /bin/sh >/dev/null
"$bed" image fiber-agent:1 "$fiber" "$TEST_BINARY_DIR/fiber" >/dev/null
gives 0 env FIBER_KUBERNETES_AGENT_IMAGE=fiber-agent:1 "$fiber" run --in-cluster --image fiber-none:1 -n 2 -N 1 \
    sh -c 'echo "rank $FIBER_RANK"'
says '^rank 1$'
gives 0 "$fiber" kubernetes run -- "$prog" pool 2 40 20
says '^right 40 of 40$'
manifest $space -i fiber-system:1 -- "$prog" pool 2 40 20 | "$bed" kubectl apply -f - >"$work/out" 2>&1
in_space wait --for=condition=complete --timeout=300s job/fiber-master >>"$work/out" 2>&1 || failed "the manifest's Job should end well"
in_space logs job/fiber-master >"$work/out"
says '^right 40 of 40$'
nothing_left
ok "Pod Security restricted: what is missing is said, and with it pods are admitted"
