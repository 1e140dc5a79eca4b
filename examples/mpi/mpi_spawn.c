/* mpi_spawn.c - a ring that grows: MPI_Comm_spawn starts more ranks of the same program, and both
 * become one world.
 *
 * `fiber run -n 2 mpi_spawn`: the first two ranks spawn two more. Fiber starts, pins and watches
 * the new ranks like the first ones.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <stdio.h>

#define MORE 2

int main(int argc, char **argv)
{
    MPI_Comm parent, others, all;
    int rank, size, sum;

    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent == MPI_COMM_NULL)
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, MORE, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &others,
                       MPI_ERRCODES_IGNORE);
    else
        others = parent;
    MPI_Intercomm_merge(others, parent != MPI_COMM_NULL, &all); /* the first ranks come first */
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all);
    printf("rank %d of %d, %s: the ranks add up to %d\n", rank, size,
           parent == MPI_COMM_NULL ? "from the start" : "spawned", sum);
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&others);
    MPI_Finalize();
    return 0;
}
