/* pipe_frames_fuzz.c - hostile bytes on the socket of a process to its host.
 *
 * The input is pieces: u16 length, so many bytes, as they may be read one after the other.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/net/pipe_frames.h"

#define LIMIT 100000

static volatile size_t seen; /* so that each byte is looked at */

static void on_record(void *user, const void *record, size_t len)
{
    const uint8_t *at = record;

    if (len > LIMIT || (uintptr_t)record % 8)
        abort();
    for (size_t i = 0; i < len; i++)
        seen += at[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fbr_cur c = fbr_cur(data, size);
    struct fbr_pipe_frames_in in = {.limit = LIMIT};
    int rc = 0;

    while (rc == 0 && fbr_cur_ok(&c) && fbr_cur_left(&c)) {
        size_t len = fbr_get_u16(&c), room;
        void *to = fbr_pipe_frames_room(&in, &room);

        if (!to || room == 0 || in.cap > LIMIT + 65536)
            abort();
        len = len < fbr_cur_left(&c) ? len : fbr_cur_left(&c);
        len = len < room ? len : room;
        if (len)
            memcpy(to, fbr_get(&c, len), len);
        rc = fbr_pipe_frames_took(&in, len, on_record, NULL);
    }
    fbr_pipe_frames_in_fini(&in);
    return 0;
}
