/* init_bench.c - an MPI program that tells when all ranks were out of MPI_Init: milliseconds after
 * START_NS.
 *
 * START_NS is CLOCK_REALTIME in nanoseconds, taken just before the launcher was started
 * (launch.py). Rank 0 prints one JSON object.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
    const char *start = getenv("START_NS");
    double out, last;
    int rank, size, one = 1, sum = 0;

    MPI_Init(&argc, &argv);
    out = now_ms();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Reduce(&out, &last, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("{\"init_ms\": %.3f, \"ranks\": %d}\n", start ? last - atof(start) / 1e6 : 0, sum);
    MPI_Finalize();
    return sum == size ? 0 : 1;
}
