/* mini_launcher.c - the launcher of mini_ring.h: fences, names, spawns, and what becomes of ranks.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/mini_ring.h"
#include "tests/support/sync.h"

extern char **environ;

static void post(struct mini_ring *l, uint32_t agent, struct fbr_buf *b)
{
    assert_true(mini_send(l->fd[agent], b));
}

static void post_all(struct mini_ring *l, const struct fbr_buf *b)
{
    for (uint32_t k = 0; k < l->agents; k++)
        assert_int_equal(send(l->fd[k], b->data, b->len, MSG_NOSIGNAL), b->len);
}

static void reply(struct mini_ring *l, uint32_t agent, uint32_t id, int code, const void *data,
                  size_t len)
{
    struct fbr_buf b;

    mini_packet(&b, 'r');
    fbr_put_u32(&b, id);
    fbr_put_u32(&b, (uint32_t)code);
    fbr_put(&b, data, len);
    post(l, agent, &b);
}

void mini_open(struct mini_ring *l, uint32_t agents)
{
    memset(l, 0, sizeof(*l));
    l->agents = agents;
    temp_dir_make(l->dir);
    snprintf(l->out, sizeof(l->out), "%s/out", l->dir);
    for (uint32_t k = 0; k < agents; k++) {
        char number[16], dir[96];
        char *argv[] = {"/proc/self/exe", "agent", number, dir, NULL};
        posix_spawn_file_actions_t actions;
        int pair[2], size = 4 * MINI_PACKET;

        snprintf(number, sizeof(number), "%u", k);
        snprintf(dir, sizeof(dir), "%s/%u", l->dir, k);
        mkdir(dir, 0700);
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
        setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 1, l->out, O_WRONLY | O_CREAT | O_APPEND, 0600);
        posix_spawn_file_actions_adddup2(&actions, 1, 2);
        if (pair[1] == 3) { /* to itself it would stay closed on exec */
            int other = fcntl(3, F_DUPFD_CLOEXEC, 10);

            close(pair[1]);
            pair[1] = other;
        }
        posix_spawn_file_actions_adddup2(&actions, pair[1], 3);
        assert_int_equal(posix_spawn(&l->pid[k], "/proc/self/exe", &actions, NULL, argv, environ),
                         0);
        posix_spawn_file_actions_destroy(&actions);
        close(pair[1]);
        l->fd[k] = pair[0];
    }
}

/* Starts a job whose argv is what c is at. */
static uint32_t launch(struct mini_ring *l, uint32_t size, const struct mini_job *from,
                       uint32_t parent, uint32_t rank, const void *argv, size_t argv_len)
{
    uint32_t id = l->njobs++;
    struct fbr_buf b;
    char nspace[64];

    assert_true(id < MINI_JOBS);
    l->jobs[id] = from ? *from : (struct mini_job){0};
    l->jobs[id].id = id;
    l->jobs[id].size = size;
    snprintf(nspace, sizeof(nspace), "ring-%d-%u", (int)getpid(), id);
    mini_packet(&b, 'J');
    fbr_put_u32(&b, id);
    fbr_put_u32(&b, size);
    fbr_put_u32(&b, l->agents < size ? l->agents : size);
    fbr_put_str(&b, nspace);
    fbr_put_u8(&b, from != NULL);
    fbr_put_u32(&b, parent);
    fbr_put_u32(&b, rank);
    fbr_put(&b, argv, argv_len);
    post_all(l, &b);
    fbr_buf_fini(&b);
    return id;
}

uint32_t mini_start(struct mini_ring *l, const char *program, uint32_t size, const char *what)
{
    struct fbr_buf argv;
    uint32_t id;

    fbr_buf_init(&argv);
    fbr_put_str(&argv, program);
    fbr_put_str(&argv, what);
    id = launch(l, size, NULL, 0, 0, argv.data, argv.len);
    fbr_buf_fini(&argv);
    return id;
}

static void on_fence(struct mini_ring *l, uint32_t agent, struct fbr_cur *c)
{
    uint32_t id = fbr_get_u32(c), parts;
    size_t key_len, len;
    const void *key = fbr_get_bytes(c, &key_len), *data;
    struct mini_fence *f = NULL;
    struct fbr_buf all;

    parts = fbr_get_u32(c);
    data = fbr_get_bytes(c, &len);
    assert_true(fbr_cur_ok(c));
    assert_true(parts > 1 && parts <= l->agents);
    for (int i = 0; i < 16 && !f; i++) {
        if (l->fences[i].key_len == key_len && memcmp(l->fences[i].key, key, key_len) == 0)
            f = &l->fences[i];
    }
    for (int i = 0; i < 16 && !f; i++) {
        if (!l->fences[i].key) {
            f = &l->fences[i];
            f->key = malloc(key_len);
            memcpy(f->key, key, key_len);
            f->key_len = key_len;
        }
    }
    assert_non_null(f);
    assert_false(f->part[agent].here);
    f->part[agent].here = true;
    f->part[agent].id = id;
    fbr_put(&f->part[agent].data, data, len);
    if (++f->came < parts)
        return;
    fbr_buf_init(&all);
    for (uint32_t k = 0; k < MINI_AGENTS; k++) {
        if (!f->part[k].here)
            continue;
        fbr_put_u32(&all, k);
        fbr_put_bytes(&all, f->part[k].data.data, f->part[k].data.len);
        fbr_buf_fini(&f->part[k].data);
    }
    for (uint32_t k = 0; k < MINI_AGENTS; k++) {
        if (f->part[k].here)
            reply(l, k, f->part[k].id, 0, all.data, all.len);
    }
    fbr_buf_fini(&all);
    free(f->key);
    memset(f, 0, sizeof(*f));
}

static struct mini_name *name_find(struct mini_ring *l, const char *key, bool waited)
{
    for (int i = 0; i < 64; i++) {
        if (l->names[i].key[0] && l->names[i].waited == waited && strcmp(l->names[i].key, key) == 0)
            return &l->names[i];
    }
    return NULL;
}

static struct mini_name *name_new(struct mini_ring *l, const char *key)
{
    for (int i = 0; i < 64; i++) {
        if (!l->names[i].key[0]) {
            snprintf(l->names[i].key, sizeof(l->names[i].key), "%s", key);
            return &l->names[i];
        }
    }
    fail_msg("too many names");
    return NULL;
}

static void name_free(struct mini_name *n)
{
    fbr_buf_fini(&n->value);
    memset(n, 0, sizeof(*n));
}

static void on_name(struct mini_ring *l, uint32_t agent, char type, struct fbr_cur *c)
{
    uint32_t id = fbr_get_u32(c);
    char key[512];
    struct mini_name *n, *w;

    fbr_get_str(c, key, sizeof(key));
    assert_true(fbr_cur_ok(c));
    n = name_find(l, key, false);
    if (type == 'L' && n) {
        reply(l, agent, id, 0, n->value.data, n->value.len);
    } else if (type == 'L') {
        if (fbr_get_u32(c) == 0) {
            reply(l, agent, id, -ENOENT, NULL, 0);
            return;
        }
        n = name_new(l, key);
        n->waited = true;
        n->agent = agent;
        n->id = id;
    } else if (type == 'U') {
        if (n)
            name_free(n);
        reply(l, agent, id, n ? 0 : -ENOENT, NULL, 0);
    } else if (n) {
        reply(l, agent, id, -EEXIST, NULL, 0);
    } else {
        n = name_new(l, key);
        fbr_put(&n->value, c->at, fbr_cur_left(c));
        reply(l, agent, id, 0, NULL, 0);
        while ((w = name_find(l, key, true))) {
            reply(l, w->agent, w->id, 0, n->value.data, n->value.len);
            name_free(w);
        }
    }
}

static void on_ended(struct mini_ring *l, struct mini_job *j, uint32_t rank, int code)
{
    struct fbr_buf b;

    j->ended++;
    j->codes[rank] = code;
    if (code && !j->first_code)
        j->first_code = code;
    if (!code)
        return;
    mini_packet(&b, l->shrink ? 'X' : 'K');
    fbr_put_u32(&b, j->id);
    fbr_put_u32(&b, rank);
    fbr_put_u32(&b, (uint32_t)code);
    post_all(l, &b);
    fbr_buf_fini(&b);
}

static void on_news(struct mini_ring *l, char type, struct fbr_cur *c)
{
    uint32_t id = fbr_get_u32(c), rank = fbr_get_u32(c);
    int code = (int)fbr_get_u32(c);
    struct mini_job *j = &l->jobs[id];
    struct fbr_buf b;

    assert_true(fbr_cur_ok(c) && id < l->njobs);
    if (type == 'R' && ++j->ready == l->agents) {
        mini_packet(&b, 'B');
        fbr_put_u32(&b, id);
        post_all(l, &b);
        fbr_buf_fini(&b);
    } else if (type == 'O' && ++j->running == l->agents && j->spawned) {
        reply(l, j->spawner, j->spawn_id, 0, &id, sizeof(id));
    } else if (type == 'M') {
        fbr_get_str(c, l->how, sizeof(l->how));
        j->met++;
    } else if (type == 'G') {
        j->left++;
    } else if (type == 'A') {
        l->aborted = code;
        fbr_get_str(c, l->abort_text, sizeof(l->abort_text));
        on_ended(l, &(struct mini_job){.id = id}, 0, code ? code : 1);
    } else if (type == 'E') {
        on_ended(l, j, rank, code);
    }
}

static void on_packet(struct mini_ring *l, uint32_t agent, struct fbr_cur *c)
{
    char type = (char)fbr_get_u8(c);

    if (type == 'F') {
        on_fence(l, agent, c);
    } else if (type == 'P' || type == 'L' || type == 'U') {
        on_name(l, agent, type, c);
    } else if (type == 'T') {
        uint32_t to = fbr_get_u32(c);
        struct fbr_buf b;
        size_t len;
        const void *data = fbr_get_bytes(c, &len);

        mini_packet(&b, 'T');
        fbr_put_u32(&b, agent);
        fbr_put(&b, data, len);
        post(l, to, &b);
    } else if (type == 'S') {
        struct mini_job j = {.spawned = true, .spawner = agent, .spawn_id = fbr_get_u32(c)};
        uint32_t parent = fbr_get_u32(c), rank = fbr_get_u32(c), size = fbr_get_u32(c);

        launch(l, size, &j, parent, rank, c->at, fbr_cur_left(c));
    } else {
        on_news(l, type, c);
    }
}

static bool over(const struct mini_ring *l)
{
    for (uint32_t i = 0; i < l->njobs; i++) {
        if (l->jobs[i].ended < l->jobs[i].size)
            return false;
    }
    return true;
}

/* Until every rank of every job has ended, or so many have met their server and wait. */
void mini_serve_until(struct mini_ring *l, uint32_t met)
{
    static char packet[MINI_PACKET];

    while (!over(l) && l->jobs[0].met < met) {
        struct pollfd p[MINI_AGENTS];

        for (uint32_t k = 0; k < l->agents; k++)
            p[k] = (struct pollfd){l->fd[k], POLLIN, 0};
        assert_true(poll(p, l->agents, TEST_LONG_MS) > 0);
        for (uint32_t k = 0; k < l->agents; k++) {
            ssize_t n = p[k].revents ? recv(l->fd[k], packet, sizeof(packet), 0) : 0;
            struct fbr_cur c = fbr_cur(packet, n > 0 ? (size_t)n : 0);

            assert_true(!p[k].revents || n > 0); /* an agent has died */
            if (n > 0)
                on_packet(l, k, &c);
        }
    }
}

void mini_serve(struct mini_ring *l)
{
    mini_serve_until(l, UINT32_MAX);
}

/* What all have written; the caller frees. */
char *mini_close(struct mini_ring *l)
{
    struct fbr_buf b;
    char *text;
    FILE *f;
    size_t n;
    int bad = 0;

    mini_packet(&b, 'Q');
    fbr_put_u32(&b, 0);
    post_all(l, &b);
    fbr_buf_fini(&b);
    for (uint32_t k = 0; k < l->agents; k++) {
        int status;

        assert_int_equal(waitpid(l->pid[k], &status, 0), l->pid[k]);
        close(l->fd[k]);
        bad = bad ? bad : status;
    }
    for (int i = 0; i < 64; i++)
        name_free(&l->names[i]);
    for (int i = 0; i < 16; i++)
        free(l->fences[i].key);
    text = calloc(1, 65536);
    f = fopen(l->out, "r");
    assert_non_null(f);
    n = fread(text, 1, 65535, f);
    text[n] = '\0';
    fclose(f);
    if (bad)
        print_error("%s", text);
    assert_int_equal(bad, 0);
    temp_dir_remove(l->dir);
    return text;
}

int mini_count(const char *text, const char *word)
{
    int n = 0;

    for (const char *p = text; (p = strstr(p, word)); p += strlen(word))
        n++;
    return n;
}
