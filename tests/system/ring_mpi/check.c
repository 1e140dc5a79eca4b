/* check.c - an ordinary MPI program that checks what it gets: each kind of collective, windows, names, spawned ranks;
 * and ways to end badly. Compiled by the tests with every mpicc that is there.
 *
 *     check collectives | window | names | groups | session | port        end well
 *     check spawn [COMMAND...] | spawned                                  COMMAND... starts this program
 *     check regrow [COMMAND...]                                           the same after a death (ULFM)
 *     check programs | program NUMBER                                     two, spawned together
 *     check desert                                                        all but the last rank, which leaves at once
 *     check among NUMBER                                                  that program of a ring of two
 *     check abort CODE | leave | segv | kill | orphan | work | abroad PORT   do not
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#define LARGE (4 << 20)

static int rank, size;

static void wrong(const char *what, int at)
{
    fprintf(stderr, "rank %d of %d: %s is wrong at %d\n", rank, size, what, at);
    MPI_Abort(MPI_COMM_WORLD, 99);
}

/* The byte that rank r has at i; salt keeps one check from passing on what another left. */
static unsigned char byte_of(int r, int i, int salt)
{
    return (unsigned char)((unsigned)r * 37u + (unsigned)i * 11u + ((unsigned)i >> 8) +
                           (unsigned)salt);
}

static void fill(unsigned char *b, int n, int r, int salt)
{
    for (int i = 0; i < n; i++)
        b[i] = byte_of(r, i, salt);
}

static void same(const unsigned char *b, int n, int r, int salt, const char *what)
{
    for (int i = 0; i < n; i++)
        if (b[i] != byte_of(r, i, salt))
            wrong(what, i);
}

static void *room(size_t n)
{
    void *p = malloc(n ? n : 1);

    if (!p)
        wrong("malloc", (int)n);
    return p;
}

/* ---- Collectives ---- */

static void check_moves(int n)
{
    unsigned char *one = room((size_t)n), *all = room((size_t)n * (size_t)size),
                  *back = room((size_t)n * (size_t)size);
    int root = size - 1;

    fill(one, n, rank == root ? root : rank + 100, 1);
    MPI_Bcast(one, n, MPI_BYTE, root, MPI_COMM_WORLD);
    same(one, n, root, 1, "bcast");

    fill(one, n, rank, 2);
    MPI_Gather(one, n, MPI_BYTE, all, n, MPI_BYTE, root, MPI_COMM_WORLD);
    for (int r = 0; rank == root && r < size; r++)
        same(all + (size_t)r * (size_t)n, n, r, 2, "gather");

    MPI_Scatter(all, n, MPI_BYTE, back, n, MPI_BYTE, root, MPI_COMM_WORLD);
    same(back, n, rank, 2, "scatter");

    fill(one, n, rank, 3);
    MPI_Allgather(one, n, MPI_BYTE, all, n, MPI_BYTE, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
        same(all + (size_t)r * (size_t)n, n, r, 3, "allgather");

    for (int r = 0; r < size; r++)
        fill(all + (size_t)r * (size_t)n, n, rank * size + r, 4);
    MPI_Alltoall(all, n, MPI_BYTE, back, n, MPI_BYTE, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
        same(back + (size_t)r * (size_t)n, n, r * size + rank, 4, "alltoall");
    free(one);
    free(all);
    free(back);
}

static void check_sums(int n)
{
    int64_t *in = room((size_t)n * 8), *out = room((size_t)n * 8),
            total = (int64_t)size * (size + 1) / 2, sum = (int64_t)(rank + 1) * (rank + 2) / 2;

    for (int i = 0; i < n; i++)
        in[i] = (int64_t)(rank + 1) * (i + 1);
    MPI_Allreduce(in, out, n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++)
        if (out[i] != total * (i + 1))
            wrong("allreduce", i);
    memset(out, 0, (size_t)n * 8);
    MPI_Reduce(in, out, n, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < n; i++)
        if (out[i] != (int64_t)size * (i + 1))
            wrong("reduce", i);
    MPI_Scan(in, out, n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++)
        if (out[i] != sum * (i + 1))
            wrong("scan", i);
    free(in);
    free(out);
}

static void check_ring(int n)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    unsigned char *out = room((size_t)n), *in = room((size_t)n);
    MPI_Status status;
    int got;

    fill(out, n, rank, n);
    MPI_Sendrecv(out, n, MPI_BYTE, right, 5, in, n, MPI_BYTE, left, 5, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &got);
    if (got != n || status.MPI_SOURCE != left)
        wrong("what sendrecv says", got);
    same(in, n, left, n, "sendrecv");
    free(out);
    free(in);
}

static void check_split(void)
{
    int colour = rank % 2, sub, subsize, sum, want = 0;
    MPI_Comm half, copy;

    MPI_Comm_split(MPI_COMM_WORLD, colour, -rank, &half); /* in the other order */
    MPI_Comm_rank(half, &sub);
    MPI_Comm_size(half, &subsize);
    for (int r = colour; r < size; r += 2)
        want += r;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, half);
    if (sum != want || subsize != (size + 1 - colour) / 2)
        wrong("split", sum);
    MPI_Comm_dup(half, &copy);
    MPI_Barrier(copy);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&half);
}

static void check_collectives(void)
{
    static const int sizes[] = {1, 7, 1024, 65537, 1 << 20, LARGE};

    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
        check_ring(sizes[k]);
        check_moves(sizes[k] > LARGE / 4 ? LARGE / size : sizes[k]); /* times as many ranks */
        check_sums(sizes[k] / 8 + 1);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    check_split();
}

static void check_window(void)
{
    int *base, n = 1000, right = (rank + 1) % size, left = (rank + size - 1) % size, one = 1, count;
    MPI_Win win;

    MPI_Win_allocate((MPI_Aint)(2 * n * (int)sizeof(int)), sizeof(int), MPI_INFO_NULL,
                     MPI_COMM_WORLD, &base, &win);
    for (int i = 0; i < n; i++) {
        base[i] = rank * n + i;
        base[n + i] = 0;
    }
    MPI_Win_fence(0, win);
    MPI_Put(base, n, MPI_INT, right, n, n, MPI_INT, win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < n; i++)
        if (base[n + i] != left * n + i)
            wrong("put", i);
    base[0] = 0;
    MPI_Win_fence(0, win);
    MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win);
    MPI_Win_fence(0, win);
    MPI_Get(&count, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
    MPI_Win_fence(0, win);
    if (count != size)
        wrong("accumulate", count);
    MPI_Win_free(&win);
}

/* ---- Others ---- */

/* Rank 0 takes back what it published; the others then find nothing. */
static void check_names(void)
{
    char port[MPI_MAX_PORT_NAME] = "", found[MPI_MAX_PORT_NAME] = "";
    int rc;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0) {
        snprintf(port, sizeof(port), "a port, with = and; signs");
        if (MPI_Publish_name("fiber check", MPI_INFO_NULL, port) != MPI_SUCCESS)
            wrong("publish", 0);
    }
    MPI_Bcast(port, sizeof(port), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (MPI_Lookup_name("fiber check", MPI_INFO_NULL, found) != MPI_SUCCESS ||
        strcmp(found, port) != 0)
        wrong("lookup", 0);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0 && MPI_Unpublish_name("fiber check", MPI_INFO_NULL, port) != MPI_SUCCESS)
        wrong("unpublish", 0);
    MPI_Barrier(MPI_COMM_WORLD);
    rc = MPI_Lookup_name("fiber check", MPI_INFO_NULL, found);
    if (rc == MPI_SUCCESS)
        wrong("a name that was taken back", 0);
}

static void sum_of_all(MPI_Comm inter, int high)
{
    int all, sum, one = 1;
    MPI_Comm merged;

    MPI_Intercomm_merge(inter, high, &merged);
    MPI_Comm_size(merged, &all);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, merged);
    if (sum != all)
        wrong("merge", sum);
    if (rank == 0 && !high)
        printf("merged %d\n", all);
    MPI_Comm_free(&merged);
    MPI_Comm_disconnect(&inter);
}

static void spawn(int argc, char **command, int count, MPI_Comm comm)
{
    char *argv[16] = {NULL};
    int codes[4] = {-1, -1, -1, -1}, n = 0;
    MPI_Comm inter;

    while (n + 1 < argc && n < 14) {
        argv[n] = command[n + 1];
        n++;
    }
    argv[n] = (char *)"spawned";
    MPI_Comm_spawn(command[0], argv, count, MPI_INFO_NULL, 0, comm, &inter, codes);
    for (int i = 0; i < count; i++)
        if (codes[i] != MPI_SUCCESS)
            wrong("spawn", i);
    sum_of_all(inter, 0);
}

/* Four, so that each of two agents has two that share memory; or CHECK_SPAWN. */
static void check_spawn(int argc, char **command)
{
    const char *count = getenv("CHECK_SPAWN");

    spawn(argc, command, count ? atoi(count) : 4, MPI_COMM_WORLD);
}

/* A rank dies in the middle of collectives: the others go on, and are as many as before. */
static int check_regrow(int argc, char **command)
{
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
    MPI_Comm comm = MPI_COMM_WORLD, rest;
    int sum, left, one = 1;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1)
        raise(SIGKILL);
    while (MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS) {
        MPIX_Comm_revoke(comm);
        MPIX_Comm_shrink(comm, &rest);
        comm = rest;
    }
    MPI_Comm_size(comm, &left);
    if (left != size - 1 || sum != left)
        wrong("what is left", left);
    spawn(argc, command, 1, comm);
    if (rank == 0)
        printf("regrow: %d ranks agree\n", size);
    MPI_Finalize();
    return 0;
#else
    return 3;
#endif
}

static void be_spawned(void)
{
    MPI_Comm parent;

    MPI_Comm_get_parent(&parent);
    if (parent == MPI_COMM_NULL)
        wrong("the parent", 0);
    check_ring(1 << 20);
    check_moves(1 << 16);
    sum_of_all(parent, 1);
    if (getenv("STAY")) /* until somebody opens this FIFO to write */
        close(open(getenv("STAY"), O_RDONLY));
}

/* One rank of the first, three of the second: each is told which one it runs. */
static void check_programs(char *self)
{
    char *commands[] = {self, self}, *first[] = {(char *)"program", (char *)"0", NULL},
         *second[] = {(char *)"program", (char *)"1", NULL}, **arguments[] = {first, second};
    MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
    int counts[] = {1, 3};
    MPI_Comm inter;

    MPI_Comm_spawn_multiple(2, commands, arguments, counts, infos, 0, MPI_COMM_WORLD, &inter,
                            MPI_ERRCODES_IGNORE);
    sum_of_all(inter, 0);
}

static void check_number(int which)
{
    int *number, there;

    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &there);
    if (!there || *number != which || which != (rank > 0))
        wrong("the number of the program", there ? *number : -1);
}

static void be_program(int which)
{
    MPI_Comm parent;

    check_number(which);
    MPI_Comm_get_parent(&parent);
    sum_of_all(parent, 1);
}

static void be_among(int which)
{
    check_number(which);
    check_collectives();
}

/* The even ranks and the odd ones meet at a port, twice. */
static void check_groups(void)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm half, inter;

    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    for (int i = 0; i < 2; i++) {
        if (rank == 0)
            MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Bcast(port, sizeof(port), MPI_BYTE, 0, MPI_COMM_WORLD);
        if (rank % 2 == 0)
            MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &inter);
        else
            MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &inter);
        sum_of_all(inter, rank % 2);
        if (rank == 0)
            MPI_Close_port(port);
    }
    MPI_Comm_free(&half);
}

static void report_port(void)
{
    char port[MPI_MAX_PORT_NAME] = "";

    if (rank == 0) {
        MPI_Open_port(MPI_INFO_NULL, port);
        printf("port %s\n", port);
        fflush(stdout);
    }
}

/* At the port of a run that is over, and by a name that nobody has published: both fail. */
static void go_abroad(char *port)
{
    char found[MPI_MAX_PORT_NAME] = "";
    MPI_Comm inter;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter) == MPI_SUCCESS)
        wrong("connect", 0);
    if (MPI_Lookup_name("fiber abroad", MPI_INFO_NULL, found) == MPI_SUCCESS)
        wrong("lookup", 0);
    if (rank == 0)
        MPI_Abort(MPI_COMM_WORLD, 5);
    for (;;)
        pause();
}

/* A communicator without MPI_Init: of all ranks, and of each alone. */
static int check_session(void)
{
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
    static const char *const sets[] = {"mpi://WORLD", "mpi://SELF"};
    MPI_Session session;

    if (MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) != MPI_SUCCESS)
        return 3;
    for (int i = 0; i < 2; i++) {
        int one = 1, sum = 0, all = 0, rc;
        MPI_Group group;
        MPI_Comm comm;

        rc = MPI_Group_from_session_pset(session, sets[i], &group);
        if (rc == MPI_SUCCESS)
            rc =
                MPI_Comm_create_from_group(group, sets[i], MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm);
        if (rc != MPI_SUCCESS)
            return 3;
        MPI_Comm_size(comm, &all);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
        printf("%s: %d of %d\n", sets[i], sum, all);
        MPI_Group_free(&group);
        MPI_Comm_free(&comm);
    }
    MPI_Session_finalize(&session);
#endif
    return 0;
}

static void work_for_ever(void)
{
    int sum;

    if (rank == 0 && fork() == 0) { /* what it forked has to go too */
        for (;;)
            pause();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        puts("working");
        fflush(stdout);
    }
    for (;;)
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

/* The last rank ends badly; the others wait for it. */
static void end_badly(const char *how, const char *code)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1) {
        if (strcmp(how, "abort") == 0)
            MPI_Abort(MPI_COMM_WORLD, atoi(code));
        else if (strcmp(how, "leave") == 0)
            _exit(0);
        else if (strcmp(how, "kill") == 0)
            raise(SIGKILL);
        else if (strcmp(how, "orphan") == 0)
            kill(getppid(), SIGKILL);
        else
            raise(SIGSEGV);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The last rank leaves without a word. The others do not wait for it in MPI_Finalize, not even if ranks that were
 * spawned stay longer. */
static int check_desert(int argc, char **command)
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (getenv("STAY"))
        spawn(argc, command, 2, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1)
        _exit(0);
    MPI_Finalize();
    printf("rank %d has finalized\n", rank);
    return 0;
}

typedef void check_fn(void);

static check_fn *plain_check(const char *what)
{
    static const struct {
        const char *name;
        check_fn *run;
    } list[] = {{"collectives", check_collectives},
                {"window", check_window},
                {"names", check_names},
                {"groups", check_groups},
                {"port", report_port},
                {"spawned", be_spawned},
                {"work", work_for_ever}};

    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
        if (strcmp(what, list[i].name) == 0)
            return list[i].run;
    return NULL;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int more = argc > 2 ? argc - 2 : 1;
    char **command = argc > 2 ? argv + 2 : argv;

    if (strcmp(what, "session") == 0)
        return check_session();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (plain_check(what))
        plain_check(what)();
    else if (strcmp(what, "spawn") == 0)
        check_spawn(more, command);
    else if (strcmp(what, "regrow") == 0)
        return check_regrow(more, command);
    else if (strcmp(what, "desert") == 0)
        return check_desert(more, command);
    else if (strcmp(what, "programs") == 0)
        check_programs(argv[0]);
    else if (strcmp(what, "program") == 0)
        be_program(atoi(argv[2]));
    else if (strcmp(what, "among") == 0)
        be_among(atoi(argv[2]));
    else if (strcmp(what, "abroad") == 0)
        go_abroad(argv[2]);
    else
        end_badly(what, argc > 2 ? argv[2] : "1");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0 && strcmp(what, "spawned") != 0 && strcmp(what, "program") != 0)
        printf("%s: %d ranks agree\n", what, size);
    MPI_Finalize();
    return 0;
}
