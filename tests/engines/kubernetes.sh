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
export XDG_RUNTIME_DIR=$work/run # tests that run at the same time do not see each other's runs
mkdir -m 700 "$work/run"

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

pods() { in_space get pods -l fiber.io/run --field-selector status.phase=Running -o name | cut -d/ -f2; }
has_two() { (($(pods | wc -l) >= 2)); }
# maps: a pool of two that maps until `finish`. Its pods say that they run before the cluster says so.
maps() {
    rm -f "$work/go"
    begins 1 begun "$prog" pool 2 200 20 "$work/go" 0
    wait_for "both workers should run" has_two
}
finish() {
    touch "$work/go"
    ends
    says '^right 200 of 200$'
    says '^deaths 0$'
}

# The image of the ranks that add up by MPI.
mpi=
if command -v mpicc.openmpi >/dev/null && [[ -e $TEST_BINARY_DIR/fiber/pmix.so ]]; then mpi=$work/adds; fi
image_of_mpi() {
    [[ $mpi ]] || return 0
    mpicc.openmpi -o "$mpi" "$TEST_SOURCE_DIR/tests/engines/kubernetes_mpi.c"
    "$fiber" image export fiber-mpi:1 "$mpi" -q -o "$mpi.tar"
    "$bed" import fiber-mpi:1 "$mpi.tar" >/dev/null
    rm "$mpi.tar"
}
