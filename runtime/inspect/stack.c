/* stack.c - records of processes and their stacks.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/inspect/stack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct fbr_stack_thread *fbr_stack_add_thread(struct fbr_stack_process *p)
{
    struct fbr_stack_thread *t =
        p->nthreads < FBR_STACK_THREADS ? fbr_grow(&p->threads, p->nthreads, sizeof(*t)) : NULL;

    p->nthreads += t != NULL;
    return t;
}

struct fbr_stack_frame *fbr_stack_add_frame(struct fbr_stack_thread *t)
{
    struct fbr_stack_frame *f =
        t->nframes < FBR_STACK_FRAMES ? fbr_grow(&t->frames, t->nframes, sizeof(*f)) : NULL;

    t->nframes += f != NULL;
    return f;
}

void fbr_stack_fini(struct fbr_stack_process *p)
{
    for (uint32_t i = 0; i < p->nthreads; i++)
        free(p->threads[i].frames);
    free(p->threads);
    p->threads = NULL;
    p->nthreads = 0;
}

void fbr_stack_take_frames(struct fbr_stack_process *to, struct fbr_stack_process *from)
{
    memcpy(to->why, from->why, sizeof(to->why));
    for (uint32_t i = 0; i < to->nthreads; i++)
        for (uint32_t k = 0; k < from->nthreads; k++) {
            struct fbr_stack_thread *t = &to->threads[i], *f = &from->threads[k];

            if (t->tid != f->tid)
                continue;
            free(t->frames);
            t->frames = f->frames;
            t->nframes = f->nframes;
            t->cut = f->cut;
            memcpy(t->why, f->why, sizeof(t->why));
            f->frames = NULL;
            f->nframes = 0;
            break;
        }
}

/* ---- Fields ---- */

#define PROCESS(member) FBR_FIELD(struct fbr_stack_process, member)
#define THREAD(member) FBR_FIELD(struct fbr_stack_thread, member)
#define FRAME(member) FBR_FIELD(struct fbr_stack_frame, member)

static const struct fbr_field process_fields[] = {
    PROCESS(pid),     PROCESS(parent), PROCESS(rank),
    PROCESS(visited), PROCESS(state),  PROCESS(cpu_ms),
    PROCESS(program), PROCESS(why),    {0}};
static const struct fbr_field thread_fields[] = {THREAD(tid),  THREAD(state), THREAD(cpu_ms),
                                                 THREAD(cut),  THREAD(name),  THREAD(wchan),
                                                 THREAD(call), THREAD(why),   {0}};
static const struct fbr_field frame_fields[] = {
    FRAME(offset), FRAME(function), FRAME(module), FRAME(source), {0}};

/* ---- Writing ---- */

static void put_thread(struct fbr_buf *b, const struct fbr_stack_thread *t)
{
    fbr_put_fields(b, thread_fields, t);
    fbr_put_u16(b, (uint16_t)t->nframes);
    for (uint32_t i = 0; i < t->nframes; i++)
        fbr_put_fields(b, frame_fields, &t->frames[i]);
}

void fbr_stack_put(struct fbr_buf *b, const struct fbr_stack_process *p)
{
    size_t at = b->len;

    fbr_put_u32(b, 0);
    fbr_put_fields(b, process_fields, p);
    fbr_put_u16(b, (uint16_t)p->nthreads);
    for (uint32_t i = 0; i < p->nthreads; i++)
        put_thread(b, &p->threads[i]);
    if (!b->failed)
        fbr_set_u32(b, at, (uint32_t)(b->len - at - 4));
}

/* ---- Reading ---- */

static char printable(char state)
{
    return (state >= 'A' && state <= 'Z') || (state >= 'a' && state <= 'z') ? state : '?';
}

static int get_frames(struct fbr_cur *c, struct fbr_stack_thread *t)
{
    uint32_t n = fbr_get_u16(c);

    if (!fbr_cur_ok(c) || n > FBR_STACK_FRAMES)
        return -EBADMSG;
    while (n--) {
        struct fbr_stack_frame *f = fbr_stack_add_frame(t);

        if (!f)
            return -ENOMEM;
        fbr_get_fields(c, frame_fields, f);
        if (!fbr_cur_ok(c))
            return -EBADMSG;
    }
    return 0;
}

static int get_threads(struct fbr_cur *c, struct fbr_stack_process *p)
{
    uint32_t n = fbr_get_u16(c);
    int rc;

    if (!fbr_cur_ok(c) || n > FBR_STACK_THREADS)
        return -EBADMSG;
    while (n--) {
        struct fbr_stack_thread *t = fbr_stack_add_thread(p);

        if (!t)
            return -ENOMEM;
        fbr_get_fields(c, thread_fields, t);
        t->state = printable(t->state);
        rc = get_frames(c, t);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int fbr_stack_get(struct fbr_cur *c, struct fbr_stack_process *p)
{
    uint32_t len;
    struct fbr_cur in;
    const void *at;
    int rc;

    memset(p, 0, sizeof(*p));
    if (!fbr_cur_left(c))
        return 0;
    len = fbr_get_u32(c);
    at = len <= FBR_STACK_RECORD ? fbr_get(c, len) : NULL;
    if (!at)
        return -EBADMSG;
    in = fbr_cur(at, len);
    fbr_get_fields(&in, process_fields, p);
    p->state = printable(p->state);
    rc = get_threads(&in, p);
    if (rc < 0 || p->rank < -1) {
        fbr_stack_fini(p);
        return rc < 0 ? rc : -EBADMSG;
    }
    return 1;
}
