/* sp_fuzz.c - hostile bytes at the port of the data channel, before anybody has proven who he is and
 * after.
 *
 * The input is a byte (bit 0: the first message proves its sender; bit 1: over a unix socket), then
 * pieces: u16 length, so many bytes, as they may be read one after the other.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/buf.h"
#include "runtime/net/mux.h"
#include "runtime/net/sp.h"

#define LIMIT 100000

static volatile size_t seen; /* so that each byte is looked at */

struct peer {
    struct fbr_sp_in in;
    bool proves;
};

static int on_message(void *user, void *msg, size_t len)
{
    struct peer *p = user;
    const uint8_t *at = msg;

    if (len > p->in.most || (uintptr_t)msg % 8 != 4)
        abort();
    for (size_t i = 0; i < len; i++)
        seen += at[i];
    if (p->proves)
        p->in.most = LIMIT;
    return len == 1 ? -1 : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static _Alignas(16) uint8_t scratch[FBR_SP_SCRATCH];
    struct fbr_cur c = fbr_cur(data, size);
    struct peer p = {.in = {.most = FBR_MUX_EMPTY}};
    int rc = 0, how;

    how = fbr_get_u8(&c);
    p.proves = how & 1;
    p.in.local = how & 2;
    while (rc == 0 && fbr_cur_ok(&c) && fbr_cur_left(&c)) {
        size_t len = fbr_get_u16(&c), room;
        void *to = fbr_sp_room(&p.in, scratch, &room);

        if (room == 0 || (p.in.data && p.in.most == FBR_MUX_EMPTY))
            abort();
        len = len < fbr_cur_left(&c) ? len : fbr_cur_left(&c);
        len = len < room ? len : room;
        if (len)
            memcpy(to, fbr_get(&c, len), len);
        rc = fbr_sp_took(&p.in, scratch, len, on_message, &p);
    }
    fbr_sp_in_fini(&p.in);
    return 0;
}
