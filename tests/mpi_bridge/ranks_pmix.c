/* ranks_pmix.c - a program that speaks PMIx itself, in several roles, for pmix_test.c.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <pmix.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static pmix_proc_t self;
static uint32_t all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static pmix_proc_t affected;
static pmix_status_t event;

/* The texts of PMIx 4 and 5 differ. */
static const char *word(pmix_status_t rc)
{
    switch (rc) {
    case PMIX_SUCCESS:
    case PMIX_OPERATION_SUCCEEDED:
        return "good";
    case PMIX_ERR_NOT_FOUND:
        return "not found";
    case PMIX_ERR_DUPLICATE_KEY:
        return "there already";
    case PMIX_ERR_NOT_SUPPORTED:
        return "not supported";
    case PMIX_ERR_PROC_ABORTED:
        return "death";
    case PMIX_EXTERNAL_ERR_BASE - 7:
        return "news";
    default:
        return PMIx_Error_string(rc);
    }
}

static uint32_t job_size(void)
{
    pmix_proc_t job;
    pmix_value_t *v = NULL;
    uint32_t n = 0;

    PMIX_LOAD_PROCID(&job, self.nspace, PMIX_RANK_WILDCARD);
    if (PMIx_Get(&job, PMIX_JOB_SIZE, NULL, 0, &v) == PMIX_SUCCESS)
        n = v->data.uint32;
    PMIX_VALUE_RELEASE(v);
    return n;
}

static void fence(void)
{
    if (PMIx_Fence(NULL, 0, NULL, 0) != PMIX_SUCCESS)
        exit(9);
}

/* ---- Events ---- */

static void on_event(size_t id, pmix_status_t status, const pmix_proc_t *source, pmix_info_t info[],
                     size_t ninfo, pmix_info_t results[], size_t nresults,
                     pmix_event_notification_cbfunc_fn_t done, void *arg)
{
    pthread_mutex_lock(&lock);
    event = status;
    affected = *source;
    for (size_t i = 0; i < ninfo; i++) {
        if (PMIX_CHECK_KEY(&info[i], PMIX_EVENT_AFFECTED_PROC))
            affected = *info[i].value.data.proc;
    }
    pthread_cond_signal(&told);
    pthread_mutex_unlock(&lock);
    if (done)
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, arg);
}

static void listen_for(pmix_status_t code)
{
    if (PMIx_Register_event_handler(&code, 1, NULL, 0, on_event, NULL, NULL) < 0)
        exit(9);
}

static void wait_event(void)
{
    pthread_mutex_lock(&lock);
    while (event == 0)
        pthread_cond_wait(&told, &lock);
    pthread_mutex_unlock(&lock);
    printf("rank %u: %s of rank %u\n", self.rank, word(event), affected.rank);
}

/* The last rank dies; the others hear of it, and leave. */
static void lose(void)
{
    listen_for(PMIX_ERR_PROC_ABORTED);
    fence();
    if (self.rank == all - 1)
        raise(SIGKILL);
    wait_event();
}

/* Rank 0 raises an event of its own. */
static void notify(void)
{
    const pmix_status_t mine = PMIX_EXTERNAL_ERR_BASE - 7;

    if (self.rank != 0)
        listen_for(mine);
    fence();
    if (self.rank == 0)
        printf("notify: %s\n",
               word(PMIx_Notify_event(mine, &self, PMIX_RANGE_NAMESPACE, NULL, 0, NULL, NULL)));
    else
        wait_event();
    fence();
}

/* ---- Data ---- */

static void put(const char *key, uint32_t number)
{
    pmix_value_t v;

    PMIX_VALUE_LOAD(&v, &number, PMIX_UINT32);
    if (PMIx_Put(PMIX_GLOBAL, key, &v) != PMIX_SUCCESS || PMIx_Commit() != PMIX_SUCCESS)
        exit(9);
}

static uint32_t get(uint32_t rank, const char *key)
{
    pmix_proc_t p;
    pmix_value_t *v = NULL;
    uint32_t n = 0;
    pmix_status_t rc;

    PMIX_LOAD_PROCID(&p, self.nspace, rank);
    rc = PMIx_Get(&p, key, NULL, 0, &v);
    if (rc == PMIX_SUCCESS && v) {
        n = v->data.uint32;
        PMIX_VALUE_RELEASE(v);
    } else {
        printf("rank %u: get of %u: %s\n", self.rank, rank, word(rc));
    }
    return n;
}

/* Data of every rank without a fence: it is fetched from where it is, also when it is not there
 * yet. */
static void modex(void)
{
    uint32_t right = 0;

    put("number", 100 + self.rank);
    for (uint32_t r = 0; r < all; r++)
        right += get(r, "number") == 100 + r;
    printf("rank %u: %u numbers are right\n", self.rank, right);
}

/* Many fences, of all and of some, with and without data. */
static void fences(void)
{
    pmix_proc_t some[2];
    pmix_info_t collect;
    bool yes = true;
    uint32_t right = 0;

    PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    PMIX_LOAD_PROCID(&some[0], self.nspace, 0);
    PMIX_LOAD_PROCID(&some[1], self.nspace, all - 1);
    for (uint32_t i = 0; i < 50; i++) {
        char key[32];

        snprintf(key, sizeof(key), "k%u", i);
        put(key, i * 1000 + self.rank);
        if (PMIx_Fence(NULL, 0, i % 2 ? &collect : NULL, i % 2) != PMIX_SUCCESS)
            exit(9);
        if ((self.rank == 0 || self.rank == all - 1) &&
            PMIx_Fence(some, 2, NULL, 0) != PMIX_SUCCESS)
            exit(9);
        right += get((self.rank + 1) % all, key) == i * 1000 + (self.rank + 1) % all;
    }
    printf("rank %u: %u fences are right\n", self.rank, right);
    fence();
}

static void names(void)
{
    uint32_t number = 42;
    pmix_info_t info;
    pmix_pdata_t *data;
    pmix_info_t wait[2];
    int zero = 0, seconds = 5;

    PMIX_PDATA_CREATE(data, 1);
    PMIX_LOAD_KEY(data[0].key, "missing");
    if (self.rank == all - 1) {
        PMIX_INFO_LOAD(&info, "answer", &number, PMIX_UINT32);
        printf("look for nothing: %s\n", word(PMIx_Lookup(data, 1, NULL, 0)));
        printf("publish: %s\n", word(PMIx_Publish(&info, 1)));
        printf("publish again: %s\n", word(PMIx_Publish(&info, 1)));
    }
    PMIX_INFO_LOAD(&wait[0], PMIX_WAIT, &zero, PMIX_INT);
    PMIX_INFO_LOAD(&wait[1], PMIX_TIMEOUT, &seconds, PMIX_INT);
    PMIX_LOAD_KEY(data[0].key, "answer");
    printf("look: %s", word(PMIx_Lookup(data, 1, wait, 2)));
    printf(" of %u from %u\n", data[0].value.data.uint32, data[0].proc.rank);
    fence();
}

/* ---- The runtime ---- */

static void query(void)
{
    char *keys[] = {PMIX_QUERY_LOCAL_PROC_TABLE, NULL}, *odd[] = {PMIX_QUERY_STORAGE_LIST, NULL};
    pmix_query_t q = {keys, NULL, 1}, unknown = {odd, NULL, 0};
    pmix_info_t *info = NULL, about;
    size_t n = 0;
    pmix_status_t rc;

    PMIX_INFO_LOAD(&about, PMIX_NSPACE, self.nspace, PMIX_STRING);
    q.qualifiers = &about;
    rc = PMIx_Query_info(&q, 1, &info, &n);
    printf("query: %s, %zu here\n", word(rc),
           rc == PMIX_SUCCESS && n ? info[0].value.data.darray->size : 0);
    printf("query of what is not known: %s\n", word(PMIx_Query_info(&unknown, 1, &info, &n)));
}

static void print(void)
{
    pmix_info_t info;

    PMIX_INFO_LOAD(&info, PMIX_LOG_STDERR, "said through the log", PMIX_STRING);
    printf("log: %s\n", word(PMIx_Log(&info, 1, NULL, 0)));
}

static void end_all(void)
{
    pmix_proc_t job;
    pmix_info_t info;
    bool yes = true;

    PMIX_LOAD_PROCID(&job, self.nspace, PMIX_RANK_WILDCARD);
    PMIX_INFO_LOAD(&info, PMIX_JOB_CTRL_TERMINATE, &yes, PMIX_BOOL);
    fence();
    if (self.rank == 0)
        PMIx_Job_control(&job, 1, &info, 1, NULL, NULL);
    pause();
}

static void group(void)
{
    pmix_proc_t job;
    pmix_info_t want, *got = NULL;
    size_t n = 0;
    bool yes = true;
    pmix_status_t rc;

    PMIX_LOAD_PROCID(&job, self.nspace, PMIX_RANK_WILDCARD);
    PMIX_INFO_LOAD(&want, PMIX_GROUP_ASSIGN_CONTEXT_ID, &yes, PMIX_BOOL);
    rc = PMIx_Group_construct("us", &job, 1, &want, 1, &got, &n);
    printf("rank %u: group %s, context %zu\n", self.rank, word(rc), n ? got[0].value.data.size : 0);
    rc = PMIx_Group_destruct("us", NULL, 0);
    printf("rank %u: no group %s\n", self.rank, word(rc));
}

/* Blocks on what nobody will ever answer. */
static void stuck(void)
{
    pmix_pdata_t *data;
    pmix_info_t wait;
    int zero = 0;

    PMIX_PDATA_CREATE(data, 1);
    PMIX_LOAD_KEY(data[0].key, "never");
    PMIX_INFO_LOAD(&wait, PMIX_WAIT, &zero, PMIX_INT);
    if (self.rank == 0)
        PMIx_Lookup(data, 1, &wait, 1);
    else
        get(0, "never");
}

static void call_port(uint16_t port, const char *word)
{
    struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&in, sizeof(in)) < 0 ||
        send(fd, word, strlen(word), 0) != (ssize_t)strlen(word))
        exit(10);
}

/* Connections to the server that say nothing, or too little, as long as we are there; as any user
 * of the host could make them. */
static void crowd_the_server(void)
{
    const char *uri = getenv("PMIX_SERVER_URI41"), *colon = uri ? strrchr(uri, ':') : NULL;

    for (int i = 0; i < 4; i++)
        call_port((uint16_t)(colon ? atoi(colon + 1) : 0), i ? "" : "hi");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*play)(void);
    } roles[] = {{"lose", lose},   {"notify", notify}, {"modex", modex}, {"fences", fences},
                 {"keys", names},  {"query", query},   {"print", print}, {"end_all", end_all},
                 {"group", group}, {"stuck", stuck},   {"crowd", fences}};

    if (argc > 1 && strcmp(argv[1], "crowd") == 0)
        crowd_the_server();
    if (PMIx_Init(&self, NULL, 0) != PMIX_SUCCESS)
        return 8;
    all = job_size();
    for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++) {
        if (argc > 1 && strcmp(argv[1], roles[i].name) == 0)
            roles[i].play();
    }
    fflush(stdout);
    PMIx_Finalize(NULL, 0);
    return 0;
}
