/* run_control_wire.c - requests and answers at the control socket of a run, as bytes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/inspect/run_control_wire.h"

#include <errno.h>
#include <string.h>

#define LONG_TEXT 4096

/* ---- Fields ---- */

#define REQUEST(member) FBR_FIELD(struct fbr_run_control_request, member)
#define ABOUT(member) FBR_FIELD(struct fbr_run_control_about, member)
#define FACTS(member) FBR_FIELD(struct fbr_run_facts, member)
#define STATS(member) FBR_FIELD(struct fiber_rank_stats, member)
#define RANK(member) FBR_FIELD(struct fbr_run_rank, member)

static const struct fbr_field request_fields[] = {
    REQUEST(op), REQUEST(rank), REQUEST(argument), {0}};
static const struct fbr_field about_fields[] = {
    ABOUT(uid),        ABOUT(name),       ABOUT(command),
    ABOUT(backend),    ABOUT(output_dir), ABOUT(pid),
    ABOUT(started_ms), ABOUT(size),       {0}};
static const struct fbr_field facts_fields[] = {
    FACTS(size),  FACTS(agents),   FACTS(agents_joined), FACTS(running),
    FACTS(ended), FACTS(restarts), FACTS(waiting),       {0}};
static const struct fbr_field stats_fields[] = {
    STATS(rank), STATS(state), STATS(code), STATS(restarts), STATS(pid), STATS(host),
    STATS(cpus), STATS(how),   STATS(cpu),  STATS(memory),   {0}};
static const struct fbr_field rank_fields[] = {RANK(started_ms), RANK(tasks), RANK(busy), {0}};

/* ---- Writing ---- */

static size_t begin(struct fbr_buf *b, uint8_t first)
{
    size_t at = b->len;

    fbr_put_u32(b, 0);
    fbr_put_u8(b, first);
    return at;
}

static void end(struct fbr_buf *b, size_t at)
{
    if (!b->failed)
        fbr_set_u32(b, at, (uint32_t)(b->len - at - 4));
}

void fbr_run_control_put_request(struct fbr_buf *b, const struct fbr_run_control_request *r)
{
    size_t at = begin(b, r->version);

    fbr_put_fields(b, request_fields, r);
    end(b, at);
}

void fbr_run_control_put_run(struct fbr_buf *b, const struct fbr_run_control_about *about,
                             const struct fbr_run_facts *facts)
{
    size_t at = begin(b, FBR_RUN_CONTROL_RUN);

    fbr_put_fields(b, about_fields, about);
    fbr_put_fields(b, facts_fields, facts);
    fbr_put_u8(b, about->kind);
    fbr_put_str(b, facts->doing);
    fbr_put_u64(b, (uint64_t)facts->ended_ms);
    fbr_put_u8(b, about->unkept);
    end(b, at);
}

void fbr_run_control_put_rank(struct fbr_buf *b, const struct fbr_run_rank *r)
{
    size_t at = begin(b, FBR_RUN_CONTROL_RANK);

    fbr_put_fields(b, stats_fields, &r->stats);
    fbr_put_fields(b, rank_fields, r);
    end(b, at);
}

void fbr_run_control_put_done(struct fbr_buf *b, int code, const char *text)
{
    size_t at = begin(b, FBR_RUN_CONTROL_DONE), len = strlen(text);

    fbr_put_u32(b, (uint32_t)code);
    fbr_put_bytes(b, text, len < LONG_TEXT ? len : LONG_TEXT - 1);
    end(b, at);
}

/* ---- Reading ---- */

int fbr_run_control_frame(const void *data, size_t len, size_t max, struct fbr_cur *frame,
                          size_t *used)
{
    struct fbr_cur c = fbr_cur(data, len);
    uint32_t inside;

    if (len < 4)
        return 0;
    inside = fbr_get_u32(&c);
    if (inside > max)
        return -EMSGSIZE;
    if (fbr_cur_left(&c) < inside)
        return 0;
    *frame = fbr_cur(c.at, inside);
    *used = 4 + (size_t)inside;
    return 1;
}

bool fbr_run_control_get_request(struct fbr_cur *c, struct fbr_run_control_request *r)
{
    r->version = fbr_get_u8(c);
    fbr_get_fields(c, request_fields, r);
    return fbr_cur_ok(c);
}

bool fbr_run_control_get_run(struct fbr_cur *c, struct fbr_run_control_about *about,
                             struct fbr_run_facts *facts)
{
    memset(about, 0, sizeof(*about));
    memset(facts, 0, sizeof(*facts));
    fbr_get_fields(c, about_fields, about);
    fbr_get_fields(c, facts_fields, facts);
    if (fbr_cur_left(c)) { /* the answer of an older launcher ends here */
        about->kind = fbr_get_u8(c);
        fbr_get_str(c, facts->doing, sizeof(facts->doing));
    }
    if (fbr_cur_left(c))
        facts->ended_ms = (int64_t)fbr_get_u64(c);
    if (fbr_cur_left(c))
        about->unkept = fbr_get_u8(c);
    return fbr_cur_ok(c);
}

bool fbr_run_control_get_rank(struct fbr_cur *c, struct fbr_run_rank *r)
{
    memset(r, 0, sizeof(*r));
    fbr_get_fields(c, stats_fields, &r->stats);
    if (fbr_cur_left(c)) /* the answer of an older launcher ends here */
        fbr_get_fields(c, rank_fields, r);
    return fbr_cur_ok(c);
}

bool fbr_run_control_get_done(struct fbr_cur *c, int *code, char *text, size_t size)
{
    size_t len = 0;
    const char *from;

    *code = (int32_t)fbr_get_u32(c);
    from = fbr_get_bytes(c, &len);
    if (!fbr_cur_ok(c) || !size)
        return false;
    if (len >= size)
        len = size - 1;
    if (len)
        memcpy(text, from, len);
    text[len] = '\0';
    return true;
}
