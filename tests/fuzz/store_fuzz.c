/* store_fuzz.c - hostile requests to the shared store, mixed with cancels and deaths.
 *
 * The input is a list of events: u8 event, u8 peer, u8 call, and for a request u8 length and so
 * many bytes. Each answer must belong to an open call, and what is in the store at the end must be
 * gone with its peers and its limit kept.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "share/store_engine.h"

#define MEMORY_MAX 8192
#define PEERS 8

static struct {
    int open[PEERS][256]; /* by peer and call: requests not answered yet */
} f;

static void require(int holds)
{
    if (!holds)
        abort();
}

static void on_reply(void *user, uint64_t peer, uint64_t call, int code, const void *bytes,
                     size_t len)
{
    require(peer < PEERS && call < 256 && f.open[peer][call] > 0);
    require(bytes && code <= 0 && len < 1 << 20);
    f.open[peer][call]--;
}

static void request(struct fbr_store_engine *e, uint8_t peer, uint8_t call, struct fbr_cur *c)
{
    size_t len = fbr_get_u8(c);
    const void *bytes;
    struct fbr_cur message;

    if (len > fbr_cur_left(c))
        len = fbr_cur_left(c);
    bytes = fbr_get(c, len);
    message = fbr_cur(bytes, len);
    f.open[peer][call]++;
    fbr_store_request(e, peer, call, &message);
    require(f.open[peer][call] <= 1);
}

static void peer_gone(struct fbr_store_engine *e, uint8_t peer)
{
    memset(f.open[peer], 0, sizeof(f.open[peer]));
    fbr_store_peer_gone(e, peer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fbr_store_engine *e = fbr_store_engine_open(on_reply, NULL, MEMORY_MAX);
    struct fbr_cur c = fbr_cur(data, size);

    memset(&f, 0, sizeof(f));
    while (e && fbr_cur_left(&c)) {
        uint8_t event = fbr_get_u8(&c), peer = fbr_get_u8(&c) % PEERS, call = fbr_get_u8(&c);

        switch (event % 8) {
        case 0:
            peer_gone(e, peer);
            break;
        case 1:
            fbr_store_cancel(e, peer, call);
            require(!f.open[peer][call]);
            break;
        default:
            request(e, peer, call, &c);
        }
        require(fbr_store_engine_memory(e) <= MEMORY_MAX);
    }
    fbr_store_engine_close(e);
    return 0;
}
