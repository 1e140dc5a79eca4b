/* mux_fuzz.c - hostile messages to the receiver of a data link, and records through both sides.
 *
 * The input is u8 mode, then messages: u16 length (of which the highest bit asks for the right
 * number to be put in), so many bytes. With mode 1 it is records instead, u16 length in units of 5
 * bytes, u8 content: they go into a lane, come out as messages, and are read again. With mode 2 each
 * record is of the stream `content % 5`, and each stream must get its own in order. Mode 3 is
 * messages again, to a receiver that knows of 8 streams, each closed after as many messages.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/net/mux.h"
#include "runtime/net/sock.h"

#define LINK 0x0102030405060708u
#define LIMIT 300000 /* longest record; more than one message holds */
#define HEAD 12      /* of a message, before its number */

#define STREAMS 5
#define CLOSING 8

static struct {
    size_t records, bytes;
    uint32_t sum[STREAMS];
    int acks;
    const struct fbr_mux_in *in;
} f;

static void require(int holds)
{
    if (!holds)
        abort();
}

/* Of some bytes of a record; the others are alike. */
static uint32_t sum_of(uint32_t sum, const uint8_t *data, size_t len)
{
    for (size_t i = 0; i < len; i += 61)
        sum = sum * 31 + data[i];
    return sum * 31 + (len ? data[len - 1] : 0);
}

static void on_ack(void *user, uint32_t ack, bool records)
{
    f.acks++;
}

static void on_record(void *user, const void *record, size_t len)
{
    require(len <= LIMIT && f.acks == 1);
    f.records++;
    f.bytes += len;
    if (f.in->stream < STREAMS)
        f.sum[f.in->stream] = sum_of(f.sum[f.in->stream], record, len);
}

static bool is_open(void *user, uint64_t stream)
{
    const struct fbr_mux_in *in = user;

    return stream > in->seq;
}

static int open_message(struct fbr_mux_in *in, void *msg, size_t len)
{
    uint64_t link;
    int rc = fbr_mux_link(msg, len, &link);

    f.acks = 0;
    return rc < 0 ? rc : fbr_mux_open(in, msg, len, on_ack, on_record, NULL);
}

static void hear(struct fbr_cur *c, size_t size, bool closing)
{
    struct fbr_spare spare = {NULL, 0};
    struct fbr_mux_in in;
    int rc = fbr_mux_in_init(&in, LINK, NULL, 0, LIMIT);

    in.spare = &spare;
    in.streams = closing ? CLOSING : UINT64_MAX;
    in.is_open = closing ? is_open : NULL;
    in.user = &in;
    f.in = &in;
    while (rc == 0 && fbr_cur_ok(c) && fbr_cur_left(c)) {
        size_t len = fbr_get_u16(c);
        uint32_t seq = in.seq + 1;
        int mend = len & 0x8000;
        uint8_t *msg;

        len = (len & 0x7fff) < fbr_cur_left(c) ? len & 0x7fff : fbr_cur_left(c);
        msg = malloc(len ? len : 1); /* so that a read behind its end is seen */
        require(msg != NULL);
        if (len)
            memcpy(msg, fbr_get(c, len), len);
        if (mend && len >= HEAD + sizeof(seq))
            memcpy(msg + HEAD, &seq, sizeof(seq));
        if (closing)
            fbr_mux_forget(&in);
        rc = open_message(&in, msg, len);
        require(in.n_parts <= (closing ? CLOSING + 1 : size));
        if (closing) {
            fbr_mux_forget(&in);
            require(in.n_parts <= (in.seq < CLOSING ? CLOSING - in.seq : 0) + 1);
        }
        free(msg);
    }
    fbr_mux_in_fini(&in);
    free(spare.data);
}

/* A record of this length: one byte again and again, and another one at its end. */
static uint8_t *new_record(size_t len, uint8_t seed)
{
    uint8_t *data = malloc(len ? len : 1);

    require(data != NULL);
    memset(data, seed, len ? len : 1);
    if (len)
        data[len - 1] = (uint8_t)~seed;
    return data;
}

static void say_and_hear(struct fbr_cur *c, bool streams)
{
    struct fbr_mux_out out;
    struct fbr_mux_in in;
    size_t records = 0, bytes = 0;
    uint32_t sum[STREAMS] = {0};

    f.in = &in;
    require(fbr_mux_out_init(&out, LINK, NULL, 0) == 0);
    require(fbr_mux_in_init(&in, LINK, NULL, 0, LIMIT) == 0);
    in.streams = STREAMS;
    while (fbr_cur_ok(c) && fbr_cur_left(c) && bytes < LIMIT) {
        size_t len = (size_t)fbr_get_u16(c) * 5 % LIMIT;
        uint8_t seed = fbr_get_u8(c), *data = new_record(len, seed);
        uint64_t stream = streams ? seed % STREAMS : 0;
        const struct iovec iov[3] = {
            {data, len / 3}, {data + len / 3, 0}, {data + len / 3, len - len / 3}};

        require(fbr_mux_add_to(&out, stream, iov, 3) == 0);
        sum[stream] = sum_of(sum[stream], data, len);
        records++;
        bytes += len;
        free(data);
    }
    while (!fbr_mux_empty(&out)) {
        void *msg;
        size_t len;

        require(fbr_mux_take(&out, 0, &msg, &len) == 0 && len <= FBR_SOCK_MAX);
        require(open_message(&in, msg, len) == 0);
        fbr_sock_free(msg);
    }
    require(f.records == records && f.bytes == bytes && out.queued == 0 && in.n_parts == 0);
    require(memcmp(f.sum, sum, sizeof(sum)) == 0 && !out.queues.next);
    fbr_mux_out_fini(&out);
    fbr_mux_in_fini(&in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fbr_cur c = fbr_cur(data, size);
    uint8_t mode = fbr_get_u8(&c);

    memset(&f, 0, sizeof(f));
    if (mode == 1 || mode == 2)
        say_and_hear(&c, mode == 2);
    else
        hear(&c, size, mode == 3);
    return 0;
}
