/* oom_test.c - memory that is short while ranks are served: nothing is used after it is freed, all
 * of it is freed at the end, and callers are served when there is some again.
 *
 * The linker replaces malloc and its like. LeakSanitizer looks at the rest.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "mpi_bridge/loopback.h"
#include "mpi_bridge/pmi1_engine.h"
#include "mpi_bridge/tcpstore.h"
#include "runtime/base/buf.h"
#include "tests/support/bridge_tables.h"
#include "tests/support/sync.h"

static __thread unsigned refuse_at, asked; /* the request of this thread that is refused; 0: none */
static atomic_bool short_of_memory;        /* all requests of all threads are */
static atomic_uint refused;

static bool refuse(void)
{
    bool no = atomic_load(&short_of_memory) || (refuse_at && ++asked == refuse_at);

    refused += no;
    return no;
}

#include "tests/support/wrapped_malloc.h"

/* Runs `session` again and again, with its k-th request for memory refused. */
static void refuse_each(void (*session)(void))
{
    for (unsigned k = 1, before = 1; before; k++) {
        before = atomic_load(&refused);
        asked = 0;
        refuse_at = k;
        session();
        refuse_at = 0;
        before = atomic_load(&refused) - before;
    }
}

/* ---- PMI ---- */

static struct fbr_pmi1_conn *conns[2];

static void on_send(void *user, void *link, const void *data, size_t len)
{
    assert_non_null(*(struct fbr_pmi1_conn **)link);
}

static void on_hang_up(void *user, void *link, const char *why)
{
    assert_non_null(why);
    *(struct fbr_pmi1_conn **)link = NULL;
}

static void on_met(void *user, uint32_t rank, const char *how)
{
}

static void on_left(void *user, uint32_t rank)
{
}

static int on_fence(void *user, const void *puts, size_t len)
{
    return 0;
}

static int on_name(void *user, uint32_t rank, enum fbr_pmi1_wait what, const char *name,
                   const char *port)
{
    return 0;
}

static int on_spawn(void *user, uint32_t rank, const struct fbr_bridge_app *apps, size_t napps,
                    const char *preput)
{
    return 0;
}

static const struct fbr_pmi1_ops engine_ops = {.send = on_send,
                                               .hang_up = on_hang_up,
                                               .met = on_met,
                                               .left = on_left,
                                               .fence = on_fence,
                                               .name = on_name,
                                               .spawn = on_spawn};

static void say(int i, const char *text)
{
    if (conns[i])
        fbr_pmi1_bytes(conns[i], text, strlen(text));
}

static void ask(int i, const char *message)
{
    char text[512];

    snprintf(text, sizeof(text), "%-6zu%s", strlen(message), message);
    say(i, text);
}

/* Rank 0 speaks PMI-2, rank 1 PMI-1 until it is hung up on. */
static void talk(struct fbr_pmi1 *e)
{
    static const char all[] = "\0\0\0\0\x0a\0\0\0\1\0\0\0k\1\0\0\0v";

    for (int i = 0; i < 2; i++)
        conns[i] = fbr_pmi1_attach(e, &conns[i], i);
    fbr_pmi1_set(e, "PMI_process_mapping", "(vector,(0,1,2))");
    fbr_pmi1_preput(e, "PARENT=tag#0$\n");
    say(0, "cmd=init pmi_version=2 pmi_subversion=0\n");
    ask(0, "cmd=fullinit;");
    ask(0, "cmd=kvs-put;key=a;value=1;");
    say(1, "cmd=init pmi_version=1 pmi_subversion=1\ncmd=put kvsname=ring key=b value=2\n");
    ask(0, "cmd=kvs-fence;");
    ask(0, "cmd=info-getnodeattr;key=k;wait=TRUE;"); /* read after the fence */
    say(1, "cmd=barrier_in\n");
    fbr_pmi1_fenced(e, 0, all, sizeof(all) - 1);
    say(1, "cmd=publish_name service=s port=p\n");
    fbr_pmi1_answer(e, 1, 0, NULL);
    say(1, "mcmd=spawn\nnprocs=1\nexecname=a\ntotspawns=1\nspawnssofar=1\narg1=b\n"
           "preput_key_0=k\npreput_val_0=v\ninfo_key_0=wdir\ninfo_val_0=/\nendcmd\n");
    fbr_pmi1_answer(e, 1, 0, "child");
    say(1, "cmd=get kvsname=ring key=a\ncmd=finalize\n");
    if (conns[1])
        fbr_pmi1_detach(conns[1]);
    fbr_pmi1_lost(e);
}

static void talk_of_two(void)
{
    struct fbr_pmi1_config config = {.nspace = "ring", .size = 3, .count = 2};
    struct fbr_pmi1 *e = fbr_pmi1_open(&engine_ops, NULL, &config);

    if (e)
        talk(e);
    fbr_pmi1_close(e);
}

static void test_ranks_of_pmi(void **state)
{
    refuse_each(talk_of_two);
}

/* ---- services ---- */

static bool gone[2];

static void to_client(void *peer, const void *data, size_t len)
{
    assert_false(*(bool *)peer);
}

static void hang_up(void *peer)
{
    *(bool *)peer = true;
}

/* Two clients say these bytes, in turn. */
static void serve_two(const struct fbr_service_ops *ops, const struct fbr_buf *said, size_t n)
{
    static const struct fbr_service_host host = {to_client, hang_up};
    struct fbr_service *s = ops->open(&host);
    struct fbr_service_conn *of[2] = {NULL, NULL};

    for (size_t i = 0; s && i < 2; i++) {
        gone[i] = false;
        of[i] = ops->opened(s, &gone[i]);
    }
    for (size_t i = 0; i < n; i++)
        if (of[i % 2] && !gone[i % 2])
            ops->bytes(of[i % 2], said[i].data, said[i].len);
    for (size_t i = 0; i < 2; i++)
        if (of[i] && !gone[i])
            ops->closed(of[i]);
    if (s)
        ops->close(s);
}

/* A request of torch's second dialect: each argument is a text, or a number that is given as one
 * byte of eight ("\1"). */
static void put_request(struct fbr_buf *b, uint8_t what, const char *const *args)
{
    fbr_put_u8(b, what);
    for (; *args; args++) {
        if ((unsigned char)(*args)[0] < ' ') {
            fbr_put_u64(b, (uint8_t)(*args)[0]);
        } else {
            fbr_put_u64(b, strlen(*args));
            fbr_put(b, *args, strlen(*args));
        }
    }
}

static struct fbr_buf store_said[24];
static size_t store_n;

static void use_store(void)
{
    serve_two(&fbr_service_tcpstore, store_said, store_n);
}

static void test_clients_of_the_store(void **state)
{
    enum { SET = 1, COMPARE_SET, GET, ADD, WAIT = 6, APPEND = 9, MULTI_GET, PUSH = 14, POP };
    static const struct {
        uint8_t what;
        const char *args[5];
    } said[] = {
        {WAIT, {"\2", "a", "b"}},
        {SET, {"a", "1"}},
        {COMPARE_SET, {"c", "", "x"}},
        {APPEND, {"a", "2"}},
        {APPEND, {"new", "1"}},
        {ADD, {"n", "\7"}},
        {MULTI_GET, {"\2", "a", "c"}},
        {PUSH, {"q", "item"}},
        {POP, {"q"}},
        {GET, {"a"}},
    };

    for (int i = 0; i < 2; i++) {
        fbr_put_u8(&store_said[i], 0);
        fbr_put_u32(&store_said[i], FBR_TCPSTORE_MAGIC);
    }
    store_n = 2;
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
        put_request(&store_said[store_n++], said[i].what, said[i].args);
    refuse_each(use_store);
    while (store_n)
        fbr_buf_fini(&store_said[--store_n]);
}

static struct fbr_buf http_said[4];

static void use_rendezvous(void)
{
    serve_two(&fbr_service_rendezvous, http_said, 4);
}

static void test_clients_of_the_rendezvous(void **state)
{
    static const char *const said[] = {
        "PUT /global0/0 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        "GET /global0/0 HTTP/1.1\r\n\r\n",
        "PUT /global0/0 HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        "DELETE /global0/0 HTTP/1.1\r\n\r\n",
    };

    for (int i = 0; i < 4; i++)
        fbr_put(&http_said[i], said[i], strlen(said[i]));
    refuse_each(use_rendezvous);
    for (int i = 0; i < 4; i++)
        fbr_buf_fini(&http_said[i]);
}

/* ---- a port on the loopback ---- */

static struct fbr_loop *loop;
static struct fbr_lo_listener *listener;

static void on_link(void *user, struct fbr_lo_link *link)
{
    fbr_lo_link_close(link);
}

static int open_port(void *arg)
{
    return fbr_lo_listener_open(&listener, loop, on_link, NULL, NULL);
}

static int close_port(void *arg)
{
    fbr_lo_listener_close(listener);
    return 0;
}

/* A caller comes when there is no memory for its connection. It and the next one are served when
 * there is some again. */
static void test_callers_of_a_port(void **state)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct pollfd p[2];
    unsigned before;

    assert_int_equal(fbr_loop_open(&loop, NULL), 0);
    assert_int_equal(fbr_loop_call(loop, open_port, NULL), 0);
    in.sin_port = htons(fbr_lo_listener_port(listener));
    before = atomic_load(&refused);
    atomic_store(&short_of_memory, true);
    for (int i = 0; i < 2; i++) {
        p[i] = (struct pollfd){.fd = socket(AF_INET, SOCK_STREAM, 0), .events = POLLIN};
        assert_int_equal(connect(p[i].fd, (struct sockaddr *)&in, sizeof(in)), 0);
    }
    while (atomic_load(&refused) == before)
        sched_yield();
    atomic_store(&short_of_memory, false);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(poll(&p[i], 1, TEST_LONG_MS), 1); /* the end, by on_link() */
        close(p[i].fd);
    }
    fbr_loop_call(loop, close_port, NULL);
    fbr_loop_close(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_of_pmi),
        cmocka_unit_test(test_clients_of_the_store),
        cmocka_unit_test(test_clients_of_the_rendezvous),
        cmocka_unit_test(test_callers_of_a_port),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
