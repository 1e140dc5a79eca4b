/* rank_output.c - writes the output of ranks to our own streams and to files: whole lines, and
 * unfinished lines that nothing follows, with tags if the options ask for them. Also prints the
 * launcher's own messages.
 *
 * Nothing is lost and nothing piles up: an agent may have FBR_RING_WINDOW bytes on the way that
 * were not taken here. When our own reader is slow the launcher takes no more, until
 * fbr_ring_send_credit().
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "ring/ring_priv.h"

#define SHOW_MS 100         /* ms after which an unfinished line is shown on a terminal */
#define SHOW_SHARED_MS 1000 /* the same, in a pipe or a file that several ranks share */

/* Writes the time if the options ask for it. */
static int make_time(const struct fiber_ring *r, char *tag, size_t size)
{
    struct timeval now;
    struct tm t;

    tag[0] = '\0';
    if (!(r->options.flags & FIBER_RING_TIMESTAMP))
        return 0;
    gettimeofday(&now, NULL);
    localtime_r(&now.tv_sec, &t);
    return snprintf(tag, size, "%02d:%02d:%02d.%03d ", t.tm_hour, t.tm_min, t.tm_sec,
                    (int)(now.tv_usec / 1000));
}

static const char *make_tag(struct fiber_ring *r, const struct ring_job *j, uint32_t rank,
                            char *tag, size_t size)
{
    int n = make_time(r, tag, size);

    if ((r->options.flags & FIBER_RING_TAG) && j->job.info.spawned)
        snprintf(tag + n, size - (size_t)n, "[%u.%u] ", j->job.info.id, rank);
    else if (r->options.flags & FIBER_RING_TAG)
        snprintf(tag + n, size - (size_t)n, "[%u] ", rank);
    return tag;
}

/* ---- Screens ---- */

static struct fbr_screen *screen_of(const struct fiber_ring *r, int stream)
{
    return fbr_output_screen(r->rt->output, stream);
}

/* If ranks share a pipe or a file, a line stays whole even if its rank has to wait for a
 * processor in the middle of it. On a terminal a question appears soon. */
void fbr_rank_output_job(struct ring_job *j)
{
    const struct fiber_ring *r = j->ring;
    struct stat st;

    for (int k = 0; k < 2; k++) {
        screen_of(r, k + 1)->shared |= r->size > 1;
        j->job.show_ms[k] = r->size == 1                    ? 0
                            : screen_of(r, k + 1)->terminal ? SHOW_MS
                                                            : SHOW_SHARED_MS;
    }
    if (isatty(0))
        j->job.reader_ms = 0;
    else if (fstat(0, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)))
        j->job.reader_ms = SHOW_MS;
    else
        j->job.reader_ms = j->job.show_ms[0];
}

void fbr_rank_output_begin(struct ring_rank *k)
{
    for (int i = 0; i < 2; i++) {
        k->out[i].who = k;
        k->files[i] = -1;
    }
}

bool fbr_ring_shown_last(const struct ring_job *j, uint32_t rank, int stream)
{
    const struct fbr_screen *screen = screen_of(j->ring, 2);

    return screen->last == &j->ranks[rank] && screen_of(j->ring, stream) == screen;
}

void fbr_ring_typed(struct fiber_ring *r)
{
    for (int fd = 1; fd <= 2; fd++)
        if (screen_of(r, fd)->terminal) {
            screen_of(r, fd)->owner = NULL;
            screen_of(r, fd)->returned = false;
        }
}

/* ---- Ranks ---- */

static void put_out(struct ring_job *j, uint32_t rank, int stream)
{
    struct fiber_ring *r = j->ring;
    struct fbr_buf *b = &r->block;

    if (b->failed) {
        fbr_buf_fini(b);
        fbr_ring_fail(r, NULL, 0, 125, "", "out of memory for the output of rank %u", rank);
        return;
    }
    if (!b->len)
        return;
    if (fbr_output_add(r->rt->output, stream, b->data, b->len))
        r->output_full = true;
    /* A program that prints by itself would get SIGPIPE here. */
    if (stream == 1 && fbr_output_error(r->rt->output, 1) == EPIPE)
        fbr_ring_fail(r, NULL, 0, -SIGPIPE, "",
                      "the reader of standard output is gone; the ranks are stopped");
    fbr_buf_clear(b);
    if (b->cap > 1u << 20)
        fbr_buf_fini(b);
}

/* Keeps output for `fiber logs`. */
static void keep(struct ring_job *j, uint32_t rank, enum fbr_record_kind kind, const void *data,
                 size_t len)
{
    struct fiber_ring *r = j->ring;
    int rc =
        fbr_spool_add(r->spool, j->job.info.spawned ? j->job.info.id : 0, rank, kind, data, len);

    if (rc < 0)
        fbr_ring_print(
            r, "`fiber logs` will not show all of this run: cannot keep the output of ranks: %s",
            fbr_strerror(rc));
}

void fbr_ring_keep_end(struct fiber_ring *r, const char *report)
{
    struct fbr_run_facts facts;

    fbr_ring_facts(r, &facts);
    fbr_spool_end(r->spool, &facts, r->failure.code, report);
}

void fbr_rank_output_again(struct ring_job *j, uint32_t rank, uint32_t times)
{
    struct ring_rank *k = &j->ranks[rank];
    time_t now = time(NULL);
    struct tm t;

    localtime_r(&now, &t);
    snprintf(k->mark, sizeof(k->mark), "--- restart %u, %02d:%02d:%02d ---\n", times, t.tm_hour,
             t.tm_min, t.tm_sec);
    k->unmarked[0] = k->unmarked[1] = true;
    keep(j, rank, FBR_RECORD_MARK, k->mark, strlen(k->mark));
}

void fbr_rank_output_print(struct ring_job *j, uint32_t rank, int stream, const void *data,
                           size_t len, bool show)
{
    struct fiber_ring *r = j->ring;
    struct fbr_line_stream *s = &j->ranks[rank].out[stream - 1];
    char tag[64];

    make_time(r, tag, sizeof(tag));
    if (len && fbr_ring_file_put(j, rank, stream, tag, data, len))
        r->output_full = true;
    if (len)
        keep(j, rank, stream == 1 ? FBR_RECORD_OUT : FBR_RECORD_ERR, data, len);
    if (j->job.pty && rank == j->job.reader) { /* the rank has the terminal for itself */
        fbr_line_raw(s, screen_of(r, stream), data, len);
        fbr_put(&r->block, data, len);
        put_out(j, rank, stream);
        return;
    }
    make_tag(r, j, rank, tag, sizeof(tag));
    if (len)
        fbr_line_add(s, screen_of(r, stream), tag, data, len, &r->block);
    if (show)
        fbr_line_show(s, screen_of(r, stream), tag, &r->block);
    put_out(j, rank, stream);
}

void fbr_rank_output_end(struct ring_job *j, uint32_t rank)
{
    struct fiber_ring *r = j->ring;
    char tag[64];

    for (int stream = 1; stream <= 2; stream++) {
        fbr_line_end(&j->ranks[rank].out[stream - 1], screen_of(r, stream),
                     make_tag(r, j, rank, tag, sizeof(tag)), &r->block);
        put_out(j, rank, stream);
    }
}

/* Sends credit for the output that was taken. Called if our own reader is not behind. */
void fbr_ring_send_credit(struct fiber_ring *r)
{
    r->output_full = false;
    for (uint32_t i = 0; i < r->nagents; i++) {
        struct ring_agent *a = &r->agents[i];
        struct fbr_buf b = {0};

        if (!a->credit || !a->process)
            continue;
        fbr_put_u64(&b, a->credit);
        fbr_ring_send(a, FBR_RING_CREDIT, &b);
        fbr_buf_fini(&b);
        a->credit = 0;
    }
}

/* Prints "fiber: text", in one piece, on standard error. */
void fbr_ring_print(struct fiber_ring *r, const char *fmt, ...)
{
    char text[2048];
    struct fbr_buf out = {0};
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = snprintf(text, sizeof(text), "fiber: ");
    vsnprintf(text + n, sizeof(text) - (size_t)n - 2, fmt, ap);
    va_end(ap);
    n = (int)strlen(text);
    for (int i = 0; i < n; i++)
        if ((unsigned char)text[i] < ' ' && text[i] != '\n' && text[i] != '\t')
            text[i] = ' '; /* control characters must not reach a terminal */
    if (r->raw)
        text[n++] = '\r';
    text[n++] = '\n';
    if (!r->rt->output) { /* it could not be opened, so no agent was started */
        (void)!write(STDERR_FILENO, text, (size_t)n);
        return;
    }
    fbr_screen_break(screen_of(r, 2), &out);
    fbr_put(&out, text, (size_t)n);
    if (!out.failed)
        fbr_output_add(r->rt->output, 2, out.data, out.len);
    screen_of(r, 2)->last = NULL;
    fbr_buf_fini(&out);
}
