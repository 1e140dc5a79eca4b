/* pmi1_fuzz.c - hostile ranks of a server of PMI-1 and PMI-2, and hostile answers from the other agents.
 *
 * The input is a list of events: u8 event, then u8 length and so many bytes. Connections 0 and 1
 * are those of ranks 4 and 5, 2 and 3 have to say who they are. Whatever comes, each rank has at
 * most one connection, a request is answered at most once, and a fence is only asked for when none
 * is open.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_bridge/pmi1_engine.h"
#include "runtime/base/buf.h"

#define LINKS 4

static struct {
    struct fbr_pmi1 *e;
    struct fbr_pmi1_conn *conns[LINKS];
    int fence;   /* open */
    int asks[8]; /* open, by rank */
} f;

static void require(int holds)
{
    if (!holds)
        abort();
}

static void on_send(void *user, void *link, const void *data, size_t len)
{
    struct fbr_pmi1_conn **conn = link;

    require(*conn && len && len < 8192);
    require(((const char *)data)[len - 1] == '\n' || ((const char *)data)[len - 1] == ';');
}

static void on_hang_up(void *user, void *link, const char *why)
{
    require(why && *(struct fbr_pmi1_conn **)link);
    *(struct fbr_pmi1_conn **)link = NULL;
}

static void on_rank(void *user, uint32_t rank)
{
    require(rank == 4 || rank == 5);
}

static void on_met(void *user, uint32_t rank, const char *how)
{
    on_rank(user, rank);
    require(!strncmp(how, "PMI ", 4));
}

static void on_abort(void *user, uint32_t rank, int code, const char *text)
{
    on_rank(user, rank);
    require(strlen(text) < FBR_PMI1_LINE_MAX);
}

static int on_fence(void *user, const void *puts, size_t len)
{
    require(!f.fence && (puts || !len));
    f.fence = 1;
    return 0;
}

static int ask(uint32_t rank)
{
    on_rank(NULL, rank);
    require(!f.asks[rank]);
    f.asks[rank] = 1;
    return 0;
}

static int on_name(void *user, uint32_t rank, enum fbr_pmi1_wait what, const char *name,
                   const char *port)
{
    require(*name && (what != FBR_PMI1_PUBLISH || *port));
    return what != FBR_PMI1_PUBLISH && strlen(name) == 3 ? -EIO : ask(rank);
}

static int on_spawn(void *user, uint32_t rank, const struct fbr_bridge_app *apps, size_t napps,
                    const char *preput)
{
    struct fbr_pmi1_config config = {.nspace = "child", .size = 1, .count = 1};
    struct fbr_pmi1 *child;

    require(napps > 0);
    for (size_t i = 0; i < napps; i++) {
        require(apps[i].count > 0 && apps[i].argv[0] && *apps[i].argv[0]);
        for (const char *const *arg = apps[i].argv; *arg; arg++)
            require(strlen(*arg) < FBR_PMI1_LINE_MAX);
    }
    child = fbr_pmi1_open(&(struct fbr_pmi1_ops){.send = on_send}, NULL, &config);
    if (child)
        fbr_pmi1_preput(child, preput);
    fbr_pmi1_close(child);
    return ask(rank);
}

static const struct fbr_pmi1_ops ops = {on_send,  on_hang_up, on_met,  on_rank,
                                        on_abort, on_fence,   on_name, on_spawn};

static void event(uint8_t what, const void *data, size_t len)
{
    uint8_t i = what % LINKS;
    char text[256];

    memcpy(text, data, len);
    text[len] = 0;
    switch (what / LINKS % 8) {
    case 0:
        if (f.conns[i])
            fbr_pmi1_detach(f.conns[i]);
        f.conns[i] = fbr_pmi1_attach(f.e, &f.conns[i], i < 2 ? 4 + i : -1);
        break;
    case 1:
        if (f.fence) {
            f.fence = 0;
            fbr_pmi1_fenced(f.e, i ? 0 : -ECONNABORTED, data, len);
        }
        break;
    case 2:
        f.asks[4 + i % 2] = 0;
        fbr_pmi1_answer(f.e, 4 + i % 2, i < 2 ? 0 : -ENOENT, text);
        break;
    case 3:
        if (len == 0 && i == 3)
            fbr_pmi1_lost(f.e);
        fbr_pmi1_preput(f.e, text);
        break;
    default:
        if (f.conns[i])
            fbr_pmi1_bytes(f.conns[i], data, len);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fbr_pmi1_config config = {.nspace = "n", .size = 9, .first = 4, .count = 2};
    struct fbr_cur c = fbr_cur(data, size);
    char mapping[FBR_PMI1_VALUE_MAX];
    uint32_t first[8] = {0};

    memset(&f, 0, sizeof(f));
    for (size_t k = 1; k < 8; k++)
        first[k] = first[k - 1] + (k < size ? data[k] % 4 : 1);
    fbr_pmi1_mapping(mapping, first, 7);
    f.e = fbr_pmi1_open(&ops, NULL, &config);
    for (uint8_t i = 0; f.e && i < LINKS; i++)
        event(i, "", 0);
    while (f.e && fbr_cur_left(&c)) {
        uint8_t what = fbr_get_u8(&c), len = fbr_get_u8(&c);
        size_t n = len < fbr_cur_left(&c) ? len : fbr_cur_left(&c);

        event(what, n ? fbr_get(&c, n) : "", n);
    }
    fbr_pmi1_close(f.e);
    return 0;
}
