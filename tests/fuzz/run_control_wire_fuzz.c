/* run_control_wire_fuzz.c - what comes to the door of a run, and what it answers, read as frames of
 * every kind; what could be read is written and read again, and must be the same.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "runtime/inspect/run_control_wire.h"
#include "runtime/base/printable.h"

static struct fbr_cur again(struct fbr_buf *b, size_t *used)
{
    struct fbr_cur c;

    if (b->failed ||
        fbr_run_control_frame(b->data, b->len, FBR_RUN_CONTROL_ANSWER_MAX, &c, used) != 1 ||
        *used != b->len)
        abort();
    return c;
}

static void check_run(struct fbr_cur c)
{
    struct fbr_run_control_about about, about2;
    struct fbr_run_facts facts, facts2;
    struct fbr_buf b;
    size_t used;

    if (!fbr_run_control_get_run(&c, &about, &facts))
        return;
    fbr_buf_init(&b);
    fbr_run_control_put_run(&b, &about, &facts);
    c = again(&b, &used);
    if (fbr_get_u8(&c) != FBR_RUN_CONTROL_RUN || !fbr_run_control_get_run(&c, &about2, &facts2) ||
        strcmp(about.uid, about2.uid) != 0 || strcmp(about.output_dir, about2.output_dir) != 0 ||
        strcmp(facts.waiting, facts2.waiting) != 0 || facts.restarts != facts2.restarts ||
        about.pid != about2.pid || about.kind != about2.kind ||
        strcmp(facts.doing, facts2.doing) != 0 || facts.ended_ms != facts2.ended_ms)
        abort();
    fbr_buf_fini(&b);
}

static void check_rank(struct fbr_cur c)
{
    struct fbr_run_rank r, r2;
    struct fbr_buf b;
    size_t used;

    if (!fbr_run_control_get_rank(&c, &r))
        return;
    fbr_buf_init(&b);
    fbr_run_control_put_rank(&b, &r);
    c = again(&b, &used);
    if (fbr_get_u8(&c) != FBR_RUN_CONTROL_RANK || !fbr_run_control_get_rank(&c, &r2) ||
        r.stats.rank != r2.stats.rank ||
        memcmp(&r.stats.cpu, &r2.stats.cpu, sizeof(r.stats.cpu)) != 0 ||
        strcmp(r.stats.host, r2.stats.host) != 0 || r.stats.memory != r2.stats.memory ||
        r.started_ms != r2.started_ms || r.tasks != r2.tasks ||
        memcmp(&r.busy, &r2.busy, sizeof(r.busy)) != 0)
        abort();
    fbr_buf_fini(&b);
}

static void check_texts(struct fbr_cur c)
{
    char text[64], plain[32];
    int code;

    if (!fbr_run_control_get_done(&c, &code, text, sizeof(text)))
        return;
    fbr_printable_plain(plain, sizeof(plain), text);
    if (strlen(text) >= sizeof(text) || strlen(plain) >= sizeof(plain) || strpbrk(plain, "\033\n"))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fbr_run_control_request r;
    struct fbr_cur c;
    size_t used;

    while (fbr_run_control_frame(data, size, FBR_RUN_CONTROL_ANSWER_MAX, &c, &used) == 1) {
        struct fbr_cur request = c;

        if (used < 4 || used > size || c.end != data + used)
            abort();
        fbr_run_control_get_request(&request, &r);
        fbr_get_u8(&c);
        check_run(c);
        check_rank(c);
        check_texts(c);
        data += used;
        size -= used;
    }
    return 0;
}
