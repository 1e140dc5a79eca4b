# ring_end_test.sh - however a run ends, by whatever dies or freezes in the middle of it, it does end, says why, and nothing
# of it stays.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2154,SC2016,SC2317
. "${TEST_SOURCE_DIR:?}/tests/system/ring_lib.sh"

mpi=
for m in openmpi mpich; do
    [ -z "$mpi" ] || continue
    [ "$m" != openmpi ] || [ -e "$TEST_BINARY_DIR/fiber/pmix.so" ] || continue
    ! command -v "mpicc.$m" >/dev/null || ! compile "mpicc.$m" "$work/check" || mpi=$m
done

# Ranks that go on for ever: they say "up", and have a child each.
forever='tail -f /dev/null & echo up; tail -f /dev/null; wait'

all_up() { # all_up <count>
    [ "$(grep -c '^up$' "$work/out")" = "$1" ]
}

begin_forever() { # begin_forever <count> <argument>...
    local n=$1
    shift
    start -n "$n" --oversubscribe "$@" bash -c "$forever"
    wait_for 60 all_up "$n" || fail 'the ranks do not come up'
}

dead_in_time() { # after SIGKILL of the launcher: within the promised 2 s
    wait "$launcher" 2>/dev/null || :
    leaves_nothing 2
}

test_killed_launcher_leaves_nothing() {
    begin_forever 4 || return
    kill -KILL "$launcher"
    dead_in_time || return
    begin_forever 4 --per-node 2 || return
    kill -KILL "$launcher"
    dead_in_time
}

test_killed_launcher_of_mpi_ranks_leaves_nothing() {
    [ -n "$mpi" ] || return 0
    for more in --oversubscribe --per-node=2; do
        start -n 4 --oversubscribe "$more" "$work/check" work
        await working || return
        kill -KILL "$launcher"
        dead_in_time || return
    done
}

test_killed_launcher_of_ranks_that_ignore_everything_leaves_nothing() {
    start -n 2 bash -c 'trap "" TERM INT HUP PIPE; (trap "" TERM HUP PIPE; while :; do read -rt 1 <>/dev/zero; done) &
        echo up; while :; do wait; done'
    wait_for 60 all_up 2 || fail 'the ranks do not come up' || return
    kill -KILL "$launcher"
    dead_in_time
}

test_killed_agent_fails_the_run() {
    local first
    begin_forever 4 --per-node 2 || return
    first=$(agents | head -1)
    kill -KILL "$first"
    ends 137 || return
    says 'the agent on ' || return
    leaves_nothing
}

test_frozen_agent_is_given_up() {
    begin_forever_frozen() {
        FIBER_HEARTBEAT=100ms FIBER_TRANSPORT=tcp begin_forever 4 --per-node 2 --grace 1s
    }
    begin_forever_frozen || return
    kill -STOP "$(agents | head -1)"
    ends 137 || return
    says 'the agent on ' || return
    leaves_nothing
}

test_frozen_rank_is_ended_with_the_others() {
    begin_forever 2 --grace 2s || return
    pid=$(pgrep -P "$(agents | head -1)" | tail -1)
    kill -STOP "$pid"
    kill -TERM "$launcher"
    ends 143 || return
    leaves_nothing
}

test_what_a_rank_forked_goes_with_the_run() {
    fiber_run 0 -n 2 bash -c 'tail -f /dev/null & echo forked' || return
    says forked
}

test_rank_that_ignores_the_notice_is_killed_after_grace() {
    start -n 2 --grace 300ms bash -c 'trap "" TERM; echo up; while :; do read -rt 1 <>/dev/zero; done'
    wait_for 60 all_up 2 || fail 'the ranks do not come up' || return
    kill -TERM "$launcher"
    ends 143 || return
    leaves_nothing
}

test_rank_that_closes_its_output_goes_on() {
    fiber_run 3 -n 2 bash -c 'echo "$FIBER_RANK starts"; exec >&- 2>&-; [ "$FIBER_RANK" = 0 ] || exit 3' || return
    says '1 starts' || return
    says 'rank 1'
}

test_two_runs_at_once_do_not_meet() {
    [ -n "$mpi" ] || return 0
    local other code=0
    start -n 2 "$work/check" collectives
    timeout 100 "$fiber" run -n 2 "$work/check" collectives >"$work/out2" 2>"$work/err2" </dev/null &
    other=$!
    ends 0 || return
    says 'collectives: 2 ranks agree' || return
    wait "$other" || code=$?
    [ "$code" = 0 ] || fail "the other run: exit code $code" || return
    grep -q 'collectives: 2 ranks agree' "$work/out2" || fail 'the other run does not agree' || return
    leaves_nothing
}

test_32_oversubscribed_mpi_ranks() {
    [ -n "$mpi" ] || return 0
    LIMIT=100 fiber_run 0 --oversubscribe -n 32 "$work/check" "names" || return
}

signalled() { # signalled <signal>... -- <code>: ranks are up, the signals come, one after the other
    local sig
    begin_forever 2 --grace 20s || return
    while [ "$1" != -- ]; do
        sig=$1
        kill "-$sig" "$launcher"
        shift
    done
    ends "$2" || return
    leaves_nothing
}

test_one_interrupt_ends_the_run() {
    signalled INT -- 130
}

test_one_hangup_ends_the_run() {
    signalled HUP -- 129
}

test_second_interrupt_kills() {
    start -n 2 --grace 100s bash -c 'trap "echo told" TERM; echo up; while :; do read -rt 1 <>/dev/zero; done'
    wait_for 60 all_up 2 || fail 'the ranks do not come up' || return
    kill -INT "$launcher"
    await told || return
    again() { # two at once count as one; a third would end the launcher before it has cleaned up
        grep -qF 'killing all ranks' "$work/err" || kill -INT "$launcher" 2>/dev/null || :
        gone "$launcher"
    }
    wait_for 60 again || fail 'it does not end' || return
    ends 130 || return
    leaves_nothing
}

test_two_notices_at_once_are_one() { # as timeout(1) sends them
    start -n 2 --grace 100s bash -c 'trap "echo told; exit 5" TERM; echo up; while :; do read -rt 0.3 <>/dev/zero; done'
    wait_for 60 all_up 2 || fail 'the ranks do not come up' || return
    kill -TERM "$launcher"
    kill -TERM "$launcher"
    ends 143 || return
    [ "$(grep -c '^told$' "$work/out")" = 2 ] || fail 'they were killed before they could end' || return
    leaves_nothing
}

test_user_signals_reach_the_ranks() {
    start -n 2 bash -c 'trap "echo one" USR1; trap "echo two; exit 0" USR2; echo up
        while :; do read -rt 0.05 <>/dev/zero; done'
    wait_for 60 all_up 2 || fail 'the ranks do not come up' || return
    kill -USR1 "$launcher"
    wait_for 60 eval '[ "$(grep -c "^one$" "$work/out")" = 2 ]' || fail 'USR1 does not reach both' || return
    kill -USR2 "$launcher"
    ends 0 || return
    leaves_nothing
}

state_of() {
    sed -n 's/^State:.\(.\).*/\1/p' "/proc/$1/status"
}

are_in_state() { # are_in_state <letter>... <pid>...
    local want=$1 pid
    shift
    for pid; do
        [[ $(state_of "$pid") == [$want] ]] || return 1
    done
}

test_suspended_run_goes_on() {
    local ranks
    begin_forever 2 || return
    # shellcheck disable=SC2046
    ranks=$(pgrep -P "$(agents | head -1)")
    kill -TSTP "$launcher"
    # shellcheck disable=SC2086
    wait_for 20 are_in_state T "$launcher" $ranks || fail 'they do not stop' || return
    kill -CONT "$launcher"
    # shellcheck disable=SC2086
    wait_for 20 are_in_state RS "$launcher" $ranks || fail 'they do not go on' || return
    kill -TERM "$launcher"
    ends 143 || return
    leaves_nothing
}

run_tests test_killed_launcher_leaves_nothing test_killed_launcher_of_mpi_ranks_leaves_nothing \
    test_killed_launcher_of_ranks_that_ignore_everything_leaves_nothing test_killed_agent_fails_the_run \
    test_frozen_agent_is_given_up test_frozen_rank_is_ended_with_the_others test_what_a_rank_forked_goes_with_the_run \
    test_rank_that_ignores_the_notice_is_killed_after_grace test_rank_that_closes_its_output_goes_on \
    test_two_runs_at_once_do_not_meet test_32_oversubscribed_mpi_ranks test_one_interrupt_ends_the_run \
    test_one_hangup_ends_the_run test_second_interrupt_kills test_two_notices_at_once_are_one test_user_signals_reach_the_ranks \
    test_suspended_run_goes_on
