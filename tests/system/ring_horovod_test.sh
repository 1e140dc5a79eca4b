# ring_horovod_test.sh - Horovod in a ring, on its controllers Gloo and MPI, with every Horovod that is here.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2154
. "${TEST_SOURCE_DIR:?}/tests/system/ring_lib.sh"
. "$here/ring_pythons.sh"

mapfile -t pythons < <(pythons_with horovod.torch)
[ ${#pythons[@]} -gt 0 ] || skip "no python3 has horovod.torch (docs/frameworks.md says how to build it; or name one in TEST_PYTHON)"
check=$here/ring_python/horovod_check.py

test_operations_agree_also_after_a_shutdown() {
    for python in "${pythons[@]}"; do
        for n in 1 2 3; do
            fiber_run 0 --oversubscribe -n "$n" "$python" "$check" ops || return
            says "ops: rank $((n - 1)) of $n, node rank 0 of 1" || return
        done
    done
}

test_operations_agree_over_two_agents() {
    for python in "${pythons[@]}"; do
        fiber_run 0 --oversubscribe -n 4 --per-node 2 "$python" "$check" ops || return
        says 'ops: rank 3 of 4, node rank 1 of 2' || return
        fiber_run 0 --oversubscribe -n 3 --per-node 2 "$python" "$check" ops || return # nodes of different sizes
        says 'ops: rank 1 of 3, node rank 0 of 1' || return
        says 'ops: rank 2 of 3, node rank 1 of 2' || return
    done
}

test_operations_agree_over_mpi() {
    for python in "${pythons[@]}"; do
        "$python" -c 'import sys; import horovod.torch as hvd; sys.exit(not hvd.mpi_built())' || continue
        for options in '-n 1' '-n 3' '-n 3 --per-node 2'; do
            # shellcheck disable=SC2086 # several words
            fiber_run 0 --oversubscribe $options -x HOROVOD_CONTROLLER=mpi -x HOROVOD_CPU_OPERATIONS=mpi \
                "$python" "$check" mpi || return
            says "mpi: rank 0 of ${options:3:1}, node rank 0" || return
        done
    done
}

test_an_elastic_function_starts_again() {
    for python in "${pythons[@]}"; do
        fiber_run 0 --oversubscribe -n 3 --on-failure restart "$python" "$check" elastic || return
        for r in 0 1 2; do says "elastic: rank $r of 3, restart 1" || return; done
    done
}

run_tests test_operations_agree_also_after_a_shutdown test_operations_agree_over_two_agents \
    test_operations_agree_over_mpi test_an_elastic_function_starts_again
