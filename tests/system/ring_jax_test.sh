# ring_jax_test.sh - jax.distributed in a ring, with every JAX that is here.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2154
. "${TEST_SOURCE_DIR:?}/tests/system/ring_lib.sh"
. "$here/ring_pythons.sh"

mapfile -t pythons < <(pythons_with jax)
[ ${#pythons[@]} -gt 0 ] || skip 'no python3 has jax (pip install jax; or name one in TEST_PYTHON)'
check=$here/ring_python/jax_check.py

test_processes_meet_when_told_what_the_environment_says() {
    for python in "${pythons[@]}"; do
        for n in 1 3; do
            fiber_run 0 --oversubscribe -n "$n" "$python" "$check" given || return
            says "jax: process $((n - 1)) of $n, $n devices" || return
        done
        fiber_run 0 --oversubscribe -n 4 --per-node 2 "$python" "$check" given || return
        says 'jax: process 3 of 4, 4 devices'
    done
}

test_processes_find_out_as_under_mpirun() {
    for python in "${pythons[@]}"; do
        fiber_run 0 --oversubscribe -n 2 --mca orte_hnp_uri 0 "$python" "$check" found || return
        says 'jax: process 1 of 2, 2 devices' || return
        fiber_run 0 --oversubscribe -n 2 --per-node 1 --mca orte_hnp_uri 0 "$python" "$check" found || return
        says 'jax: process 1 of 2, 2 devices'
    done
}

run_tests test_processes_meet_when_told_what_the_environment_says test_processes_find_out_as_under_mpirun
