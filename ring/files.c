/* files.c - output of ranks in files of the user: DIR/<run>/RANK.out and RANK.err with a link
 * DIR/latest, or files named by a pattern. A mark shows where a rank was started again. Lines have
 * the time if the options ask for it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ring/ring.h"
#include "ring/ring_priv.h"
#include "runtime/proc/rundir.h"

#define UID_SHOWN 8 /* characters of a run's uid, as in `fiber ps` */

/* ---- Names ---- */

/* True if a valid pattern has the rank, so that each rank has a file of its own. */
static bool has_rank(const char *pattern)
{
    while ((pattern = strchr(pattern, '%')) && pattern[1] != 't' && pattern[1] != 'r')
        pattern += 2;
    return pattern;
}

int fbr_ring_output_check(const char *output, int size, struct fbr_error *err)
{
    if (!output[0])
        return fbr_fail(err, -EINVAL, "output: the name of the directory is empty");
    if (!strchr(output, '%'))
        return 0;
    for (const char *at = output; (at = strchr(at, '%')); at += 2)
        if (!at[1] || !strchr("trhj%", at[1]))
            return fbr_fail(
                err, -EINVAL,
                "output: %%%.1s is not known in a pattern; use %%t or %%r for the rank, %%h for "
                "its host, %%j for the run, %%%% for a percent sign",
                at + 1);
    return size == 1 || has_rank(output)
               ? 0
               : fbr_fail(err, -EINVAL,
                          "output: %s names one file for %d ranks; use %%t for the rank", output,
                          size);
}

/* Lets the user find the last run without its name. A failure is ignored. */
static void link_latest(const char *path)
{
    const char *run = strrchr(path, '/') + 1;
    char link[PATH_MAX], fresh[PATH_MAX + 16];

    if (snprintf(link, sizeof(link), "%.*slatest", (int)(run - path), path) >= (int)sizeof(link))
        return;
    snprintf(fresh, sizeof(fresh), "%s.%s", link, run);
    if (symlink(run, fresh) == 0 && rename(fresh, link) < 0)
        unlink(fresh);
}

/* The name becomes absolute, so that `fiber logs` finds it from any directory; not if a percent
 * sign of our directory would become a part of a pattern. The directories of a pattern are made
 * with their files. */
int fbr_ring_files_open(struct fiber_ring *r, struct fbr_error *err)
{
    const char *given = r->options.output_dir;
    char here[PATH_MAX], *path, *whole;
    int rc = given ? fbr_ring_output_check(given, (int)r->size, err) : 0;

    if (rc < 0 || !given)
        return rc;
    r->output_pattern = strchr(given, '%');
    if (given[0] == '/' || !getcwd(here, sizeof(here)) || (r->output_pattern && strchr(here, '%')))
        here[0] = '\0';
    if (asprintf(&path, "%s%s%s%s%.*s", here, here[0] ? "/" : "", given,
                 r->output_pattern ? "" : "/", r->output_pattern ? 0 : UID_SHOWN, r->about.uid) < 0)
        return fbr_fail(err, -ENOMEM, "out of memory");
    free((char *)(uintptr_t)r->options.output_dir);
    r->options.output_dir = path;
    if (r->output_pattern)
        return 0;
    rc = fbr_rundir_parents(path, 0777);
    if (rc == 0 && mkdir(path, 0777) < 0)
        rc = -errno;
    if (rc < 0)
        return fbr_fail(err, rc, "output: cannot make %s: %s", path, fbr_strerror(rc));
    whole = realpath(path, NULL);
    if (whole) { /* the user may change a link in the name before the last file is opened */
        free(path);
        r->options.output_dir = whole;
    }
    link_latest(r->options.output_dir);
    return 0;
}

static void put_rank(const struct ring_job *j, uint32_t rank, char *out, size_t size)
{
    if (j->job.info.spawned)
        snprintf(out, size, "%u.%u", j->job.info.id, rank);
    else
        snprintf(out, size, "%u", rank);
}

/* Expands the pattern for a rank. Returns 0 or -ENAMETOOLONG. */
static int expand(const struct ring_job *j, uint32_t rank, char *out, size_t size)
{
    const char *at = j->ring->options.output_dir;
    char number[32];
    size_t n = 0;

    put_rank(j, rank, number, sizeof(number));
    for (; *at && n < size; at++) {
        if (*at != '%')
            n += (size_t)snprintf(out + n, size - n, "%c", *at);
        else if (*++at == 'h')
            n += (size_t)snprintf(out + n, size - n, "%s", fbr_ring_host_of(j, rank));
        else if (*at == 'j')
            n += (size_t)snprintf(out + n, size - n, "%.*s", UID_SHOWN, j->ring->about.uid);
        else
            n += (size_t)snprintf(out + n, size - n, "%s", *at == '%' ? "%" : number);
    }
    return n < size ? 0 : -ENAMETOOLONG;
}

static int name_file(const struct ring_job *j, uint32_t rank, int stream, char *out, size_t size)
{
    const char *dir = j->ring->options.output_dir;
    char number[32];

    if (j->ring->output_pattern)
        return expand(j, rank, out, size);
    put_rank(j, rank, number, sizeof(number));
    return snprintf(out, size, "%s/%s.%s", dir, number, stream == 1 ? "out" : "err") < (int)size
               ? 0
               : -ENAMETOOLONG;
}

/* ---- Files ---- */

/* Opens the file, and makes the folders above it if they are missing. */
static int open_below(const char *path, int flags)
{
    int fd = open(path, flags, 0666), rc;

    if (fd < 0 && errno == ENOENT) {
        rc = fbr_rundir_parents(path, 0777);
        if (rc < 0)
            return rc;
        fd = open(path, flags, 0666);
    }
    return fd < 0 ? -errno : fd;
}

/* True if the ring has opened the file that a pattern names for the rank: for its other stream or,
 * in a try before, for the same rank. Without the rank in the pattern, all spawned ranks have the
 * file of the ring's only rank. */
static bool was_opened(const struct ring_job *j, uint32_t rank)
{
    bool shared = !has_rank(j->ring->options.output_dir);
    const struct ring_job *k;

    DL_FOREACH(j->ring->jobs, k) {
        if (k != j && !shared && (k->job.info.spawned || j->job.info.spawned))
            continue;
        for (uint32_t i = shared ? 0 : rank; i < (shared ? k->job.info.size : rank + 1); i++)
            if (k->ranks[i].files[0] != -1 || k->ranks[i].files[1] != -1)
                return true;
    }
    return false;
}

/* Does not follow a link at the path, because others may be able to write in that directory, and
 * does not wait for the reader of a FIFO. The user's umask decides who may read the file. Only the
 * first open of a pattern's file truncates it. */
static int open_file(struct ring_job *j, uint32_t rank, int stream)
{
    struct fiber_ring *r = j->ring;
    bool fresh = r->output_pattern && !was_opened(j, rank);
    int flags =
        O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (fresh ? O_TRUNC : 0);
    char path[PATH_MAX];
    int rc = name_file(j, rank, stream, path, sizeof(path));

    if (rc >= 0 && (rc = open_below(path, flags)) >= 0)
        return rc;
    if (!r->file_error)
        r->file_error = -rc;
    fbr_ring_print(r, "cannot write %s: %s", path,
                   rc == -ENXIO ? "no program reads this FIFO" : fbr_strerror(rc));
    return -2;
}

/* The file goes on where the try before has left it. */
static int file_of(struct ring_job *j, uint32_t rank, int stream)
{
    struct ring_rank *k = &j->ranks[rank];
    int *fd = &k->files[stream - 1];
    const struct ring_job *before;

    if (!j->ring->options.output_dir || *fd != -1)
        return *fd;
    DL_FOREACH(j->ring->jobs, before)
        if (!j->job.info.spawned && !before->job.info.spawned &&
            before->ranks[rank].files[stream - 1] != -1)
            k->within[stream - 1] = before->ranks[rank].within[stream - 1];
    return *fd = open_file(j, rank, stream);
}

/* Puts the time in front of each line. */
static void stamp(bool within, const char *time, const char *at, size_t len, struct fbr_buf *out)
{
    const char *end = at + len;

    while (at < end) {
        const char *nl = memchr(at, '\n', (size_t)(end - at)), *stop = nl ? nl + 1 : end;

        if (!within)
            fbr_put(out, time, strlen(time));
        fbr_put(out, at, (size_t)(stop - at));
        within = false;
        at = stop;
    }
}

bool fbr_ring_file_put(struct ring_job *j, uint32_t rank, int stream, const char *time,
                       const void *data, size_t len)
{
    struct ring_rank *k = &j->ranks[rank];
    struct fbr_output *o = j->ring->rt->output;
    int fd = file_of(j, rank, stream);
    bool *within = &k->within[stream - 1], full;
    struct fbr_buf b = {0};

    if (fd < 0)
        return false;
    if (k->unmarked[stream - 1]) {
        if (*within)
            fbr_output_add(o, fd, "\n", 1);
        fbr_output_add(o, fd, k->mark, strlen(k->mark));
        *within = false;
    }
    k->unmarked[stream - 1] = false;
    if (*time)
        stamp(*within, time, data, len, &b);
    *within = ((const char *)data)[len - 1] != '\n';
    if (!*time)
        return fbr_output_add(o, fd, data, len);
    full = !b.failed && fbr_output_add(o, fd, b.data, b.len);
    fbr_buf_fini(&b);
    return full;
}

void fbr_ring_files_over(struct ring_job *j)
{
    for (uint32_t i = 0; j->ring->options.output_dir && i < j->job.info.size; i++)
        for (int k = 0; k < 2; k++) {
            int *fd = &j->ranks[i].files[k];

            if (*fd >= 0 && fbr_output_finish(j->ring->rt->output, *fd))
                *fd = -2;
        }
}
