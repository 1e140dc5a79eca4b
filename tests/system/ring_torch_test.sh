# ring_torch_test.sh - torch.distributed in a ring, with every torch that is here: groups, DistributedDataParallel against
# the same training in one process, the launcher's store against torch's own, and the start again.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2154
. "${TEST_SOURCE_DIR:?}/tests/system/ring_lib.sh"
. "$here/ring_pythons.sh"

mapfile -t pythons < <(pythons_with torch)
[ ${#pythons[@]} -gt 0 ] || skip 'no python3 has torch (Debian: python3-torch; or name one in TEST_PYTHON)'
check=$here/ring_python/torch_check.py
data=$TEST_SOURCE_DIR/examples/data/digits.csv.gz

test_groups_agree_on_one_host() {
    for python in "${pythons[@]}"; do
        fiber_run 0 --oversubscribe -n 3 "$python" "$check" group || return
        for r in 0 1 2; do says "group: rank $r of 3, restart 0" || return; done
    done
}

test_groups_agree_over_two_agents() {
    for python in "${pythons[@]}"; do
        fiber_run 0 --oversubscribe -n 4 --per-node 2 "$python" "$check" group || return
        for r in 0 1 2 3; do says "group: rank $r of 4, restart 0" || return; done
    done
}

test_ranks_train_as_one_process_does() {
    for python in "${pythons[@]}"; do
        fiber_run 0 --oversubscribe -n 3 "$python" "$check" ddp "$data" "$work/one" || return
        says 'ddp: 3 ranks have the same weights' || return
        fiber_run 0 --oversubscribe -n 4 --per-node 2 "$python" "$check" ddp "$data" "$work/two" || return
        says 'ddp: 4 ranks have the same weights' || return
        "$python" "$check" alone "$data" "$work/one" "$work/two" >"$work/out" 2>"$work/err" ||
            fail 'the ranks do not train as one process does' || return
        says 'alone: 2 rings trained as one process does' || return
    done
}

test_the_store_answers_as_torchs_own() {
    local clients kind
    for python in "${pythons[@]}"; do
        clients=$("$python" "$check" clients) || fail 'this torch does not say what clients it has' || return
        for kind in $clients; do
            fiber_run 0 -n 1 "$python" "$check" store "$kind" || return
            says 'store: ' || return
        done
    done
}

test_all_start_again_with_a_fresh_store() {
    for python in "${pythons[@]}"; do
        fiber_run 0 --oversubscribe -n 3 -x FAIL=1 --on-failure restart "$python" "$check" group || return
        for r in 0 1 2; do says "group: rank $r of 3, restart 1" || return; done
    done
}

run_tests test_groups_agree_on_one_host test_groups_agree_over_two_agents test_ranks_train_as_one_process_does \
    test_the_store_answers_as_torchs_own test_all_start_again_with_a_fresh_store
