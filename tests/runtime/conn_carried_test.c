/* conn_carried_test.c - control connections that nobody called: a pair of sockets, and those that another one carries.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <sys/socket.h>
#include <unistd.h>

#include "tests/runtime/conn_util.h"

struct open {
    struct end *end;
    int fd;
};

static int do_open(void *arg)
{
    struct open *o = arg;

    return fbr_conn_open(&o->end->conn, loop, o->fd, &ops, o->end, NULL);
}

static void a_pair_needs_no_greeting(void **state)
{
    struct end a = {.echo = false}, b = {.echo = true};
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(fbr_loop_call(loop, do_open, &(struct open){&a, pair[0]}), 0);
    assert_int_equal(fbr_loop_call(loop, do_open, &(struct open){&b, pair[1]}), 0);
    send_frames(&a, FBR_FRAME_USER + 1, "all that", 8, 1000);
    wait_for(&a.frames, 1000);
    assert_int_equal(a.bytes, 8000);
    hang_up(&a);
    wait_for(&b.closes, 1);
    assert_int_equal(b.why, -EPIPE);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    close(pair[1]);
    assert_true(close(pair[0]) == 0 &&
                fbr_loop_call(loop, do_open, &(struct open){&a, pair[0]}) < 0);
}

#define WRAP (FBR_FRAME_USER + 9)
#define CARRIED 3 /* connections */

/* One end of the connection that carries others, and its ends of those. */
struct carrier {
    struct end own, ends[CARRIED];
};

static void on_carried(void *user, struct fbr_conn *conn, uint8_t type, struct fbr_cur *body)
{
    struct carrier *c = user;
    uint64_t id = fbr_get_u64(body);
    uint8_t inner = fbr_get_u8(body);

    if (type != WRAP || !fbr_cur_ok(body) || id >= CARRIED || !c->ends[id].conn)
        return;
    if (inner)
        fbr_conn_came(c->ends[id].conn, inner, body);
    else
        fbr_conn_lost(c->ends[id].conn, -EPIPE, "it hung up");
}

static const struct fbr_conn_ops carrier_ops = {.on_frame = on_carried, .on_close = on_close};

static int do_carry(void *arg)
{
    struct open *o = arg;
    struct carrier *c = (struct carrier *)o->end;
    int rc = fbr_conn_open(&c->own.conn, loop, o->fd, &carrier_ops, c, NULL);

    for (uint64_t id = 0; rc == 0 && id < CARRIED; id++) {
        c->ends[id].conn = fbr_conn_carried(c->own.conn, WRAP, id);
        rc = c->ends[id].conn ? 0 : -ENOMEM;
        if (rc == 0)
            fbr_conn_attach(c->ends[id].conn, &ops, &c->ends[id]);
    }
    return rc;
}

static void a_connection_carries_others(void **state)
{
    struct carrier a = {.own.echo = false}, b = {.own.echo = false};
    static char bytes[100000];
    int pair[2];

    b.ends[1].echo = b.ends[2].echo = true;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(fbr_loop_call(loop, do_carry, &(struct open){&a.own, pair[0]}), 0);
    assert_int_equal(fbr_loop_call(loop, do_carry, &(struct open){&b.own, pair[1]}), 0);
    send_frames(&a.ends[1], FBR_FRAME_USER, bytes, sizeof(bytes), 20);
    send_frames(&a.ends[2], FBR_FRAME_USER + 1, bytes, 5, 200);
    wait_for(&a.ends[1].frames, 20);
    wait_for(&a.ends[2].frames, 200);
    assert_int_equal(a.ends[1].bytes, 20 * sizeof(bytes));
    assert_int_equal(a.ends[2].bytes, 1000);
    assert_int_equal(a.ends[0].frames + b.ends[0].frames, 0);
    hang_up(&a.ends[1]); /* it alone ends */
    wait_for(&b.ends[1].closes, 1);
    send_frames(&a.ends[2], FBR_FRAME_USER + 1, bytes, 5, 1);
    wait_for(&a.ends[2].frames, 201);
    for (int i = 0; i < CARRIED; i++) {
        hang_up(&a.ends[i]);
        if (i != 1)
            wait_for(&b.ends[i].closes, 1);
    }
    hang_up(&a.own);
    wait_for(&b.own.closes, 1);
}

static int set_up(void **state)
{
    fbr_cond_init(&changed);
    return fbr_loop_open(&loop, NULL);
}

static int tear_down(void **state)
{
    fbr_loop_close(loop);
    pthread_cond_destroy(&changed);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pair_needs_no_greeting),
        cmocka_unit_test(a_connection_carries_others),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
