/* service.h - hostile clients of a service that the launcher has for ranks (mpi_bridge/service.h).
 *
 * The input is a list of events: u8 event (of which the low bits are the connection), then u8
 * length and so many bytes. Nothing is sent to a connection that is gone, and a service without
 * connections holds no memory of them (the leak checker sees it).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/bridge_tables.h"
#include "runtime/base/buf.h"

#define CONNS 4

static struct {
    struct fbr_service_conn *open[CONNS];
} f;

static void require(int holds)
{
    if (!holds)
        abort();
}

static void on_send(void *peer, const void *data, size_t len)
{
    struct fbr_service_conn **open = peer;

    require(*open && data && len);
}

static void on_hang_up(void *peer)
{
    struct fbr_service_conn **open = peer;

    require(*open != NULL);
    *open = NULL;
}

static int fuzz_service(const struct fbr_service_ops *ops, const uint8_t *data, size_t size)
{
    const struct fbr_service_host host = {on_send, on_hang_up};
    struct fbr_service *s = ops->open(&host);
    struct fbr_cur c = fbr_cur(data, size);

    memset(&f, 0, sizeof(f));
    while (s && fbr_cur_left(&c)) {
        uint8_t what = fbr_get_u8(&c), len = fbr_get_u8(&c), i = what % CONNS;
        size_t n = len < fbr_cur_left(&c) ? len : fbr_cur_left(&c);
        const void *bytes = n ? fbr_get(&c, n) : "";

        if (what >= 224 && f.open[i]) {
            ops->closed(f.open[i]);
            f.open[i] = NULL;
        }
        if (!f.open[i])
            f.open[i] = ops->opened(s, &f.open[i]);
        if (f.open[i])
            ops->bytes(f.open[i], bytes, n);
    }
    for (int i = 0; i < CONNS; i++)
        if (f.open[i])
            ops->closed(f.open[i]);
    ops->close(s);
    return 0;
}
