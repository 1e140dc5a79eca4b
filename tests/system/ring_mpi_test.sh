# ring_mpi_test.sh - MPI programs as every mpicc makes them run under `fiber run`, on one agent and on two, and end as they
# should, also badly.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2154
. "${TEST_SOURCE_DIR:?}/tests/system/ring_lib.sh"

compilers=()
for mpi in openmpi mpich; do
    [ "$mpi" != openmpi ] || [ -e "$TEST_BINARY_DIR/fiber/pmix.so" ] || continue
    if command -v "mpicc.$mpi" >/dev/null && compile "mpicc.$mpi" "$work/check.$mpi" 2>"$work/err"; then
        compilers+=("$mpi")
    fi
done
[ ${#compilers[@]} -gt 0 ] || skip "there is neither mpicc.openmpi with libpmix nor mpicc.mpich"

test_collectives_agree_on_one_host() {
    for mpi in "${compilers[@]}"; do
        for n in 1 3; do
            fiber_run 0 -q --oversubscribe -n "$n" "$work/check.$mpi" collectives || return
            says "collectives: $n ranks agree" || return
        done
    done
}

test_eight_oversubscribed_ranks_agree() {
    for mpi in "${compilers[@]}"; do
        fiber_run 0 -q --oversubscribe -n 8 "$work/check.$mpi" collectives || return
        says 'collectives: 8 ranks agree' || return
    done
}

test_collectives_agree_over_two_agents() {
    for mpi in "${compilers[@]}"; do
        fiber_run 0 --oversubscribe -vvv -n 4 --per-node 2 "$work/check.$mpi" collectives || return
        says 'collectives: 4 ranks agree' || return
        says ': request 1: a fence of 2 agents' || return
        says ': request 1 is answered: ' || return
    done
}

test_windows_work() {
    for mpi in "${compilers[@]}"; do
        fiber_run 0 -n 2 "$work/check.$mpi" window || return
        says 'window: 2 ranks agree' || return
        fiber_run 0 --oversubscribe -n 4 --per-node 2 "$work/check.$mpi" window || return
        says 'window: 4 ranks agree' || return
    done
}

test_names_are_found_until_they_are_taken_back() { # MPICH 4.0 has none, under its own mpiexec either
    [[ ${compilers[*]} == *openmpi* ]] || return 0
    fiber_run 0 -n 2 "$work/check.openmpi" names || return
    says 'names: 2 ranks agree' || return
    fiber_run 0 -n 3 --per-node 1 "$work/check.openmpi" names || return
    says 'names: 3 ranks agree'
}

test_spawned_ranks_merge() { # the same of MPICH 4.0 on UCX
    [[ ${compilers[*]} == *openmpi* ]] || return 0
    fiber_run 0 --oversubscribe -n 2 "$work/check.openmpi" spawn || return
    says 'merged 6' || return
    fiber_run 0 --oversubscribe -n 2 --per-node 1 "$work/check.openmpi" spawn || return
    says 'merged 6'
}

test_a_spawned_rank_yields_to_those_that_are_there() {
    [[ ${compilers[*]} == *openmpi* ]] || return 0
    (
        taskset -cp "$(grep -oP 'Cpus_allowed_list:\s*\K\d+' /proc/self/status)" "$BASHPID" >/dev/null
        CHECK_SPAWN=1 fiber_run 0 -v -n 1 "$work/check.openmpi" spawn || return
        says 'merged 2' || return
        says 'more ranks than processors: OMPI_MCA_mpi_yield_when_idle=1'
    )
}

test_ranks_within_mpirun_spawn_and_find_names() { # whose variables are for the ranks of its own job
    [[ ${compilers[*]} == *openmpi* ]] || return 0
    (
        export OMPI_MCA_orte_launch=1 OMPI_MCA_ess=^singleton OMPI_MCA_pmix=^s1,s2,cray,isolated
        fiber_run 0 --oversubscribe -n 2 "$work/check.openmpi" spawn || return
        says 'merged 6' || return
        fiber_run 0 -n 2 "$work/check.openmpi" names || return
        says 'names: 2 ranks agree'
    )
}

test_programs_spawned_together_are_told_apart() { # the same of MPICH 4.0 on UCX
    [[ ${compilers[*]} == *openmpi* ]] || return 0
    fiber_run 0 --oversubscribe -n 2 "$work/check.openmpi" programs || return
    says 'merged 6' || return
    fiber_run 0 --oversubscribe -n 2 --per-node 1 "$work/check.openmpi" programs || return
    says 'merged 6'
}

test_programs_of_a_run_are_one_world() {
    for mpi in "${compilers[@]}"; do
        for where in --oversubscribe --per-node=2; do
            fiber_run 0 --oversubscribe "$where" -n 1 "$work/check.$mpi" among 0 : -n 3 "$work/check.$mpi" among 1 ||
                return
            says 'among: 4 ranks agree' || return
        done
    done
}

test_groups_of_a_run_meet_at_a_port() { # the same of MPICH 4.0 on UCX
    [[ ${compilers[*]} == *openmpi* ]] || return 0
    fiber_run 0 --oversubscribe -n 4 "$work/check.openmpi" groups || return
    [ "$(grep -c '^merged 4' "$work/out")" = 2 ] || fail 'they have not met twice' || return
    fiber_run 0 --oversubscribe -n 4 --per-node 2 "$work/check.openmpi" groups || return
    [ "$(grep -c '^merged 4' "$work/out")" = 2 ] || fail 'they have not met twice' || return
}

test_a_port_or_name_of_another_run_is_refused_at_once() {
    local where
    [[ ${compilers[*]} == *openmpi* ]] || return 0
    fiber_run 0 -n 1 "$work/check.openmpi" port || return
    port=$(sed -n 's/^port //p' "$work/out")
    for where in --oversubscribe --per-node=1; do
        fiber_run 5 --oversubscribe "$where" -n 2 "$work/check.openmpi" abroad "$port" || return
        says "no rank of this run has the port \"${port%%:*}\"" || return
        says 'no rank of this run has published "fiber abroad"' || return
    done
}

test_a_rank_that_pmi_knew_is_not_replaced() {
    local where how
    [[ ${compilers[*]} == *mpich* ]] || return 0
    for where in --oversubscribe --per-node=1; do
        for how in kill orphan; do
            [ "$how $where" != "orphan --oversubscribe" ] || continue # the only agent: nobody could go on
            fiber_run 137 --oversubscribe "$where" -n 2 --on-failure replace "$work/check.mpich" "$how" || return
            says 'PMI (MPICH) admits no new process in place' || return
        done
    done
}

test_a_rank_that_dies_before_mpi_init_is_replaced() {
    local where
    for mpi in "${compilers[@]}"; do
        for where in --oversubscribe --per-node=2; do
            # shellcheck disable=SC2016
            fiber_run 0 --oversubscribe "$where" -n 4 --on-failure replace sh -c \
                '[ "$FIBER_RANK" != 1 ] || [ -n "$FIBER_RANK_RESTARTS" ] || kill -9 $$; exec "$0" window' \
                "$work/check.$mpi" || return
            says 'it is replaced (1 of 3)' || return
            says 'window: 4 ranks agree' || return
        done
    done
}

# It dies, or its agent, while the other one waits for it in MPI_Init: nobody else is left on its agent then.
test_who_is_replaced_is_waited_for() {
    local mpi victim
    cat >"$work/late" <<'END'
#!/bin/bash
pause() { read -rt 0.01 <> <(:) || :; }
if [[ $FIBER_RANK == 0 ]]; then
    echo $$ >"$1.new"
    mv "$1.new" "$1"
elif [[ -z ${FIBER_RANK_RESTARTS:-} ]]; then
    until [[ -s $1 ]]; do pause; done
    for ((still = 0; still < 8; still++)); do
        read -r _ name state _ <"/proc/$(<"$1")/stat"
        [[ $name == "(check"* && $state == S ]] || still=0
        pause
    done
    [[ $3 == rank ]] || kill -9 "$PPID"
    kill -9 $$
fi
exec "$2" window
END
    chmod +x "$work/late"
    for mpi in "${compilers[@]}"; do
        for victim in rank agent; do
            rm -f "$work/pid"
            fiber_run 0 --oversubscribe --per-node=1 -n 2 --on-failure replace \
                "$work/late" "$work/pid" "$work/check.$mpi" "$victim" || return
            says 'replaced (1 of 3)' || return
            says 'window: 2 ranks agree' || return
        done
    done
}

test_the_code_of_an_abort_is_the_runs() {
    for mpi in "${compilers[@]}"; do
        fiber_run 42 -n 2 "$work/check.$mpi" abort 42 || return
        says 'called abort with code 42' || return
        fiber_run 7 --oversubscribe -n 4 --per-node 2 "$work/check.$mpi" abort 7 || return
    done
}

test_an_abort_is_a_failure_after_which_all_start_again() {
    # shellcheck disable=SC2016
    local aborts_once='[ "$FIBER_EPOCH" != 0 ] || exec "$0" abort 42; exec "$0" collectives'
    for mpi in "${compilers[@]}"; do
        fiber_run 0 -n 2 --on-failure restart sh -c "$aborts_once" "$work/check.$mpi" || return
        says 'called abort with code 42; starting all ranks again' || return
        fiber_run 42 -n 2 --on-failure restart --max-restarts 1 "$work/check.$mpi" abort 42 || return
    done
}

test_a_rank_that_leaves_without_finalize_fails_the_run() {
    for mpi in "${compilers[@]}"; do
        fiber_run 1 -n 2 "$work/check.$mpi" leave || return
        says 'without MPI_Finalize' || return
        fiber_run 1 --oversubscribe -n 4 --per-node 2 "$work/check.$mpi" leave || return
    done
}

test_survivors_do_not_wait_for_a_rank_that_left_without_finalize() { # where the MPI tells them of a loss
    local where
    [[ ${compilers[*]} == *openmpi* ]] || return 0
    for where in 2 1; do
        fiber_run 0 --oversubscribe -n 2 --per-node "$where" --on-failure shrink "$work/check.openmpi" desert || return
        says 'ended with code 0 without MPI_Finalize' || return
        says 'the others go on (1 of 2)' || return
        says 'rank 0 has finalized' || return
    done
}

test_survivors_do_not_wait_for_it_after_spawned_ranks_have_ended() { # which lived on its agent when it left
    [[ ${compilers[*]} == *openmpi* ]] || return 0
    mkfifo "$work/stay"
    start --oversubscribe -n 2 --per-node 1 --on-failure shrink -x "STAY=$work/stay" "$work/check.openmpi" desert
    is_lost() { grep -q 'the others go on' "$work/err" || gone "$launcher"; }
    wait_for "$patience" is_lost || fail 'no rank is lost' || return
    exec 8<>"$work/stay"
    ends 0 || return
    exec 8<&-
    says 'rank 0 has finalized' || return
    leaves_nothing
}

test_a_crash_fails_the_run() {
    for mpi in "${compilers[@]}"; do
        fiber_run 139 -n 2 "$work/check.$mpi" segv || return
        says 'was killed by signal 11' || return
    done
}

test_wrappers_around_a_program_do_no_harm() {
    for mpi in "${compilers[@]}"; do
        # shellcheck disable=SC2016
        fiber_run 0 -n 2 env RING_A=1 sh -c '"$0" "$@"; exit $?' "$work/check.$mpi" window || return
        says 'window: 2 ranks agree' || return
    done
}

test_mpich_meets_its_server_by_port() {
    [[ ${compilers[*]} == *mpich* ]] || return 0
    # Python closes the descriptors that it has not opened itself
    local child='import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)'
    fiber_run 0 -n 2 -x FIBER_PMI=port "$work/check.mpich" window || return
    says 'window: 2 ranks agree' || return
    fiber_run 15 -n 2 python3 -c "$child" "$work/check.mpich" window || return
    says 'use -x FIBER_PMI=port' || return
    fiber_run 0 -n 2 -x FIBER_PMI=port python3 -c "$child" "$work/check.mpich" window || return
    says 'window: 2 ranks agree'
}

installed_modules() { # where this build looks for modules besides
    local prefix libdir
    prefix=$(sed -n 's/^CMAKE_INSTALL_PREFIX:PATH=//p' "$TEST_BINARY_DIR/CMakeCache.txt")
    libdir=$(sed -n 's/^CMAKE_INSTALL_LIBDIR:PATH=//p' "$TEST_BINARY_DIR/CMakeCache.txt")
    echo "$prefix/$libdir/fiber"
}

test_who_runs_alone_fails_the_run_and_is_told_why() {
    [[ ${compilers[*]} == *openmpi* ]] || return 0
    mkdir -p "$work/alone/bin" "$work/alone/fiber" # without the module of PMIx
    cp "$TEST_BINARY_DIR/fiber/crypto.so" "$work/alone/fiber"
    cp "$fiber" "$work/alone/bin"
    local fiber=$work/alone/bin/fiber
    if grep -q libpmix <<<"$(ldd "$fiber")" || [ -e "$(installed_modules)/pmix.so" ]; then
        return 0
    fi
    fiber_run 1 -n 2 "$work/check.openmpi" window || return
    says 'is linked with an MPI library, but ended without a connection to' || return
    says 'fiber doctor'
}

test_a_server_that_cannot_start_names_no_file_that_is_gone() {
    [[ ${compilers[*]} == *openmpi* ]] || return 0
    PMIX_MCA_psec=none_such fiber_run 125 -n 2 "$work/check.openmpi" window || return
    says 'cannot start as a server' || return
    ! grep -q 'cannot start as a server.*/' "$work/err" || fail "it names a file of the run: $(cat "$work/err")"
}

alone=(env -u PMI_FD -u PMI_RANK -u PMI_SIZE) # so that MPICH does not find its server

test_who_runs_alone_behind_a_wrapper_fails_the_run() {
    [[ ${compilers[*]} == *mpich* ]] || return 0
    # The agent looks for MPI every few milliseconds. On a busy machine it may miss one short program, not twenty.
    # shellcheck disable=SC2016
    local twenty='for i in $(seq 20); do "$0" window || exit; done'
    fiber_run 1 -n 2 "${alone[@]}" sh -c "$twenty" "$work/check.mpich" || return
    says 'ended without a connection to Fiber' || return
    fiber_run 1 -n 2 "${alone[@]}" sh -c "sh -c '$twenty' \"\$0\"; true" "$work/check.mpich" || return
    says 'ended without a connection to Fiber' || return
    # also one that a thread starts
    fiber_run 1 -n 2 "${alone[@]}" python3 -c "import subprocess, threading
run = threading.Thread(target=lambda: [subprocess.run(['$work/check.mpich', 'window']) for _ in range(20)])
run.start(); run.join()" || return
    says 'ended without a connection to Fiber'
}

test_a_rank_that_is_a_launcher_itself_does_not_run_alone() {
    for mpi in "${compilers[@]}"; do
        command -v "mpiexec.$mpi" >/dev/null || continue
        fiber_run 0 --oversubscribe -n 2 "mpiexec.$mpi" -n 2 "$work/check.$mpi" window || return
        says 'window: 2 ranks agree' || return
        # shellcheck disable=SC2016
        fiber_run 0 --oversubscribe -n 2 sh -c '"$0" -n 2 "$1" window; true' "mpiexec.$mpi" "$work/check.$mpi" || return
        says 'window: 2 ranks agree' || return
    done
}

test_an_only_rank_may_run_alone() {
    [[ ${compilers[*]} == *mpich* ]] || return 0
    fiber_run 0 -n 1 "${alone[@]}" "$work/check.mpich" window || return
    [ ! -x /usr/bin/mpichversion ] || fiber_run 0 -n 1 mpichversion # it does not call MPI_Init
}

test_who_runs_alone_for_long_is_told_of_before_the_end() {
    local code=0
    [[ ${compilers[*]} == *mpich* ]] || return 0
    start -n 2 "${alone[@]}" "$work/check.mpich" work
    wait_for "$patience" grep -q 'loaded an MPI library' "$work/err" || fail 'nothing is said' || return
    [ "$(grep -c 'loaded an MPI library' "$work/err")" = 1 ] || fail 'it is said twice' || return
    kill -TERM "$launcher"
    wait "$launcher" || code=$?
    [ "$code" = 143 ] || fail "exit code $code" || return
    leaves_nothing
}

# Runs that begin_run() has started. Those that end only after 5 s run at once.
runs=()

begin_run() { # begin_run <argument>...
    timeout -k 5 "$patience" "$fiber" run "$@" >"$work/out.${#runs[@]}" 2>&1 </dev/null &
    runs+=($!)
}

each_ends() { # each_ends <code> <text>...: each of the runs, and says each of the texts
    local i text code
    : >"$work/err"
    for i in "${!runs[@]}"; do
        code=0
        wait "${runs[i]}" || code=$?
        mv "$work/out.$i" "$work/out"
        [ "$code" = "$1" ] || fail "exit code $code, not $1" || return
        for text in "${@:2}"; do
            says "$text" || return
        done
    done
    runs=()
    leaves_nothing
}

test_a_rank_without_mpi_is_not_waited_for_in_mpi_init() {
    for mpi in "${compilers[@]}"; do
        for where in --oversubscribe --per-node=1; do
            begin_run "$where" -n 1 "$work/check.$mpi" window : -n 1 printenv HOME
        done
    done
    each_ends 1 'ended with code 0 without MPI_Init, and rank 0 waits for it there'
}

test_ranks_of_two_kinds_of_mpi_do_not_wait_for_each_other() {
    [ ${#compilers[@]} = 2 ] || return 0
    for where in --oversubscribe --per-node=1; do
        begin_run "$where" -n 1 "$work/check.openmpi" window : -n 1 "$work/check.mpich" window
    done
    each_ends 1 'has called MPI_Init by PMI' 'they wait for each other forever'
}

test_a_rank_that_is_lost_before_mpi_init_is_not_waited_for_there() { # MPICH gives up by itself
    [[ ${compilers[*]} == *openmpi* ]] || return 0
    # shellcheck disable=SC2016
    fiber_run 3 --oversubscribe -n 3 --on-failure shrink sh -c '[ "$FIBER_RANK" != 1 ] || exit 3; exec "$0" window' \
        "$work/check.openmpi" || return
    says 'exited with code 3 without MPI_Init, and rank ' || return
    says 'waits for it there forever'
}

test_data_of_a_rank_that_is_lost_elsewhere_is_not_waited_for() { # MPI_Init returns; the first message asks for the data
    [[ ${compilers[*]} == *openmpi* ]] || return 0
    # shellcheck disable=SC2016
    fiber_run 17 --oversubscribe -n 3 --per-node 1 --on-failure shrink \
        sh -c '[ "$FIBER_RANK" != 1 ] || exit 3; exec "$0" collectives' "$work/check.openmpi" || return
    says 'unable to reach each other'
}

test_a_spawned_program_without_mpi_is_not_waited_for() {
    [[ ${compilers[*]} == *openmpi* ]] || return 0
    for where in 2 1; do
        begin_run --oversubscribe -n 2 --per-node "$where" "$work/check.openmpi" spawn true
    done
    each_ends 1 'of spawned job 1 (' \
        'ended with code 0 without MPI_Init, and rank 0 waits for it in MPI_Comm_spawn forever'
}

run_tests test_collectives_agree_on_one_host test_eight_oversubscribed_ranks_agree \
    test_collectives_agree_over_two_agents test_windows_work test_names_are_found_until_they_are_taken_back \
    test_spawned_ranks_merge test_a_spawned_rank_yields_to_those_that_are_there \
    test_ranks_within_mpirun_spawn_and_find_names \
    test_programs_spawned_together_are_told_apart test_groups_of_a_run_meet_at_a_port \
    test_a_port_or_name_of_another_run_is_refused_at_once test_a_rank_that_pmi_knew_is_not_replaced \
    test_a_rank_that_dies_before_mpi_init_is_replaced test_who_is_replaced_is_waited_for \
    test_the_code_of_an_abort_is_the_runs test_an_abort_is_a_failure_after_which_all_start_again \
    test_a_rank_that_leaves_without_finalize_fails_the_run \
    test_survivors_do_not_wait_for_a_rank_that_left_without_finalize \
    test_survivors_do_not_wait_for_it_after_spawned_ranks_have_ended \
    test_a_crash_fails_the_run test_wrappers_around_a_program_do_no_harm test_mpich_meets_its_server_by_port \
    test_a_server_that_cannot_start_names_no_file_that_is_gone \
    test_who_runs_alone_fails_the_run_and_is_told_why \
    test_who_runs_alone_behind_a_wrapper_fails_the_run test_an_only_rank_may_run_alone \
    test_a_rank_that_is_a_launcher_itself_does_not_run_alone test_who_runs_alone_for_long_is_told_of_before_the_end \
    test_a_rank_without_mpi_is_not_waited_for_in_mpi_init test_ranks_of_two_kinds_of_mpi_do_not_wait_for_each_other \
    test_a_rank_that_is_lost_before_mpi_init_is_not_waited_for_there \
    test_data_of_a_rank_that_is_lost_elsewhere_is_not_waited_for \
    test_a_spawned_program_without_mpi_is_not_waited_for
