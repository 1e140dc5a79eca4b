/* kubernetes_mpi.c - an MPI program that adds up until it is told to end; see kubernetes_away_test.sh.
 *
 * Each step is one MPI_Allreduce, a second after the one before: ranks that wait in it keep their processors busy. All
 * ranks check the sum. Rank 0 says each step; what it reads on its standard input, or the end of that, tells all ranks
 * to end.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <poll.h>
#include <stdio.h>

#define STEP_MS 1000

int main(int argc, char **argv)
{
    struct pollfd in = {.fd = 0, .events = POLLIN};
    long long mine[2], sum[2];
    int rank, size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (long long step = 0;; step++) {
        mine[0] = step * (rank + 1);
        mine[1] = poll(&in, rank == 0, STEP_MS) > 0;
        MPI_Allreduce(mine, sum, 2, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
        if (sum[0] != step * size * (size + 1) / 2) {
            printf("rank %d: step %lld is wrong: %lld\n", rank, step, sum[0]);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        if (sum[1])
            break;
        if (rank == 0)
            printf("step %lld\n", step);
        fflush(stdout);
    }
    printf("rank %d of %d: all sums were right\n", rank, size);
    MPI_Finalize();
    return 0;
}
