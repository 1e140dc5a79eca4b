# hosts_ring_test.sh - rings of two and four hosts: plain programs, Open MPI, MPICH, MPI_Comm_spawn.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/engines/hosts.sh
. "$(dirname "$0")/hosts.sh"

holds "a ring of two hosts" "$prog" ring 4 2 "$prog" who
says "rank 0 of 4 on h1" "rank 1 of 4 on h1" "rank 2 of 4 on h2" "rank 3 of 4 on h2"
holds "a relative program, in our directory" env -C "$(dirname "$prog")" "$prog" ring 2 2 ./hosts_prog who
says "rank 0 of 2 on h1" "rank 1 of 2 on h2"

four=$h1,$h2,$("$bed" address h3),$("$bed" address h4)
if "$prog" ring 3 3 "$prog" who >"$work/out" 2>&1; then failed "three nodes on two hosts"; fi
grep -q 'only 2 nodes can take jobs' "$work/out" || failed "it should say how many hosts there are"
echo "ok: more nodes than hosts"
FIBER_COMMAND_HOSTS=$four holds "a ring of four hosts" "$prog" ring 8 4 "$prog" who
says "rank 0 of 8 on h1" "rank 1 of 8 on h1" "rank 2 of 8 on h2" "rank 3 of 8 on h2" \
    "rank 4 of 8 on h3" "rank 5 of 8 on h3" "rank 6 of 8 on h4" "rank 7 of 8 on h4"

tests=$TEST_SOURCE_DIR/tests
tells() { grep -qxF -- "$1" "$work/out" || failed "it should have said: $1"; } # beside what UCX says
if command -v mpicc.openmpi >/dev/null && [[ -e $TEST_BINARY_DIR/fiber/pmix.so ]]; then
    mpicc.openmpi -o "$work/ranks" "$tests/mpi_bridge/ranks_mpi.c"
    holds "Open MPI over two hosts" "$prog" ring 4 2 "$work/ranks" hello
    says "rank 0: sum is right" "rank 1: sum is right" "rank 2: sum is right" "rank 3: sum is right"
    FIBER_COMMAND_HOSTS=$four holds "Open MPI over four hosts" "$prog" ring 4 4 "$work/ranks" hello
    says "rank 0: sum is right" "rank 1: sum is right" "rank 2: sum is right" "rank 3: sum is right"
    holds "MPI_Comm_spawn over two hosts" "$prog" ring 2 2 "$work/ranks" spawn
    says "child 0: together 4" "child 1: together 4" "parent 0: together 4" "parent 1: together 4"
    mpicc.openmpi -O1 -o "$work/check" "$tests/system/ring_mpi/check.c"
    holds "eight ranks of Open MPI on two hosts" "$prog" ring 8 2 "$work/check" collectives
    says "collectives: 8 ranks agree"
    for n in 2 4; do
        holds "windows of $n ranks on two hosts" "$prog" ring $n 2 "$work/check" window
        tells "window: $n ranks agree"
    done
    holds "eight that spawn four" "$prog" ring 8 2 "$work/check" spawn
    says "merged 12" "spawn: 8 ranks agree"
else
    echo "skip: Open MPI (needs mpicc.openmpi and the PMIx module)"
fi

# Another release, in a root tree (ring_foreign_test.sh): its ranks come with libpmix 5.
root=${TEST_FOREIGN:-${TEST_BED_DATA:-/var/lib/fiber-beds}/foreign}
inside=(chroot "$root")
cp "$tests/system/ring_mpi/check.c" "$work"
if "$bed" exec h1 test -d "$root/proc/self" && [[ -d $root$work && -e $TEST_BINARY_DIR/fiber/pmix.so ]] &&
    "${inside[@]}" mpicc.openmpi -O1 -o "$work/foreign" "$work/check.c" 2>/dev/null; then
    for host in h1 h2; do
        "$bed" exec $host mount --bind /dev/shm "$root/dev/shm" # the host's own, as for its agent
    done
    for n in 2 8; do
        holds "$n ranks of an Open MPI of another release on two hosts" "$prog" ring $n 2 "${inside[@]}" "$work/foreign" collectives
        says "collectives: $n ranks agree"
        holds "their windows" "$prog" ring $n 2 "${inside[@]}" "$work/foreign" window
        tells "window: $n ranks agree"
        holds "they spawn four" "$prog" ring $n 2 "${inside[@]}" "$work/foreign" spawn "${inside[@]}" "$work/foreign"
        says "merged $((n + 4))" "spawn: $n ranks agree"
    done
    for host in h1 h2; do
        "$bed" exec $host umount "$root/dev/shm"
    done
else
    echo "skip: an MPI of another release (needs a tree that TEST_FOREIGN names)"
fi

# MPICH 4.0 with UCX can hang in MPI_Finalize when ranks on two hosts have talked to each other, under its own mpiexec too:
# who waits for its peer's answer does so in the bootstrap's barrier, where UCX makes no progress. So they do not talk.
if command -v mpicc.mpich >/dev/null; then
    mpicc.mpich -o "$work/hello" "$tests/engines/hosts_mpi.c"
    holds "MPICH over two hosts" "$prog" ring 4 2 "$work/hello"
    says "MPI rank 0 of 4" "MPI rank 1 of 4" "MPI rank 2 of 4" "MPI rank 3 of 4"
else
    echo "skip: MPICH (needs mpicc.mpich)"
fi
nothing_left
