# kubernetes.sh - what the tests on the cluster of the bed share; they source it, after `space`, the namespace they are in, is
# set and `clean` says what to put right at the end.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source=tests/engines/engines.sh disable=SC2034,SC2154
engine=kubernetes
. "$(dirname "$0")/engines.sh"

"$bed" image fiber-system:1 "$prog" "$fiber" "$TEST_BINARY_DIR/fiber" /bin/sh /bin/sleep >/dev/null
export FIBER_BACKEND=kubernetes FIBER_GRACE=1s FIBER_START_TIMEOUT=300s
export FIBER_IMAGE=fiber-system:1 FIBER_KUBERNETES_PULL_POLICY=Never

in_space() { "$bed" kubectl -n "$space" "$@"; }
# empty: no object of a run is there
empty() {
    local list
    list=$(in_space get jobs,pods,secrets,configmaps -l fiber.io/run -o name) && [[ ! $list ]]
}
nothing_left() {
    (wait_for "nothing should be left" empty) || { in_space get pods,secrets,configmaps -l fiber.io/run -o wide >&2; exit 1; }
}

# manifest NAMESPACE [ARGUMENT...]: what lets masters start pods there, and us masters
manifest() {
    "$fiber" kubernetes manifest -N "$@" | sed '/kind: User/a\  - {kind: ServiceAccount, name: fiber, namespace: fiber}'
}
# may_begin: the manifest holds
may_begin() {
    "$bed" kubectl auth can-i create pods -n "$space" --as system:serviceaccount:fiber:fiber >/dev/null &&
        in_space get serviceaccount default >/dev/null 2>&1
}
