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

# What ranks read from that wait for a signal, in bash: nothing ever comes. They do it as `nap SECONDS`.
nap='exec 7<> <(:); nap() { read -rt "$1" -u 7; }; '

# Ranks that go on for ever: they say "up", and have a child each, which would not notice that nobody reads its output.
forever='tail -f /dev/null >/dev/null & echo up; tail -f /dev/null >/dev/null; wait'

all_up() { # all_up <count>
    [ "$(grep -c '^up$' "$work/out")" = "$1" ]
}

begin_forever() { # begin_forever <count> <argument>...
    local n=$1
    shift
    start -n "$n" --oversubscribe "$@" bash -c "$forever"
    wait_for "$patience" all_up "$n" || fail 'the ranks do not come up'
}

killed() { # SIGKILL of the launcher: nothing outlives it, at once, whatever the grace and the heartbeat are
    local began
    began=$(now_ms)
    kill -KILL "$launcher"
    wait "$launcher" 2>/dev/null || :
    leaves_nothing || return
    echo "nothing was left after $(($(now_ms) - began)) ms"
}

test_killed_launcher_leaves_nothing() {
    begin_forever 4 --grace 300s || return
    killed || return
    begin_forever 4 --per-node 2 --grace 300s || return
    killed
}

test_killed_launcher_of_mpi_ranks_leaves_nothing() {
    [ -n "$mpi" ] || return 0
    for more in --oversubscribe --per-node=2; do
        start -n 4 --oversubscribe --grace 300s "$more" "$work/check" work
        await working || return
        killed || return
    done
}

test_killed_launcher_of_ranks_that_ignore_everything_leaves_nothing() {
    start -n 2 --grace 300s bash -c "$nap"'trap "" TERM INT HUP PIPE; (trap "" TERM HUP PIPE; while :; do nap 1; done) &
        echo up; while :; do wait; done'
    wait_for "$patience" all_up 2 || fail 'the ranks do not come up' || return
    killed
}

test_killed_agent_fails_the_run() {
    local first
    begin_forever 4 --per-node 2 || return
    first=$(agents | sed -n 1p)
    kill -KILL "$first"
    ends 137 || return
    says 'the agent on ' || return
    leaves_nothing
}

# As a manager of a cluster does before it kills a job. The launcher may hear of it, too.
test_ranks_of_an_agent_that_is_told_to_end_may_save() {
    local too told
    for too in agent launcher; do
        start -n 4 --oversubscribe --per-node 2 --grace 300s bash -c \
            "$nap"'trap "echo save; kill -KILL \$!; exit 0" TERM; tail -f /dev/null >/dev/null & echo up; while :; do wait; done'
        wait_for "$patience" all_up 4 || fail 'the ranks do not come up' || return
        mapfile -t told < <(agents)
        [ "$too" = agent ] || told=("$launcher" "${told[@]}")
        kill -STOP "${told[@]}" # no agent has ended before the last one hears of it
        kill -TERM "${told[@]}"
        kill -CONT "${told[@]}"
        ends "$([ "$too" = agent ] && echo 137 || echo 143)" || return
        [ "$(grep -c '^save$' "$work/out")" = 4 ] || fail 'each rank should save, once' || return
        [ "$too" = launcher ] || says 'the agent on ' || return
        leaves_nothing || return
    done
}

test_user_signals_of_an_agent_reach_its_ranks() {
    start -n 2 --oversubscribe bash -c \
        'trap "echo saved; kill -KILL \$!; exit 0" USR1; tail -f /dev/null >/dev/null & echo up; while :; do wait; done'
    wait_for "$patience" all_up 2 || fail 'the ranks do not come up' || return
    kill -USR1 "$(agents)"
    ends 0 || return
    [ "$(grep -c '^saved$' "$work/out")" = 2 ] || fail 'both ranks should save' || return
    leaves_nothing
}

test_killed_agent_takes_what_its_ranks_forked_along() { # and the others' children stay
    local agent child
    start -n 2 --oversubscribe --per-node 1 --on-failure shrink bash -c "$nap"'tail -f /dev/null >/dev/null & echo "child $!"
        until [ -e "$RING_TEST_MARK/go" ]; do nap 0.1; done; kill -0 $! && echo "has it"'
    wait_for "$patience" eval '[ "$(grep -c "^child " "$work/out")" = 2 ]' || fail 'the ranks do not come up' || return
    agent=$(agents | sed -n 1p)
    child=$(pgrep -P "$(pgrep -P "$agent")")
    kill -KILL "$agent"
    wait_for "$patience" gone "$child" || fail "process $child is left" || return
    touch "$work/go"
    ends 0 || return
    [ "$(grep -c '^has it$' "$work/out")" = 1 ] || fail 'the child of another rank is gone' || return
    rm "$work/go"
    leaves_nothing
}

test_frozen_agent_is_given_up() { # after 10 s: a slow machine must not look like it before
    begin_with_heartbeats() {
        FIBER_HEARTBEAT=500ms FIBER_HEARTBEAT_MISSES=20 FIBER_TRANSPORT=tcp begin_forever 4 --per-node 2 --grace 1s
    }
    begin_with_heartbeats || return
    kill -STOP "$(agents | sed -n 1p)"
    ends 137 || return
    says 'the agent on ' || return
    leaves_nothing
}

test_frozen_rank_is_ended_with_the_others() {
    begin_forever 2 --grace 2s || return
    pid=$(pgrep -P "$(agents | sed -n 1p)" | tail -1)
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
    start -n 2 --grace 300ms bash -c "$nap"'trap "" TERM; echo up; while :; do nap 1; done'
    wait_for "$patience" all_up 2 || fail 'the ranks do not come up' || return
    kill -TERM "$launcher"
    ends 143 || return
    leaves_nothing
}

test_program_of_a_script_may_save_after_the_script_has_ended() {
    start -n 2 --oversubscribe --grace 60s bash -c 'bash -c "$0"; echo "not reached"' "$nap"'
        save() { until [ "$(cut -d " " -f 3 "/proc/$PPID/stat")" = Z ]; do nap 0.1; done; nap 0.5; echo saved; exit; }
        trap save TERM; echo up; while :; do nap 1; done'
    wait_for "$patience" all_up 2 || fail 'the ranks do not come up' || return
    kill -TERM "$launcher"
    ends 143 || return
    [ "$(grep -c '^saved$' "$work/out")" = 2 ] || fail 'both programs should save' || return
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
    fiber_run 0 --oversubscribe -n 32 "$work/check" "names" || return
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

# Those that come within a fifth of a second are one (the next test), and a third that counts ends the launcher before it
# has cleaned up. So each is sent once it is known what the one before was: USR1 comes after it, and rank 0 answers that
# unless it is dead.
test_second_interrupt_kills() {
    local n
    start -n 2 --grace 300s bash -c "$nap"'trap "echo told" TERM; trap "[ \$FIBER_RANK = 1 ] || echo alive" USR1; echo up
        while :; do nap 0.2; done'
    wait_for "$patience" all_up 2 || fail 'the ranks do not come up' || return
    kill -INT "$launcher"
    await told || return
    known() {
        gone "$launcher" || [ "$(grep -c '^alive$' "$work/out")" -gt "$n" ]
    }
    until gone "$launcher"; do
        n=$(grep -c '^alive$' "$work/out") || :
        kill -INT "$launcher" 2>/dev/null || :
        kill -USR1 "$launcher" 2>/dev/null || :
        wait_for "$patience" known || fail 'it does not end' || return
    done
    ends 130 || return
    says 'killing all ranks' || return
    leaves_nothing
}

test_two_notices_at_once_are_one() { # as timeout(1) sends them; of the same number the kernel itself makes one
    start -n 2 --grace 300s bash -c "$nap"'trap "echo told; exit 5" TERM; echo up; while :; do nap 0.3; done'
    wait_for "$patience" all_up 2 || fail 'the ranks do not come up' || return
    kill -STOP "$launcher"
    wait_for "$patience" are_in_state T "$launcher" || fail 'it does not stop' || return
    kill -TERM "$launcher"
    kill -HUP "$launcher"
    kill -CONT "$launcher"
    ends 129 || return
    [ "$(grep -c '^told$' "$work/out")" = 2 ] || fail 'they were killed before they could end' || return
    leaves_nothing
}

test_user_signals_reach_the_ranks() {
    start -n 2 bash -c "$nap"'trap "echo one" USR1; trap "echo two; exit 0" USR2; echo up
        while :; do nap 0.05; done'
    wait_for "$patience" all_up 2 || fail 'the ranks do not come up' || return
    kill -USR1 "$launcher"
    wait_for "$patience" eval '[ "$(grep -c "^one$" "$work/out")" = 2 ]' || fail 'USR1 does not reach both' || return
    kill -USR2 "$launcher"
    ends 0 || return
    leaves_nothing
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
    ranks=$(pgrep -P "$(agents | sed -n 1p)")
    kill -TSTP "$launcher"
    # shellcheck disable=SC2086
    wait_for "$patience" are_in_state T "$launcher" $ranks || fail 'they do not stop' || return
    kill -CONT "$launcher"
    # shellcheck disable=SC2086
    wait_for "$patience" are_in_state RS "$launcher" $ranks || fail 'they do not go on' || return
    kill -TERM "$launcher"
    ends 143 || return
    leaves_nothing
}

# Its agents give up a launcher that is silent for 10 s.
test_suspended_run_is_not_given_up_by_far_agents() {
    FIBER_HEARTBEAT=500ms FIBER_HEARTBEAT_MISSES=20 FIBER_TRANSPORT=tcp start -n 4 --oversubscribe --per-node 2 \
        bash -c "$nap"'echo up; until [ -e "$RING_TEST_MARK/go" ]; do nap 0.1; done; echo went on'
    wait_for "$patience" all_up 4 || fail 'the ranks do not come up' || return
    kill -TSTP "$launcher"
    wait_for "$patience" are_in_state T "$launcher" || fail 'it does not stop' || return
    eval "$nap"
    nap 16 || :
    kill -CONT "$launcher"
    touch "$work/go"
    ends 0 || return
    [ "$(grep -c '^went on$' "$work/out")" = 4 ] || fail 'not all of them went on' || return
    rm "$work/go"
    leaves_nothing
}

# MPICH gives its error stack as the reason, which has thousands of bytes.
test_an_abort_with_a_long_reason_ends_the_run() {
    fiber_run 7 -n 1 bash -c \
        "$nap"'printf "cmd=init pmi_version=1\ncmd=abort exitcode=7 error_msg=%0600d\n" 0 >&3; nap 600' || return
    says 'called abort with code 7: 000'
}

run_tests test_an_abort_with_a_long_reason_ends_the_run test_killed_launcher_leaves_nothing \
    test_killed_launcher_of_mpi_ranks_leaves_nothing \
    test_killed_launcher_of_ranks_that_ignore_everything_leaves_nothing test_killed_agent_fails_the_run \
    test_ranks_of_an_agent_that_is_told_to_end_may_save test_user_signals_of_an_agent_reach_its_ranks test_killed_agent_takes_what_its_ranks_forked_along \
    test_frozen_agent_is_given_up test_frozen_rank_is_ended_with_the_others test_what_a_rank_forked_goes_with_the_run \
    test_rank_that_ignores_the_notice_is_killed_after_grace test_program_of_a_script_may_save_after_the_script_has_ended \
    test_rank_that_closes_its_output_goes_on \
    test_two_runs_at_once_do_not_meet test_32_oversubscribed_mpi_ranks test_one_interrupt_ends_the_run \
    test_one_hangup_ends_the_run test_second_interrupt_kills test_two_notices_at_once_are_one test_user_signals_reach_the_ranks \
    test_suspended_run_goes_on test_suspended_run_is_not_given_up_by_far_agents
