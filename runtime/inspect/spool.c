/* spool.c - a thread that writes the output of ranks to files.
 *
 * One buffer collects the records of all ranks. The thread swaps it for an empty buffer, and writes
 * it. Both buffers keep their memory while there is work, so a flood of output costs no more than
 * the two. Each rank has two files. The newer one grows to half of the bytes that may be kept, and
 * then takes the place of the older one. Files are open only while they are written, because a run
 * may have more ranks than a process may have descriptors.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/inspect/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/printable.h"
#include "runtime/base/sync.h"
#include "runtime/proc/context.h"

#define PENDING_MAX (8u << 20) /* bytes of each of the two buffers */
#define REST_MS 20             /* pause between two writes, so that many pieces make one write */
#define REST_MAX (1u << 20)    /* a buffer of this size ends the pause */
#define CLOSE_MS 3000          /* a journal may hold up all writes for a second or two */
#define KEEP_MIN 65536         /* bytes kept of each rank, however many ranks there are */
#define COUNTED (1u << 20) /* a run that has written this many bytes checks the sum of all runs */
#define PIECES 512

struct fbr_spool {
    struct fbr_run_control_about about;
    char root[PATH_MAX];
    uint64_t keep, total;
    pthread_t thread;
    /* The thread's own. */
    char dir[PATH_MAX];
    int lock_fd;
    uint64_t bytes;
    bool told; /* the adding thread's own */

    pthread_mutex_t lock;
    pthread_cond_t work, done;
    struct fbr_buf pending; /* under lock, as all below */
    struct fbr_buf spare;   /* empty; its memory is used again */
    uint64_t lost;          /* bytes that were left out since the last mark; */
    struct fbr_record of;   /* and the last of them: its rank and time */
    int error;
    bool stop, ended;
    bool left; /* nobody waits: the thread frees it */
    uint64_t moves;
    struct fbr_run_facts facts; /* at the end */
    int code;
    char report[1024];
};

/* ---- Writing ---- */

struct piece {
    uint32_t job, rank;
    size_t at, len;
};

static int by_rank(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;

    if (x->job != y->job)
        return x->job < y->job ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

static int write_pieces(int fd, const uint8_t *data, const struct piece *p, size_t n)
{
    struct iovec v[PIECES];
    size_t sum = 0;
    int k = 0;

    for (size_t i = 0; i < n; i++) {
        sum += p[i].len;
        if (k && data + p[i].at == (uint8_t *)v[k - 1].iov_base + v[k - 1].iov_len) {
            v[k - 1].iov_len += p[i].len;
            continue;
        }
        v[k++] = (struct iovec){(void *)(uintptr_t)(data + p[i].at), p[i].len};
    }
    errno = 0;
    return writev(fd, v, k) == (ssize_t)sum ? 0 : errno ? -errno : -ENOSPC;
}

/* Appends pieces of one rank to its file, which holds at most half of what may be kept. */
static int write_rank(struct fbr_spool *s, const uint8_t *data, const struct piece *p, size_t n)
{
    char path[PATH_MAX + 32], old[PATH_MAX + 40];
    struct stat st = {0};
    bool skipped = false;
    uint64_t sum = 0;
    int fd, rc = 0;

    for (size_t i = 0; i < n; i++)
        sum += p[i].len;
    for (; n > 1 && sum > s->keep / 2; n--, p++) {
        sum -= p->len; /* the oldest piece is the first to be dropped */
        skipped = true;
    }
    snprintf(path, sizeof(path), "%s/%u.%u", s->dir, p->job, p->rank);
    snprintf(old, sizeof(old), "%s.old", path);
    if (stat(path, &st) == 0 && (uint64_t)st.st_size + sum > s->keep / 2)
        rename(path, old);
    if (skipped) /* the kept output must have no gap */
        unlink(old);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    for (size_t k; n > 0 && rc == 0; p += k, n -= k) {
        k = n < PIECES ? n : PIECES;
        rc = write_pieces(fd, data, p, k);
    }
    close(fd);
    s->bytes += sum;
    return rc;
}

static int write_all(struct fbr_spool *s, const struct fbr_buf *b)
{
    struct piece *all = NULL;
    size_t n = 0, used;
    struct fbr_record r;
    int rc = 0;

    for (size_t at = 0; rc == 0 && fbr_record_get(b->data + at, b->len - at, &r, &used) == 1;
         at += used) {
        if (!fbr_grow(&all, n, sizeof(*all))) {
            rc = -ENOMEM;
            break;
        }
        all[n++] = (struct piece){r.job, r.rank, at, used};
    }
    if (n)
        qsort(all, n, sizeof(*all), by_rank);
    for (size_t i = 0, k; i < n && rc == 0; i = k) {
        for (k = i + 1; k < n && all[k].job == all[i].job && all[k].rank == all[i].rank; k++)
            continue;
        rc = write_rank(s, b->data, all + i, k - i);
    }
    free(all);
    return rc;
}

/* ---- The thread ---- */

static void rest(struct fbr_spool *s)
{
    uint64_t until = fbr_deadline(REST_MS);

    while (!s->stop && s->pending.len < REST_MAX && fbr_cond_wait(&s->work, &s->lock, until) == 0)
        continue;
}

/* Under the lock. */
static void write_pending(struct fbr_spool *s)
{
    struct fbr_buf b = s->pending;
    int rc;

    s->pending = s->spare;
    fbr_buf_init(&s->spare);
    pthread_mutex_unlock(&s->lock);
    rc = b.failed ? -ENOMEM : write_all(s, &b);
    fbr_buf_clear(&b);
    pthread_mutex_lock(&s->lock);
    if (rc < 0 && !s->error)
        s->error = rc;
    s->moves++;
    s->spare = b;
    rest(s);
}

/* Under the lock: nothing was added for a while. */
static void release_buffers(struct fbr_spool *s)
{
    fbr_buf_fini(&s->spare);
    if (!s->pending.len)
        fbr_buf_fini(&s->pending);
}

static void spool_free(struct fbr_spool *s)
{
    fbr_buf_fini(&s->pending);
    fbr_buf_fini(&s->spare);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->done);
    free(s);
}

static void *spool_main(void *arg)
{
    struct fbr_spool *s = arg;
    struct fbr_error err = {0, ""};
    bool left;
    int rc;

    pthread_setname_np(pthread_self(), "fbr-spool");
    rc = fbr_spool_make(s->dir, &s->lock_fd, s->root, &s->about, &err);
    if (rc < 0)
        fbr_info("the output of ranks is not kept for `fiber logs`: %s", err.text);
    else
        fbr_spool_prune(s->root, 0, NULL, NULL);
    pthread_mutex_lock(&s->lock);
    s->error = rc;
    while (!s->stop || (s->pending.len && !s->error)) {
        if (s->pending.len && !s->error) {
            write_pending(s);
        } else {
            release_buffers(s);
            pthread_cond_wait(&s->work, &s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
    if (rc == 0) {
        fbr_spool_note_end(s->dir, &s->about, &s->facts, s->code, s->report);
        flock(s->lock_fd, LOCK_UN); /* a forked child may have the descriptor, too */
        close(s->lock_fd);
        if (s->bytes >= COUNTED)
            fbr_spool_prune(s->root, s->total, NULL, NULL);
    }
    pthread_mutex_lock(&s->lock);
    s->ended = true;
    left = s->left;
    pthread_cond_broadcast(&s->done);
    pthread_mutex_unlock(&s->lock);
    if (left)
        spool_free(s);
    return NULL;
}

int fbr_spool_open(struct fbr_spool **out, const struct fbr_config *config,
                   const struct fbr_run_control_about *about, uint32_t ranks, struct fbr_error *err)
{
    uint64_t keep = fbr_config_size(config, "log_keep");
    uint64_t total = fbr_config_size(config, "log_total");
    struct fbr_spool *s;
    int rc;

    *out = NULL;
    if (keep == 0)
        return 0;
    s = calloc(1, sizeof(*s));
    if (!s)
        return fbr_fail(err, -ENOMEM, "out of memory");
    s->about = *about;
    fbr_printable_plain(s->about.name, sizeof(s->about.name), about->name);
    fbr_printable_plain(s->about.command, sizeof(s->about.command), about->command);
    s->total = total;
    s->keep = keep < total / ranks ? keep : total / ranks;
    s->keep = s->keep > KEEP_MIN ? s->keep : KEEP_MIN;
    rc = fbr_spool_root(s->root, config, err);
    if (rc < 0)
        goto fail;
    pthread_mutex_init(&s->lock, NULL);
    fbr_cond_init(&s->work);
    fbr_cond_init(&s->done);
    rc = fbr_thread_start(&s->thread, spool_main, s);
    if (rc < 0) {
        fbr_fail(err, rc, "cannot start a thread for the logs: %s", fbr_strerror(rc));
        goto fail;
    }
    *out = s;
    return 0;
fail:
    free(s);
    return rc;
}

/* ---- Adding ---- */

/* Under the lock. */
static void put_lost(struct fbr_spool *s)
{
    struct fbr_record mark = s->of;
    char text[96];

    if (!s->lost)
        return;
    mark.kind = FBR_RECORD_MARK;
    mark.data = text;
    mark.len = (size_t)snprintf(text, sizeof(text),
                                "--- %llu bytes of all ranks were not kept: the disk is too slow",
                                (unsigned long long)s->lost);
    fbr_record_put(&s->pending, &mark);
    s->lost = 0;
}

int fbr_spool_add(struct fbr_spool *s, uint32_t job, uint32_t rank, enum fbr_record_kind kind,
                  const void *data, size_t len)
{
    struct fbr_record r = {.job = job, .rank = rank, .kind = (uint8_t)kind};
    int error;

    if (!s || s->told)
        return 0;
    r.time_us = (uint64_t)fbr_wall_us();
    pthread_mutex_lock(&s->lock);
    error = s->error;
    if (!error && s->pending.len + len > PENDING_MAX) {
        s->lost += len;
        s->of = r;
    } else if (!error) {
        put_lost(s);
        for (size_t at = 0; at < len || (at == 0 && len == 0); at += r.len) {
            r.data = (const char *)data + at;
            r.len = len - at < FBR_RECORD_MAX ? len - at : FBR_RECORD_MAX;
            fbr_record_put(&s->pending, &r);
            if (!r.len)
                break;
        }
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
    s->told = error != 0;
    /* Any other error means that there is no place for the output, which is no failure; `fiber
     * logs` reports it. */
    return error == -ENOSPC || error == -EDQUOT || error == -EIO ? error : 0;
}

void fbr_spool_end(struct fbr_spool *s, const struct fbr_run_facts *facts, int code,
                   const char *report)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    if (!s->stop) {
        put_lost(s);
        s->facts = *facts;
        s->facts.ended_ms = fbr_wall_ms();
        s->code = code;
        snprintf(s->report, sizeof(s->report), "%s", report);
    }
    s->stop = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

bool fbr_spool_drain(struct fbr_spool *s)
{
    uint64_t seen;
    bool ended;

    if (!s)
        return true;
    pthread_mutex_lock(&s->lock);
    do {
        uint64_t until = fbr_deadline(CLOSE_MS);

        seen = s->moves;
        while (!s->ended && fbr_cond_wait(&s->done, &s->lock, until) == 0)
            continue;
    } while (!s->ended && s->moves != seen);
    ended = s->ended;
    pthread_mutex_unlock(&s->lock);
    return ended;
}

/* Leaves the spool to its thread, unless that has ended. */
static bool leave(struct fbr_spool *s)
{
    bool left;

    pthread_mutex_lock(&s->lock);
    left = s->left = !s->ended;
    if (left)
        pthread_detach(s->thread);
    pthread_mutex_unlock(&s->lock);
    return left;
}

void fbr_spool_close(struct fbr_spool *s)
{
    const struct fbr_run_facts none = {.size = 0};

    if (!s)
        return;
    fbr_spool_end(s, &none, 1, "");
    if (!fbr_spool_drain(s) && leave(s)) /* a disk that hangs must not delay our exit */
        return;
    pthread_join(s->thread, NULL);
    spool_free(s);
}
