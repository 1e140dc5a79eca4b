# ring_torch_test.sh - torch.distributed in a ring, with every torch that is here: groups, the start again,
# DistributedDataParallel against the same training in one process, and the launcher's store against torch's own.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2154
. "${TEST_SOURCE_DIR:?}/tests/system/ring_lib.sh"
. "$here/ring_pythons.sh"

mapfile -t pythons < <(pythons_with torch)
[ ${#pythons[@]} -gt 0 ] || skip 'no python3 has torch (Debian: python3-torch; or name one in TEST_PYTHON)'
check=$here/ring_python/torch_check.py
data=$TEST_SOURCE_DIR/examples/data/digits.csv.gz

patience=900 # torch comes up in seconds, each rank by itself; many times that on a busy machine

test_ranks_agree_and_train_after_a_restart() {
    for python in "${pythons[@]}"; do
        fiber_run 0 --oversubscribe -n 3 -x FAIL=1 --on-failure restart "$python" "$check" ring "$data" "$work/one" || return
        for r in 0 1 2; do says "group: rank $r of 3, restart 1" || return; done
        says 'ddp: 3 ranks have the same weights' || return
    done
}

# The weights of the test before are looked at here too: of one process all can be compared with.
test_ranks_of_two_agents_train_as_one_process_does() {
    for python in "${pythons[@]}"; do
        fiber_run 0 --oversubscribe -n 4 --per-node 2 "$python" "$check" ring "$data" "$work/two" || return
        for r in 0 1 2 3; do says "group: rank $r of 4, restart 0" || return; done
        says 'ddp: 4 ranks have the same weights' || return
        "$python" "$check" alone "$data" "$work/one" "$work/two" >"$work/out" 2>"$work/err" ||
            fail 'the ranks do not train as one process does' || return
        says 'alone: 2 rings trained as one process does' || return
    done
}

test_the_store_answers_as_torchs_own() {
    local kind
    for python in "${pythons[@]}"; do
        for ((kind = 0; ; kind++)); do
            fiber_run 0 -n 1 "$python" "$check" store "$kind" || return
            says "client $((kind + 1)) of " || return
            ! grep -qF "client $((kind + 1)) of $((kind + 1))," "$work/out" || break
        done
    done
}

test_a_program_can_choose_the_address_of_its_store() {
    for python in "${pythons[@]}"; do
        fiber_run 0 -n 1 -x TORCHELASTIC_USE_AGENT_STORE=False "$python" "$check" own || return
        says 'own: met' || return
    done
}

test_groups_of_all_ranks_may_follow_each_other() {
    for python in "${pythons[@]}"; do
        fiber_run 0 -n 2 "$python" "$check" again || return
        for r in 0 1; do says "again: rank $r of 2" || return; done
    done
}

run_tests test_ranks_agree_and_train_after_a_restart test_ranks_of_two_agents_train_as_one_process_does \
    test_the_store_answers_as_torchs_own test_a_program_can_choose_the_address_of_its_store \
    test_groups_of_all_ranks_may_follow_each_other
