/* stuck_prog.c - ranks of which number 1 is somewhere else, until a byte comes through the FIFO that is named; then all
 * go on to the end, and rank 0 says the sum of their numbers. With Open MPI when compiled with -DWITH_MPI, else rank 0
 * alone, and nothing is added up.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef WITH_MPI
#include <mpi.h>
#endif

/* They are looked for by their names. */
void somewhere_else(const char *gate);
void all_together(int rank, const char *gate);

__attribute__((noinline)) void somewhere_else(const char *gate)
{
    int fd = open(gate, O_RDONLY | O_CLOEXEC);
    char byte;

    if (fd < 0 || read(fd, &byte, 1) != 1)
        exit(1);
    close(fd);
}

__attribute__((noinline)) void all_together(int rank, const char *gate)
{
#ifdef WITH_MPI
    int sum = 0;

    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("sum %d\n", sum);
#else
    if (rank != 1)
        somewhere_else(gate);
    if (rank == 0)
        printf("sum 6\n");
#endif
}

int main(int argc, char **argv)
{
    const char *number = getenv("FIBER_RANK");
    int rank = number ? atoi(number) : 0;

    if (argc < 2)
        return 2;
#ifdef WITH_MPI
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#endif
    if (rank == 1)
        somewhere_else(argv[1]);
    all_together(rank, argv[1]);
#ifdef WITH_MPI
    MPI_Finalize();
#endif
    return 0;
}
