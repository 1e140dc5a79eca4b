# hosts_ring_test.sh - rings of two and four hosts: plain programs, Open MPI, MPICH, MPI_Comm_spawn.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/system/hosts.sh
. "$(dirname "$0")/hosts.sh"

holds "a ring of two hosts" "$prog" ring 4 2 "$prog" who
says "rank 0 of 4 on h1" "rank 1 of 4 on h1" "rank 2 of 4 on h2" "rank 3 of 4 on h2"
holds "a relative program, in our directory" env -C "$(dirname "$prog")" "$prog" ring 2 2 ./hosts_prog who
says "rank 0 of 2 on h1" "rank 1 of 2 on h2"

four=$h1,$h2,$("$bed" address h3),$("$bed" address h4)
FIBER_COMMAND_HOSTS=$four holds "a ring of four hosts" "$prog" ring 8 4 "$prog" who
says "rank 0 of 8 on h1" "rank 1 of 8 on h1" "rank 2 of 8 on h2" "rank 3 of 8 on h2" \
    "rank 4 of 8 on h3" "rank 5 of 8 on h3" "rank 6 of 8 on h4" "rank 7 of 8 on h4"

tests=$TEST_SOURCE_DIR/tests
if command -v mpicc.openmpi >/dev/null && [[ -e $TEST_BINARY_DIR/fiber/pmix.so ]]; then
    mpicc.openmpi -o "$work/ranks" "$tests/mpi_bridge/ranks_mpi.c"
    holds "Open MPI over two hosts" "$prog" ring 4 2 "$work/ranks" hello
    says "rank 0: sum is right" "rank 1: sum is right" "rank 2: sum is right" "rank 3: sum is right"
    FIBER_COMMAND_HOSTS=$four holds "Open MPI over four hosts" "$prog" ring 4 4 "$work/ranks" hello
    says "rank 0: sum is right" "rank 1: sum is right" "rank 2: sum is right" "rank 3: sum is right"
    holds "MPI_Comm_spawn over two hosts" "$prog" ring 2 2 "$work/ranks" spawn
    says "child 0: together 4" "child 1: together 4" "parent 0: together 4" "parent 1: together 4"
else
    echo "skip: Open MPI (needs mpicc.openmpi and the PMIx module)"
fi

# MPICH 4.0 with UCX can hang in MPI_Finalize when ranks on two hosts have talked to each other, under its own mpiexec too:
# who waits for its peer's answer does so in the bootstrap's barrier, where UCX makes no progress. So they do not talk.
if command -v mpicc.mpich >/dev/null; then
    mpicc.mpich -o "$work/hello" "$tests/system/hosts_mpi.c"
    holds "MPICH over two hosts" "$prog" ring 4 2 "$work/hello"
    says "MPI rank 0 of 4" "MPI rank 1 of 4" "MPI rank 2 of 4" "MPI rank 3 of 4"
else
    echo "skip: MPICH (needs mpicc.mpich)"
fi
nothing_left
