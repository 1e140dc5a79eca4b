/* mpi_shrink.c - a ring that loses a rank and goes on: `fiber run -n 4 --on-failure shrink
 * mpi_shrink`.
 *
 * Rank 1 kills itself. The others learn of it from the call that they are in, agree on who is left
 * (MPIX_Comm_shrink), and add up again. That is User Level Failure Mitigation, which Open MPI has
 * from 5.0 on: mpirun's name for it is --with-ft ulfm; without mpirun OMPI_MCA_mpi_ft_enable=1 asks
 * for it. Where the MPI has none, the program says so.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>

#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#ifdef OMPI_HAVE_MPI_EXT_FTMPI

/* The sum of the ranks of `comm`; when somebody is gone, of those that are left, in a smaller
 * one. */
static int add_up(MPI_Comm *comm, int rank)
{
    MPI_Comm rest;
    int sum = 0;

    while (MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, *comm) != MPI_SUCCESS) {
        MPIX_Comm_revoke(*comm); /* a rank that waits in another call learns of it, too */
        MPIX_Comm_shrink(*comm, &rest);
        *comm = rest;
        MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
    }
    return sum;
}

int main(int argc, char **argv)
{
    MPI_Comm comm;
    int rank, size, sum;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    sum = add_up(&comm, rank);
    if (rank == 1)
        raise(SIGKILL);
    sum = add_up(&comm, rank);
    MPI_Comm_size(comm, &size);
    printf("rank %d: %d are left, and add up to %d\n", rank, size, sum);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}

#else

int main(int argc, char **argv)
{
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        puts("This MPI has no MPIX_Comm_shrink (Open MPI has it from 5.0 on): a ring of it cannot "
             "shrink.");
    MPI_Finalize();
    return 0;
}

#endif
