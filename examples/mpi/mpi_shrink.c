/* mpi_shrink.c - a ring that loses a rank and continues: `fiber run -n 4 --on-failure shrink
 * mpi_shrink`.
 *
 * Rank 1 kills itself. The other ranks learn this from an error of their current call, agree on the
 * remaining ranks (MPIX_Comm_shrink), and add up again. This is User Level Failure Mitigation,
 * which Open MPI has from 5.0 on. mpirun turns it on with --with-ft ulfm; without mpirun
 * OMPI_MCA_mpi_ft_enable=1 does. If the MPI does not have it, the program prints a message.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>

#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#ifdef OMPI_HAVE_MPI_EXT_FTMPI

/* Returns the sum of the ranks of `comm`. If a rank is gone, makes *comm the smaller communicator
 * of the remaining ranks, and returns their sum. */
static int add_up(MPI_Comm *comm, int rank)
{
    MPI_Comm rest;
    int sum = 0;

    while (MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, *comm) != MPI_SUCCESS) {
        MPIX_Comm_revoke(*comm); /* a rank that waits in another call learns of the death, too */
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
