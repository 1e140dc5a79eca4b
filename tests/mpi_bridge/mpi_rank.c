/* mpi_rank.c - a rank of any MPI, for tests: compiled by the test with the MPI's own compiler.
 *
 *   mpi_rank [sum]   adds up the ranks and says "rank R of N on M nodes-mates, sum S"
 *   mpi_rank abort   rank 1 calls MPI_Abort(7), the others wait for ever
 *   mpi_rank name    rank 0 publishes a port, all look it up
 *   mpi_rank session the sum again, without MPI_Init (an MPI of version 4)
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static void sum(int rank, int size)
{
    int total = 0, near;
    MPI_Comm node;

    MPI_Allreduce(&rank, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &near);
    printf("rank %d of %d, %d on its node, sum %d\n", rank, size, near, total);
    MPI_Comm_free(&node);
}

static void name(int rank)
{
    char port[MPI_MAX_PORT_NAME] = "tag#0$port#1234$", found[MPI_MAX_PORT_NAME] = "";
    int rc = MPI_SUCCESS;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0)
        rc = MPI_Publish_name("the_name", MPI_INFO_NULL, port);
    printf("publish %d\n", rc);
    MPI_Barrier(MPI_COMM_WORLD);
    rc = MPI_Lookup_name("the_name", MPI_INFO_NULL, found);
    printf("lookup %d %s\n", rc, found);
    rc = MPI_Lookup_name("no_name", MPI_INFO_NULL, found);
    printf("no name %s\n", rc == MPI_SUCCESS ? "found" : "not found");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("unpublish %d\n", MPI_Unpublish_name("the_name", MPI_INFO_NULL, port));
}

#if MPI_VERSION >= 4
static int session(void)
{
    int rank, size, total = 0;
    MPI_Session s;
    MPI_Group g;
    MPI_Comm c;

    if (MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &s) != MPI_SUCCESS ||
        MPI_Group_from_session_pset(s, "mpi://WORLD", &g) != MPI_SUCCESS ||
        MPI_Comm_create_from_group(g, "test", MPI_INFO_NULL, MPI_ERRORS_RETURN, &c) != MPI_SUCCESS)
        return 1;
    MPI_Comm_rank(c, &rank);
    MPI_Comm_size(c, &size);
    MPI_Allreduce(&rank, &total, 1, MPI_INT, MPI_SUM, c);
    printf("rank %d of %d, sum %d\n", rank, size, total);
    MPI_Group_free(&g);
    MPI_Comm_free(&c);
    return MPI_Session_finalize(&s) != MPI_SUCCESS;
}
#endif

int main(int argc, char **argv)
{
    int rank, size;

#if MPI_VERSION >= 4
    if (argc > 1 && !strcmp(argv[1], "session"))
        return session();
#endif
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1 && !strcmp(argv[1], "abort")) {
        if (rank == 1)
            MPI_Abort(MPI_COMM_WORLD, 7);
        MPI_Recv(&rank, 1, MPI_INT, rank, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (argc > 1 && !strcmp(argv[1], "name")) {
        name(rank);
    } else {
        sum(rank, size);
    }
    MPI_Finalize();
    return 0;
}
