/* hosts_mpi.c - an MPI program whose ranks meet at the start and the end, and send nothing; see hosts_ring_test.sh.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("MPI rank %d of %d\n", rank, size);
    MPI_Finalize();
    return 0;
}
