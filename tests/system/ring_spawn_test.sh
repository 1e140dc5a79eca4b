# ring_spawn_test.sh - ranks that start others: what cannot be started is told to who asked for it, who goes on; however many
# are started, by any rank, while anything dies, the run ends and nothing of it stays; and no rank waits for one that is lost.
# The ranks are bash and speak PMI-1 on descriptor 3 themselves, so no MPI is needed.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2154,SC2016,SC2317
. "${TEST_SOURCE_DIR:?}/tests/system/ring_lib.sh"

# For the ranks: spawn TEXT... asks for these programs, of which each is "COUNT NAME [ARGUMENT]"; `answer` gets what is said.
export SPAWN_LIB=$work/lib
cat >"$SPAWN_LIB" <<'END'
spawn() {
    local i=0 count name arg
    for program; do
        read -r count name arg <<<"$program"
        i=$((i + 1))
        printf "mcmd=spawn\nnprocs=%s\nexecname=%s\ntotspawns=%s\nspawnssofar=%s\n" "$count" "$name" $# $i
        [ -z "$arg" ] || printf "arg1=-c\narg2=%s\n" "$arg"
        printf "argcnt=0\npreput_num=0\ninfo_num=0\nendcmd\n"
    done >&3
    read -r answer <&3
    answer=${answer#cmd=spawn_result }
}
barrier() {
    echo cmd=barrier_in >&3
    read -r answer <&3
}
finalize() {
    echo cmd=finalize >&3
    read -r answer <&3
}
END

test_spawned_ranks_run_and_are_waited_for() {
    fiber_run 0 -n 2 --oversubscribe bash -c '. "$SPAWN_LIB"
        [ "$PMI_RANK" = 1 ] || spawn "2 bash echo child \$PMI_RANK of \$PMI_SIZE" "1 bash echo other \$PMI_RANK"
        barrier
        finalize
        echo "rank $PMI_RANK" "$answer"' || return
    says 'child 0 of 3' || return
    says 'child 1 of 3' || return
    says 'other 2' || return
    says 'rank 0 cmd=finalize_ack rc=0'
}

test_what_cannot_be_started_is_told_to_who_asked_for_it() {
    local programs
    for programs in '"2 ./no-such-program"' '"2 ./no-such-program" "3 bash tail -f /dev/null"' \
        '"3 bash tail -f /dev/null" "2 ./no-such-program"' '"1 bash exit 7" "1 ./no-such-program" "4 bash exit 8"'; do
        for where in --oversubscribe --per-node=1; do
            fiber_run 0 -n 2 --oversubscribe "$where" bash -c '. "$SPAWN_LIB"
                if [ "$PMI_RANK" = 0 ]; then spawn '"$programs"'; echo "asked: $answer"; fi
                barrier
                [ "$PMI_RANK" = 1 ] || spawn "1 bash echo it goes on"
                finalize' || return
            says 'asked: rc=-1' || return
            says 'could not be started: cannot start ./no-such-program' || return
            says 'it goes on' || return
        done
    done
}

# Each rank starts another one, which starts another one.
test_a_storm_of_spawns() {
    fiber_run 0 -n 4 --oversubscribe --per-node 2 bash -c '. "$SPAWN_LIB"
        for i in 1 2 3 4 5; do
            spawn "2 bash . \$SPAWN_LIB; [ \$PMI_RANK = 1 ] || spawn \"1 bash echo grandchild\"; finalize"
            [ "$answer" = rc=0 ] || echo "failed: $answer"
        done
        finalize' || return
    [ "$(grep -c '^grandchild$' "$work/out")" = 20 ] || fail 'not all of them ran' || return
    ! grep -a failed "$work/out" || fail 'a spawn has failed'
}

test_an_abort_while_others_spawn_ends_the_run() {
    fiber_run 7 -n 4 --oversubscribe --grace 300s bash -c '. "$SPAWN_LIB"
        if [ "$PMI_RANK" = 3 ]; then
            spawn "1 bash true"
            echo cmd=abort exitcode=7 >&3
        fi
        while [ "$PMI_RANK" != 3 ]; do spawn "1 bash true"; done
        tail -f /dev/null' || return
    says 'called abort with code 7'
}

test_spawned_ranks_that_die_end_the_run() {
    fiber_run 9 -n 2 --oversubscribe --grace 300s bash -c '. "$SPAWN_LIB"
        [ "$PMI_RANK" = 1 ] || spawn "2 bash [ \$PMI_RANK = 0 ] || exit 9; exec tail -f /dev/null"
        barrier
        exec tail -f /dev/null' || return
    says 'exited with code 9'
}

test_who_waits_for_a_rank_that_is_lost_is_told() { # over one agent and two
    for where in --oversubscribe --per-node=2; do
        fiber_run 0 -n 4 --oversubscribe "$where" --on-failure shrink bash -c '. "$SPAWN_LIB"
            [ "$PMI_RANK" != 1 ] || exit 5
            barrier
            echo "told: $answer"
            finalize' || return
        [ "$(grep -c '^told: cmd=barrier_out rc=-1' "$work/out")" = 3 ] || fail 'not all were told' || return
    done
}

test_only_ranks_of_its_job_go_on_without_a_lost_one() {
    rm -f "$work/go"
    start -n 2 --oversubscribe --on-failure shrink bash -c '. "$SPAWN_LIB"
        wait="exec 7<> <(:); until [ -e \$RING_TEST_MARK/go ]; do read -rt 0.1 -u 7 || :; done"
        [ "$PMI_RANK" = 1 ] || spawn "2 bash $wait"
        barrier
        [ "$PMI_RANK" = 0 ] || exit 5
        eval "$wait"
        finalize'
    is_lost() { grep -q 'exited with code 5' "$work/err" || gone "$launcher"; }
    wait_for "$patience" is_lost || fail 'no rank is lost' || return
    touch "$work/go"
    ends 0 || return
    says '; the others go on (1 of 2)' || return
    leaves_nothing
}

run_tests test_spawned_ranks_run_and_are_waited_for test_what_cannot_be_started_is_told_to_who_asked_for_it \
    test_a_storm_of_spawns test_an_abort_while_others_spawn_ends_the_run test_spawned_ranks_that_die_end_the_run \
    test_who_waits_for_a_rank_that_is_lost_is_told \
    test_only_ranks_of_its_job_go_on_without_a_lost_one
