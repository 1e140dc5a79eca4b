/* pmi2_rank.c - a client of PMI-2, for tests: compiled by the test against Slurm's libpmi2.
 *
 *   pmi2_rank all      does everything but what follows, and says how it went
 *   pmi2_rank abort    rank 1 aborts, the others wait for ever
 *   pmi2_rank spawn    rank 0 spawns two of "pmi2_rank child" and one of "pmi2_rank other"
 *   pmi2_rank alone    rank 0 says that only it ends, and all end well
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/pmi2.h>

static int rank, size;
static char job[PMI2_MAX_VALLEN];

static void must(int ok, const char *what)
{
    if (ok)
        return;
    printf("rank %d: %s\n", rank, what);
    exit(1);
}

/* As long as can be, and with what the messages are made of in it. */
static void make_value(char value[PMI2_MAX_VALLEN], int of, int round)
{
    int n = snprintf(value, PMI2_MAX_VALLEN, "%d;of;;%d=%d\n;", of, size, round);

    if (round == 0)
        memset(value + n, 'x', (size_t)(PMI2_MAX_VALLEN - 1 - n));
    value[round == 0 ? PMI2_MAX_VALLEN - 1 : n] = 0;
}

static void keys(int round)
{
    char key[PMI2_MAX_KEYLEN], value[PMI2_MAX_VALLEN], found[PMI2_MAX_VALLEN + 1];
    int len;

    snprintf(key, sizeof(key), "key-%d", rank);
    make_value(value, rank, round);
    must(PMI2_KVS_Put(key, value) == 0, "put");
    must(PMI2_KVS_Fence() == 0, "fence");
    for (int i = 0; i < size; i++) {
        snprintf(key, sizeof(key), "key-%d", i);
        make_value(value, i, round);
        must(PMI2_KVS_Get(i % 2 ? job : NULL, i, key, found, sizeof(found), &len) == 0, "get");
        must(!strcmp(found, value) && len == (int)strlen(value), "other value");
    }
    must(PMI2_KVS_Get(job, PMI2_ID_NULL, "no-such-key", found, sizeof(found), &len) != 0, "found");
    must(PMI2_KVS_Get("no-such-job", 0, key, found, sizeof(found), &len) != 0, "other job");
    must(PMI2_KVS_Fence() == 0, "second fence");
}

/* The first rank of a node tells the others of it. */
static void node(void)
{
    char value[PMI2_MAX_ATTRVALUE], mapping[PMI2_MAX_ATTRVALUE], number[16];
    int array[8], n, found;

    must(PMI2_Info_GetNodeAttr("nobody puts this", value, sizeof(value), &found, 0) == 0 && !found,
         "node attribute out of nothing");
    snprintf(number, sizeof(number), "%d", rank);
    if (getenv("FIRST_OF_NODE") && strstr(getenv("FIRST_OF_NODE"), number)) {
        must(PMI2_Info_PutNodeAttr("numbers", "3,1,4") == 0, "put node attribute");
    } else {
        must(PMI2_Info_GetNodeAttr("numbers", value, sizeof(value), &found, 1) == 0 && found,
             "node attribute");
        must(!strcmp(value, "3,1,4"), "other node attribute");
    }
    must(PMI2_Info_GetNodeAttrIntArray("numbers", array, 8, &n, &found) == 0 && found && n == 3 &&
             array[2] == 4,
         "node attribute as array");
    must(PMI2_Info_GetJobAttr("PMI_process_mapping", mapping, sizeof(mapping), &found) == 0 &&
             found,
         "mapping");
    must(PMI2_Info_GetJobAttrIntArray("universeSize", array, 8, &n, &found) == 0 && found &&
             n == 1 && array[0] == size,
         "universe size");
    must(PMI2_Info_GetJobAttr("hasNameServ", value, sizeof(value), &found) == 0 && found &&
             !strcmp(value, "TRUE"),
         "name server");
    must(PMI2_Info_GetJobAttr("physTopology", value, sizeof(value), &found) == 0 && found,
         "topology");
    must(PMI2_Info_GetJobAttr("no such", value, sizeof(value), &found) == 0 && !found,
         "job attribute out of nothing");
    if (rank == 0)
        printf("%s %s\n", mapping, value);
}

static void names(void)
{
    char port[PMI2_MAX_VALLEN];

    if (rank == size - 1)
        must(PMI2_Nameserv_publish("the-name", NULL, "tag#0$x;y$") == 0, "publish");
    must(PMI2_KVS_Fence() == 0, "fence");
    must(PMI2_Nameserv_lookup("the-name", NULL, port, sizeof(port)) == 0, "lookup");
    must(!strcmp(port, "tag#0$x;y$"), "other port");
    must(PMI2_Nameserv_lookup("no-name", NULL, port, sizeof(port)) != 0, "name out of nothing");
    must(PMI2_KVS_Fence() == 0, "fence");
    if (rank == size - 1)
        must(PMI2_Nameserv_unpublish("the-name", NULL) == 0, "unpublish");
    must(PMI2_KVS_Fence() == 0, "fence");
    must(PMI2_Nameserv_lookup("the-name", NULL, port, sizeof(port)) != 0, "taken back");
}

static void ring(void)
{
    char mine[32], left[64], right[64], expected[64];
    int at, n;

    snprintf(mine, sizeof(mine), "value of %d", rank);
    must(PMIX_Ring(mine, &at, &n, left, right, sizeof(left)) == 0, "ring");
    must(at == rank && n == size, "place in the ring");
    snprintf(expected, sizeof(expected), "value of %d", (rank + size - 1) % size);
    must(!strcmp(left, expected), "left neighbour");
    snprintf(expected, sizeof(expected), "value of %d", (rank + 1) % size);
    must(!strcmp(right, expected), "right neighbour");
}

static void all(void)
{
    for (int round = 0; round < 3; round++)
        keys(round);
    node();
    names();
    ring();
    must(PMI2_Job_Connect("elsewhere", NULL) != 0, "connect");
    must(PMI2_Job_Disconnect("elsewhere") != 0, "disconnect");
    printf("rank %d of %d\n", rank, size);
}

static void spawn(const char *self)
{
    const char *cmds[] = {self, self}, *first[] = {"child", "a b;c"}, *second[] = {"other"};
    const char **argvs[] = {first, second};
    int argcs[] = {2, 1}, counts[] = {2, 1}, infos[] = {1, 0}, errors[3];
    char key[] = "wdir", dir[] = "/", left[] = "for-the-child", text[] = "left; behind";
    MPID_Info wdir = {.key = key, .value = dir}, preput = {.key = left, .value = text};
    const MPID_Info *vectors[] = {&wdir, NULL}, *preputs[] = {&preput};
    char id[PMI2_MAX_VALLEN];

    must(PMI2_Job_Spawn(2, cmds, argcs, argvs, counts, infos, vectors, 1, preputs, id, sizeof(id),
                        errors) == 0,
         "spawn");
    must(*id && strcmp(id, job) != 0, "name of the new job");
    argcs[0] = 0;
    counts[0] = 0; /* none at all */
    must(PMI2_Job_Spawn(1, cmds, argcs, argvs, counts, infos, vectors, 0, NULL, id, sizeof(id),
                        errors) != 0,
         "spawn of nothing");
    printf("spawned\n");
}

static void child(const char *what, const char *arg, int spawned)
{
    char value[PMI2_MAX_ATTRVALUE] = "";
    int found;

    must(spawned, "is not told that it was spawned");
    must(PMI2_Info_GetJobAttr("for-the-child", value, sizeof(value), &found) == 0 && found,
         "what was left for it");
    keys(1);
    printf("%s %d of %d [%s] [%s]\n", what, rank, size, arg, value);
}

int main(int argc, char **argv)
{
    int spawned, appnum;
    const char *what = argc > 1 ? argv[1] : "all";

    setvbuf(stdout, NULL, _IOLBF, 0);
    must(PMI2_Init(&spawned, &size, &rank, &appnum) == 0, "init");
    must(PMI2_Initialized(), "initialized");
    must(PMI2_Job_GetId(job, sizeof(job)) == 0 && *job, "name of the job");
    if (!strcmp(what, "abort")) {
        if (rank == 1)
            PMI2_Abort(1, "it; is over");
        PMI2_KVS_Fence();
    } else if (!strcmp(what, "alone")) {
        if (rank == 0)
            PMI2_Abort(0, "only me");
    } else if (!strcmp(what, "spawn")) {
        must(!spawned, "is told that it was spawned");
        if (rank == 0)
            spawn(argv[0]);
        must(PMI2_KVS_Fence() == 0, "fence");
    } else if (!strcmp(what, "all")) {
        all();
    } else {
        child(what, argc > 2 ? argv[2] : "", spawned);
    }
    must(PMI2_Finalize() == 0, "finalize");
    return 0;
}
