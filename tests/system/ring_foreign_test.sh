# ring_foreign_test.sh - ranks whose MPI is of another release than ours: Open MPI and MPICH of a root tree, entered by chroot.
#
# The tree is made by debootstrap, say of Debian 13, with gcc, libopenmpi-dev and libmpich-dev; TEST_FOREIGN names it. It has
# /proc, /dev, /sys and /tmp of this machine.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2154
. "${TEST_SOURCE_DIR:?}/tests/system/ring_lib.sh"

root=${TEST_FOREIGN:-${TEST_BED_DATA:-/var/lib/fiber-beds}/foreign}
[ "$(id -u)" = 0 ] || skip 'chroot needs root'
[ -d "$root/proc/self" ] || skip "there is no tree of another release (TEST_FOREIGN names one)"
[ -d "$root$work" ] || skip "$root does not see $work"
[ -z "${RING_PRIVATE:-}" ] || mount --bind /dev/shm "$root/dev/shm" # ours alone, as for all ranks here

inside=(chroot "$root")
compilers=()
for mpi in openmpi mpich; do
    [ "$mpi" != openmpi ] || [ -e "$TEST_BINARY_DIR/fiber/pmix.so" ] || continue
    cp "$here/ring_mpi/check.c" "$work"
    if "${inside[@]}" "mpicc.$mpi" -O1 -o "$work/check.$mpi" "$work/check.c" 2>"$work/err"; then
        compilers+=("$mpi")
    fi
done
[ ${#compilers[@]} -gt 0 ] || skip "$root has neither mpicc.openmpi nor mpicc.mpich"
"${inside[@]}" sh -c 'cat /etc/debian_version; dpkg-query -W libopenmpi-dev libmpich-dev libpmix-dev' 2>/dev/null || :

foreign_run() { # foreign_run <expected code> <mpi> <role> <argument of fiber run>...
    local code=$1 program=$work/check.$2 role=$3
    shift 3
    fiber_run "$code" --oversubscribe "$@" "${inside[@]}" "$program" "$role" || return
}

test_collectives_agree_on_one_agent_and_two() {
    local mpi n
    for mpi in "${compilers[@]}"; do
        for n in 2 8; do
            foreign_run 0 "$mpi" collectives -n "$n" || return
            says "collectives: $n ranks agree" || return
            foreign_run 0 "$mpi" collectives -n "$n" --per-node $((n / 2)) || return
            says "collectives: $n ranks agree" || return
            foreign_run 0 "$mpi" window -n "$n" || return
            says "window: $n ranks agree" || return
            foreign_run 0 "$mpi" window -n "$n" --per-node $((n / 2)) || return
            says "window: $n ranks agree" || return
        done
    done
}

test_spawned_ranks_merge() { # not those of MPICH on UCX
    local n
    [[ ${compilers[*]} == *openmpi* ]] || return 0
    for n in 2 8; do
        for where in "$n" $((n / 2)); do
            fiber_run 0 --oversubscribe -n "$n" --per-node "$where" "${inside[@]}" "$work/check.openmpi" spawn \
                "${inside[@]}" "$work/check.openmpi" || return
            says "merged $((n + 4))" || return
        done
    done
}

test_a_ring_that_lost_a_rank_goes_on_and_grows_again() { # where the MPI has ULFM
    local where program=("${inside[@]}" "$work/check.openmpi")
    [[ ${compilers[*]} == *openmpi* ]] && grep -q MPIX_Comm_shrink "$root"/usr/lib/*/libmpi.so.40 || return 0
    for where in 4 2; do
        fiber_run 0 --oversubscribe -n 4 --per-node "$where" --on-failure shrink \
            "${program[@]}" regrow "${program[@]}" || return
        says 'merged 4' || return
        says 'regrow: 4 ranks agree' || return
    done
}

test_data_of_a_rank_that_is_lost_elsewhere_is_not_waited_for() { # version 5 asks for the data in MPI_Init
    [[ ${compilers[*]} == *openmpi* ]] || return 0
    # shellcheck disable=SC2016
    fiber_run 14 --oversubscribe -n 3 --per-node 1 --on-failure shrink \
        sh -c '[ "$FIBER_RANK" != 1 ] || exit 3; exec "$@"' sh "${inside[@]}" "$work/check.openmpi" collectives || return
    says 'unable to reach each other'
}

test_groups_meet_at_a_port_of_their_run_only() {
    local where
    [[ ${compilers[*]} == *openmpi* ]] || return 0
    for where in 4 2; do
        foreign_run 0 openmpi groups -n 4 --per-node "$where" || return
        [ "$(grep -c '^merged 4' "$work/out")" = 2 ] || fail 'they have not met twice' || return
    done
    foreign_run 0 openmpi port -n 1 || return
    port=$(sed -n 's/^port //p' "$work/out")
    fiber_run 5 --oversubscribe -n 2 "${inside[@]}" "$work/check.openmpi" abroad "$port" || return
    says "no rank of this run has the port \"${port%%:*}\"" || return
}

test_a_session_makes_a_communicator_or_says_why_not() {
    local mpi where
    for mpi in "${compilers[@]}"; do
        for where in 4 2; do
            if [ "$mpi" = openmpi ]; then # PMIx 4 and 5 do not understand each other about groups
                foreign_run 3 "$mpi" session -n 4 --per-node "$where" || return
                says 'MPI sessions need PMIx 4 in both the program' || return
            else
                foreign_run 0 "$mpi" session -n 4 --per-node "$where" || return
                [ "$(grep -c '^mpi://WORLD: 4 of 4' "$work/out")" = 4 ] || fail 'not all are in it' || return
                [ "$(grep -c '^mpi://SELF: 1 of 1' "$work/out")" = 4 ] || fail 'not each is alone' || return
            fi
        done
    done
}

test_bad_ends_are_told() {
    local mpi
    for mpi in "${compilers[@]}"; do
        fiber_run 42 --oversubscribe -n 2 "${inside[@]}" "$work/check.$mpi" abort 42 || return
        foreign_run 1 "$mpi" leave -n 2 || return
        says 'without MPI_Finalize' || return
    done
}

run_tests test_collectives_agree_on_one_agent_and_two test_spawned_ranks_merge \
    test_a_ring_that_lost_a_rank_goes_on_and_grows_again \
    test_data_of_a_rank_that_is_lost_elsewhere_is_not_waited_for test_groups_meet_at_a_port_of_their_run_only \
    test_a_session_makes_a_communicator_or_says_why_not test_bad_ends_are_told
