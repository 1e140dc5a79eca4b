/* stack.c - records of processes and their stacks.
 *
 * A list doubles its memory when its length is a power of two, so its capacity needs no field.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/inspect/stack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void *fbr_stack_grow(void **list, size_t n, size_t size)
{
    void *more = *list;

    if (!(n & (n - 1))) {
        more = realloc(*list, (n ? n * 2 : 1) * size);
        if (!more)
            return NULL;
        *list = more;
    }
    return memset((char *)more + n * size, 0, size);
}

struct fbr_stack_thread *fbr_stack_add_thread(struct fbr_stack_process *p)
{
    void *list = p->threads;
    struct fbr_stack_thread *t =
        p->nthreads < FBR_STACK_THREADS ? fbr_stack_grow(&list, p->nthreads, sizeof(*t)) : NULL;

    p->threads = list;
    p->nthreads += t != NULL;
    return t;
}

struct fbr_stack_frame *fbr_stack_add_frame(struct fbr_stack_thread *t)
{
    void *list = t->frames;
    struct fbr_stack_frame *f =
        t->nframes < FBR_STACK_FRAMES ? fbr_stack_grow(&list, t->nframes, sizeof(*f)) : NULL;

    t->frames = list;
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

/* ---- Writing ---- */

static void put_thread(struct fbr_buf *b, const struct fbr_stack_thread *t)
{
    fbr_put_u32(b, t->tid);
    fbr_put_u8(b, (uint8_t)t->state);
    fbr_put_u64(b, t->cpu_ms);
    fbr_put_u8(b, t->cut);
    fbr_put_str(b, t->name);
    fbr_put_str(b, t->wchan);
    fbr_put_str(b, t->call);
    fbr_put_str(b, t->why);
    fbr_put_u16(b, (uint16_t)t->nframes);
    for (uint32_t i = 0; i < t->nframes; i++) {
        fbr_put_u64(b, t->frames[i].offset);
        fbr_put_str(b, t->frames[i].function);
        fbr_put_str(b, t->frames[i].module);
        fbr_put_str(b, t->frames[i].source);
    }
}

void fbr_stack_put(struct fbr_buf *b, const struct fbr_stack_process *p)
{
    size_t at = b->len;

    fbr_put_u32(b, 0);
    fbr_put_u32(b, p->pid);
    fbr_put_u32(b, p->parent);
    fbr_put_u32(b, (uint32_t)p->rank);
    fbr_put_u8(b, p->visited);
    fbr_put_u8(b, (uint8_t)p->state);
    fbr_put_u64(b, p->cpu_ms);
    fbr_put_str(b, p->program);
    fbr_put_str(b, p->why);
    fbr_put_u16(b, (uint16_t)p->nthreads);
    for (uint32_t i = 0; i < p->nthreads; i++)
        put_thread(b, &p->threads[i]);
    if (!b->failed)
        fbr_set_u32(b, at, (uint32_t)(b->len - at - 4));
}

/* ---- Reading ---- */

static char get_state(struct fbr_cur *c)
{
    char state = (char)fbr_get_u8(c);

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
        f->offset = fbr_get_u64(c);
        fbr_get_str(c, f->function, sizeof(f->function));
        fbr_get_str(c, f->module, sizeof(f->module));
        fbr_get_str(c, f->source, sizeof(f->source));
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
        t->tid = fbr_get_u32(c);
        t->state = get_state(c);
        t->cpu_ms = fbr_get_u64(c);
        t->cut = fbr_get_u8(c) != 0;
        fbr_get_str(c, t->name, sizeof(t->name));
        fbr_get_str(c, t->wchan, sizeof(t->wchan));
        fbr_get_str(c, t->call, sizeof(t->call));
        fbr_get_str(c, t->why, sizeof(t->why));
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
    p->pid = fbr_get_u32(&in);
    p->parent = fbr_get_u32(&in);
    p->rank = (int32_t)fbr_get_u32(&in);
    p->visited = fbr_get_u8(&in) != 0;
    p->state = get_state(&in);
    p->cpu_ms = fbr_get_u64(&in);
    fbr_get_str(&in, p->program, sizeof(p->program));
    fbr_get_str(&in, p->why, sizeof(p->why));
    rc = get_threads(&in, p);
    if (rc < 0 || p->rank < -1) {
        fbr_stack_fini(p);
        return rc < 0 ? rc : -EBADMSG;
    }
    return 1;
}
