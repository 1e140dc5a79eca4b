/* ranks_mpi.c - an ordinary MPI program in several roles, for pmix_test.c.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int me, all;
static const char *program;

/* How many ranks the communicator has, by an allreduce of all of them. */
static int count(MPI_Comm comm)
{
    int one = 1, sum = 0;

    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    return sum;
}

static void hello(void)
{
    int x = me + 1, sum = 0;

    MPI_Allreduce(&x, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d: sum is %s\n", me, sum == all * (all + 1) / 2 ? "right" : "wrong");
}

/* The last rank is a service that rank 0 finds by its name, twice with the same port. */
static void names(void)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm both;
    int e;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (me == all - 1) {
        MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Publish_name("fiber-test", MPI_INFO_NULL, port);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == 0) {
        e = MPI_Lookup_name("fiber-test", MPI_INFO_NULL, port);
        printf("lookup %s\n", e == MPI_SUCCESS && port[0] ? "found it" : "failed");
        e = MPI_Lookup_name("fiber-nobody", MPI_INFO_NULL, port);
        printf("lookup of nobody %s\n", e == MPI_SUCCESS ? "found it" : "failed");
        MPI_Lookup_name("fiber-test", MPI_INFO_NULL, port);
    }
    for (int i = 0; i < 2; i++) {
        if (me == all - 1)
            MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &both);
        else if (me == 0)
            MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &both);
        else
            continue;
        MPI_Intercomm_merge(both, me == 0, &both);
        printf("rank %d: %d are connected\n", me, count(both));
        MPI_Comm_disconnect(&both);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == all - 1) {
        MPI_Unpublish_name("fiber-test", MPI_INFO_NULL, port);
        MPI_Close_port(port);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == 0) {
        e = MPI_Lookup_name("fiber-test", MPI_INFO_NULL, port);
        printf("lookup after the end %s\n", e == MPI_SUCCESS ? "found it" : "failed");
    }
}

static void spawn(void)
{
    char *argv[] = {"child", NULL};
    MPI_Comm children, together;

    MPI_Comm_spawn(program, argv, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children,
                   MPI_ERRCODES_IGNORE);
    MPI_Intercomm_merge(children, 0, &together);
    printf("parent %d: together %d\n", me, count(together));
    MPI_Comm_free(&together); /* Open MPI 5.0.7 crashes in MPI_Finalize otherwise */
    MPI_Comm_disconnect(&children);
}

static void child(void)
{
    MPI_Comm parent, together;

    MPI_Comm_get_parent(&parent);
    if (parent == MPI_COMM_NULL) {
        printf("child %d: has no parent\n", me);
        return;
    }
    MPI_Intercomm_merge(parent, 1, &together);
    printf("child %d: together %d\n", me, count(together));
    MPI_Comm_free(&together);
    MPI_Comm_disconnect(&parent);
}

int main(int argc, char **argv)
{
    const char *role = argc > 1 ? argv[1] : "hello";

    program = argv[0];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    if (strcmp(role, "hello") == 0)
        hello();
    else if (strcmp(role, "names") == 0)
        names();
    else if (strcmp(role, "spawn") == 0)
        spawn();
    else if (strcmp(role, "child") == 0)
        child();
    else if (strcmp(role, "abort") == 0 && me == all - 1)
        MPI_Abort(MPI_COMM_WORLD, 7);
    else if (strcmp(role, "abort") == 0)
        pause();
    else if (strcmp(role, "die") == 0 && me == all - 1)
        raise(SIGKILL);
    else if (strcmp(role, "die") == 0)
        count(MPI_COMM_WORLD);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
