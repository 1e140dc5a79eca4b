/* pmi_engine_util.h - for tests of the engine of PMI: what it did, as text, and a word to it.
 *
 * What is sent to link 0 stands as "0<cmd=...\n", also where it ends in ';' as in PMI-2, and without
 * the length that is before it then; events are words.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "mpi_bridge/pmi1_engine.h"
#include "runtime/base/buf.h"

static char did[65536];
static int refuse;

__attribute__((format(printf, 1, 2))) static void note(const char *fmt, ...)
{
    size_t len = strlen(did);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(did + len, sizeof(did) - len, fmt, ap);
    va_end(ap);
}

static void on_send(void *user, void *link, const void *data, size_t len)
{
    const char *text = data;
    char length[8];

    if (len && text[len - 1] == ';') {
        snprintf(length, sizeof(length), "%6zu", len - 6);
        assert_memory_equal(text, length, 6);
        text += 6;
        len -= 6;
    }
    note("%d<%.*s\n", *(int *)link, (int)len - (text[len - 1] == '\n'), text);
}

static void on_hang_up(void *user, void *link, const char *why)
{
    note("%d hung up: %s\n", *(int *)link, why);
}

static void on_met(void *user, uint32_t rank, const char *how)
{
    note("met %u %s\n", rank, how);
}

static void on_left(void *user, uint32_t rank)
{
    note("left %u\n", rank);
}

static void on_abort(void *user, uint32_t rank, int code, const char *text)
{
    note("abort %u %d [%s]\n", rank, code, text);
}

static int on_fence(void *user, const void *puts, size_t len)
{
    struct fbr_cur c = fbr_cur(puts, len);

    note("fence");
    while (fbr_cur_left(&c)) {
        char text[2048];

        fbr_get_str(&c, text, sizeof(text));
        note(" %s", text);
    }
    note("\n");
    return refuse;
}

static int on_name(void *user, uint32_t rank, enum fbr_pmi1_wait what, const char *name,
                   const char *port)
{
    if (what == FBR_PMI1_PUBLISH)
        note("publish %u %s %s\n", rank, name, port);
    else
        note("%s %u %s\n", what == FBR_PMI1_LOOKUP ? "lookup" : "unpublish", rank, name);
    return refuse;
}

static int on_spawn(void *user, uint32_t rank, const struct fbr_bridge_app *apps, size_t napps,
                    const char *preput)
{
    note("spawn %u:", rank);
    for (size_t i = 0; i < napps; i++) {
        note(" %u x", apps[i].count);
        for (const char *const *arg = apps[i].argv; *arg; arg++)
            note(" %s", *arg);
        note(" in %s;", apps[i].workdir ? apps[i].workdir : "-");
    }
    note(" [%s]\n", preput);
    return refuse;
}

static const struct fbr_pmi1_ops ops = {on_send,  on_hang_up, on_met,  on_left,
                                        on_abort, on_fence,   on_name, on_spawn};

static struct fbr_pmi1 *engine;
static struct fbr_pmi1_conn *conns[4];
static int links[] = {0, 1, 2, 3};

/* Ranks 4 and 5 of 9, with connections 0 and 1; connection 2 has yet to say who it is.
 * Alone where the test has a state. */
static int attach_two(void **state)
{
    static const struct fbr_bridge_rank local[] = {{.app = 0}, {.app = 3}};
    struct fbr_pmi1_config config = {.nspace = "ring",
                                     .size = 9,
                                     .first = 4,
                                     .count = 2,
                                     .local = local,
                                     .alone = *state != NULL};

    refuse = 0;
    did[0] = 0;
    engine = fbr_pmi1_open(&ops, NULL, &config);
    for (int i = 0; i < 3; i++)
        conns[i] = fbr_pmi1_attach(engine, &links[i], i < 2 ? 4 + i : -1);
    return conns[2] ? 0 : -1;
}

static int close_two(void **state)
{
    fbr_pmi1_close(engine);
    return 0;
}

static void send_line(int link, const char *text)
{
    did[0] = 0;
    fbr_pmi1_bytes(conns[link], text, strlen(text));
}
