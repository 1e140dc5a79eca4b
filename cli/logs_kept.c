/* logs_kept.c - shows the kept output of a run.
 *
 * Each rank has two files (runtime/inspect/spool.c): the older is read first, then the newer, and
 * while we read, the newer may become the older, several times. Pieces of all ranks are taken in
 * the order of their times and joined to lines, to which the filters then apply.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/logs_kept.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/option.h"
#include "cli/run_client.h"
#include "runtime/base/fds.h"
#include "runtime/inspect/spool_record.h"
#include "runtime/base/printable.h"
#include "runtime/proc/context.h"
#include "runtime/proc/lines.h"

#define LOOK_MS 500 /* between two looks at a run that writes nothing */
#define PIECE 65536
#define TICK_US 10000 /* times of files are exact to this */

/* ---- Lines ---- */

struct line {
    struct fbr_buf text;
    uint64_t time_us; /* of its first byte */
};

/* Selected lines that are held back, because only the last ones are wanted. */
struct shown {
    int stream;
    struct fbr_buf text;
};

struct reader;

struct source {
    struct reader *all;
    uint32_t job, rank;
    int fd; /* of the file that is being read; -1: none yet */
    ino_t inode;
    struct fbr_buf got;
    size_t at;
    bool have;
    struct fbr_record head; /* the next record */
    struct line lines[2];
};

struct reader {
    const struct logs_wish *wish;
    struct fbr_spool_run *run;
    struct source **sources;
    size_t count;
    regex_t grep;
    bool tags, terminal[3];
    bool raw;           /* what is no terminal gets the bytes as they are */
    bool drops;         /* lines, instead of showing them */
    bool failed;        /* a file could not be opened */
    struct shown *last; /* [wish->tail], a ring buffer */
    uint64_t nlast;
};

static void put_line(int stream, const struct fbr_buf *text)
{
    FILE *out = stream == 2 ? stderr : stdout;

    /* keeps the order if both streams are one terminal */
    if (stream == 2)
        cli_flush();
    cli_write(out, text->data, text->len);
}

static void put_head(struct reader *r, const struct source *s, uint64_t time_us, struct fbr_buf *b)
{
    char text[64];

    if (r->wish->timestamp) {
        time_t seconds = (time_t)(time_us / 1000000);
        struct tm t;

        localtime_r(&seconds, &t);
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &t);
        fbr_putf(b, "%s.%03u ", text, (unsigned)(time_us / 1000 % 1000));
    }
    if (r->tags && s->job)
        fbr_putf(b, "[%u.%u] ", s->job, s->rank);
    else if (r->tags)
        fbr_putf(b, "[%u] ", s->rank);
}

static bool is_wanted(const struct reader *r, uint64_t time_us, const char *at, size_t len)
{
    regmatch_t m = {.rm_so = 0, .rm_eo = (regoff_t)len};

    if ((int64_t)time_us < r->wish->since_us)
        return false;
    if (len && at[len - 1] == '\n')
        m.rm_eo--;
    return !r->wish->grep || regexec(&r->grep, at, 1, &m, REG_STARTEND) == 0;
}

/* Shows one line. Ends it if it has no newline: the rank has written none, or the line is so long
 * that it is shown in parts. */
static void show(struct source *s, int stream, uint64_t time_us, const void *data, size_t len)
{
    struct reader *r = s->all;
    const char *end = (const char *)data + len;
    const char *at = fbr_line_behind_return(data, end - (len && end[-1] == '\n'));
    struct fbr_printable_filter filter = {.plain = false};
    struct fbr_buf b = {0};

    len = (size_t)(end - at);
    if (r->drops || !is_wanted(r, time_us, at, len))
        return;
    put_head(r, s, time_us, &b);
    if (r->terminal[stream])
        fbr_printable_filter(&filter, at, len, &b);
    else
        fbr_put(&b, at, len);
    if (!len || at[len - 1] != '\n')
        fbr_put_u8(&b, '\n');
    if (r->last && !b.failed) {
        struct shown *place = &r->last[r->nlast++ % (uint64_t)r->wish->tail];

        fbr_buf_fini(&place->text);
        *place = (struct shown){stream, b};
        return;
    }
    put_line(stream, &b);
    fbr_buf_fini(&b);
}

static void end_line(struct source *s, int stream)
{
    struct line *l = &s->lines[stream - 1];

    if (l->text.len)
        show(s, stream, l->time_us, l->text.data, l->text.len);
    fbr_buf_clear(&l->text);
}

static void add_piece(struct source *s, const struct fbr_record *rec)
{
    int stream = rec->kind == FBR_RECORD_ERR ? 2 : 1;
    struct line *l = &s->lines[stream - 1];
    const char *at = rec->data, *end = at + rec->len;

    if (s->all->raw && !s->all->terminal[stream]) {
        if (rec->kind != FBR_RECORD_MARK)
            cli_write(stream == 2 ? stderr : stdout, rec->data, rec->len);
        return;
    }
    if (rec->kind == FBR_RECORD_MARK)
        end_line(s, stream);
    while (at < end) {
        const char *nl = memchr(at, '\n', (size_t)(end - at)), *stop = nl ? nl + 1 : end;

        if (!l->text.len)
            l->time_us = rec->time_us;
        if (nl && !l->text.len) {
            show(s, stream, rec->time_us, at, (size_t)(stop - at));
        } else {
            fbr_put(&l->text, at, (size_t)(stop - at));
            if (nl || l->text.len > FBR_RECORD_MAX)
                end_line(s, stream);
        }
        at = stop;
    }
    if (rec->kind == FBR_RECORD_MARK)
        end_line(s, stream);
}

/* ---- Files ---- */

static void path_of(const struct source *s, const char *end, char path[PATH_MAX + 40])
{
    snprintf(path, PATH_MAX + 40, "%s/%u.%u%s", s->all->run->dir, s->job, s->rank, end);
}

/* Opens a file of the rank. Returns a negative errno if that fails; tells the first failure other
 * than a missing file. */
static int open_file(struct source *s, const char *end, struct stat *st)
{
    char path[PATH_MAX + 40];
    int fd, rc;

    path_of(s, end, path);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && fstat(fd, st) == 0)
        return fd;
    rc = -errno;
    fbr_fds_close(fd);
    if (rc != -ENOENT && !s->all->failed) {
        s->all->failed = true;
        cli_failed(1, "%s: %s", path, fbr_strerror(rc));
    }
    return rc;
}

static int64_t us_of(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Whether files came and went between ours and this older one. The next file takes the place of
 * ours, so both change at the same time. */
static bool is_overtaken(const struct source *s, const struct stat *older)
{
    struct stat ours;

    return fstat(s->fd, &ours) == 0 && us_of(older->st_ctim) > us_of(ours.st_ctim) + TICK_US;
}

static void tell_lost(struct source *s)
{
    for (int k = 1; k <= 2; k++)
        end_line(s, k);
    cli_flush();
    fprintf(stderr,
            "fiber: lines of %s %u are missing here: newer lines took their place before they were "
            "shown (see log_keep)\n",
            run_client_words(&s->all->run->about)->one, s->rank);
}

/* Opens the older file, unless it has just been read, else the newer. It opens the newer one first:
 * if that becomes the older meanwhile, the second open() finds it. False: there is no such file, or
 * it cannot be opened. */
static bool next_file(struct source *s)
{
    struct stat newer, older;
    int fd = open_file(s, "", &newer), old = open_file(s, ".old", &older);
    bool was_read = old >= 0 && older.st_ino == s->inode;
    int next = old == -ENOENT || was_read ? fd : old;

    if (fd >= 0 && fd != next)
        close(fd);
    if (old >= 0 && old != next)
        close(old);
    if (next < 0)
        return false;
    if (s->fd >= 0) {
        if (!was_read && (next == fd || is_overtaken(s, &older)))
            tell_lost(s);
        close(s->fd);
    }
    s->fd = next;
    s->inode = next == old ? older.st_ino : newer.st_ino;
    return true;
}

/* Whether the file whose end we have reached is no longer the one that is written. */
static bool is_over(const struct source *s)
{
    char path[PATH_MAX + 40];
    struct stat st;

    path_of(s, "", path);
    return stat(path, &st) == 0 && st.st_ino != s->inode;
}

/* Reads more bytes; false: there are none now. */
static bool read_more(struct source *s)
{
    bool over = false;

    if (s->fd < 0 && !next_file(s))
        return false;
    fbr_buf_consume(&s->got, s->at);
    s->at = 0;
    for (;;) {
        void *room = fbr_buf_reserve(&s->got, PIECE);
        ssize_t n = room ? read(s->fd, room, PIECE) : 0;

        if (n > 0) {
            s->got.len += (size_t)n;
            return true;
        }
        if (over) { /* includes the bytes that were written between the two reads */
            fbr_buf_clear(&s->got);
            over = false;
            if (!next_file(s))
                return false;
        } else if (is_over(s)) {
            over = true;
        } else {
            return false;
        }
    }
}

/* Drops the rest of a damaged file. False: there is no newer file. */
static bool pass_over(struct source *s)
{
    fbr_buf_clear(&s->got);
    s->at = 0;
    return is_over(s) && next_file(s);
}

static void next_record(struct source *s)
{
    size_t used;
    int rc;

    s->have = false;
    while ((rc = fbr_record_get(s->got.data + s->at, s->got.len - s->at, &s->head, &used)) <= 0)
        if (rc < 0 ? !pass_over(s) : !read_more(s))
            return;
    s->at += used;
    s->have = true;
}

static bool is_known(const struct reader *r, uint32_t job, uint32_t rank)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->sources[i]->job == job && r->sources[i]->rank == rank)
            return true;
    return false;
}

static void add_source(struct reader *r, uint32_t job, uint32_t rank)
{
    struct source **place = fbr_grow(&r->sources, r->count, sizeof(*place));
    struct source *s = place ? calloc(1, sizeof(*s)) : NULL;

    if (!s)
        return;
    *s = (struct source){.all = r, .job = job, .rank = rank, .fd = -1};
    *place = s;
    r->count++;
}

static void find_sources(struct reader *r)
{
    DIR *d = opendir(r->run->dir);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        unsigned job, rank;
        char rest[8] = "";
        int n = sscanf(e->d_name, "%u.%u%7s", &job, &rank, rest);

        if (n >= 2 && (n == 2 || !strcmp(rest, ".old")) && !is_known(r, job, rank) &&
            (r->wish->rank < 0 || (job == 0 && rank == (unsigned)r->wish->rank)))
            add_source(r, job, rank);
    }
    if (d)
        closedir(d);
}

static struct source *oldest(const struct reader *r)
{
    struct source *found = NULL;

    for (size_t i = 0; i < r->count; i++) {
        struct source *s = r->sources[i];

        if (s->have && (!found || s->head.time_us < found->head.time_us))
            found = s;
    }
    return found;
}

static void read_all(struct reader *r)
{
    struct source *s;

    find_sources(r);
    if (r->count > 1 && !r->raw)
        r->tags = true;
    for (size_t i = 0; i < r->count; i++)
        if (!r->sources[i]->have)
            next_record(r->sources[i]);
    while ((s = oldest(r))) {
        add_piece(s, &s->head);
        next_record(s);
    }
}

/* ---- Showing ---- */

static void end_lines(struct reader *r)
{
    for (size_t i = 0; i < r->count; i++)
        for (int k = 1; k <= 2; k++)
            end_line(r->sources[i], k);
}

static void show_last(struct reader *r)
{
    uint64_t tail = (uint64_t)r->wish->tail, n = r->nlast < tail ? r->nlast : tail;

    for (uint64_t i = r->nlast - n; r->last && i < r->nlast; i++) {
        struct shown *l = &r->last[i % tail];

        put_line(l->stream, &l->text);
        fbr_buf_fini(&l->text);
    }
    free(r->last);
    r->last = NULL;
}

/* Follows the run until its launcher has closed the spool. */
static void follow(struct reader *r, const char *root)
{
    int notes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    struct pollfd p = {.fd = notes, .events = POLLIN};
    bool writes = true;
    char events[4096];

    if (notes >= 0)
        inotify_add_watch(notes, r->run->dir, IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE);
    while (writes) {
        char uid[sizeof(r->run->about.uid)];

        snprintf(uid, sizeof(uid), "%s", r->run->about.uid);
        writes = fbr_spool_look(r->run, root, uid) && r->run->writes;
        read_all(r);
        cli_flush();
        if (writes)
            poll(&p, 1, LOOK_MS);
        while (notes >= 0 && read(notes, events, sizeof(events)) > 0)
            continue;
    }
    fbr_fds_close(notes);
    end_lines(r);
    cli_flush();
    if (r->run->ended && r->run->code)
        fprintf(stderr, "fiber: run %.16s has ended with code %d\n", r->run->about.uid,
                r->run->code);
}

static void close_all(struct reader *r)
{
    for (size_t i = 0; i < r->count; i++) {
        struct source *s = r->sources[i];

        fbr_fds_close(s->fd);
        fbr_buf_fini(&s->got);
        for (int k = 0; k < 2; k++)
            fbr_buf_fini(&s->lines[k].text);
        free(s);
    }
    free(r->sources);
    if (r->wish->grep)
        regfree(&r->grep);
}

bool logs_root(char root[PATH_MAX])
{
    struct fbr_error err = {0, ""};

    return fbr_rt() && fbr_spool_root(root, fbr_rt()->config, &err) == 0;
}

int logs_kept(struct fbr_spool_run *run, const char *root, const struct logs_wish *w)
{
    struct reader r = {.wish = w, .run = run, .tags = w->tag};
    struct rlimit files;
    int rc = w->grep ? regcomp(&r.grep, w->grep, REG_EXTENDED) : 0;
    char why[128];

    if (rc != 0) {
        regerror(rc, &r.grep, why, sizeof(why));
        return cli_failed(2, "--grep %s: %s", w->grep, why);
    }
    for (int i = 1; i <= 2; i++)
        r.terminal[i] = isatty(i);
    r.raw = w->rank >= 0 && !w->tag && !w->timestamp && !w->grep && w->tail < 0 && !w->since_us;
    if (w->tail > 0)
        r.last = calloc((size_t)w->tail, sizeof(*r.last));
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* one descriptor for each rank */
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    r.drops = w->tail == 0;
    read_all(&r);
    if (!w->follow)
        end_lines(&r);
    r.drops = false;
    if (!w->follow && w->tail != 0 && w->rank >= 0 && !r.count)
        fprintf(stderr, "fiber: %s %d of run %.16s has printed nothing\n",
                run_client_words(&run->about)->one, w->rank, run->about.uid);
    show_last(&r);
    cli_flush();
    if (w->follow)
        follow(&r, root);
    close_all(&r);
    return r.failed ? 1 : 0;
}

/* ---- Times ---- */

int logs_since(const char *text, int64_t now_us, int64_t *us, struct fbr_error *err)
{
    static const char *const forms[] = {
        "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M",
        "%Y-%m-%d",          "%H:%M:%S",          "%H:%M"};
    time_t now = (time_t)(now_us / 1000000);
    static const char units[] = "smhd";
    static const double us_of[] = {1e6, 60e6, 3600e6, 86400e6};
    char unit = '\0', rest;
    double n;
    const char *at =
        sscanf(text, "%lf%c%c", &n, &unit, &rest) == 2 && n >= 0 ? strchr(units, unit) : NULL;

    if (at && *at) {
        n *= us_of[at - units];
        *us = n < (double)now_us ? now_us - (int64_t)n : 0;
        return 0;
    }
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct tm t = {0}, today;
        const char *end;
        int month;

        localtime_r(&now, &today);
        if (forms[i][1] == 'H')
            t = (struct tm){
                .tm_year = today.tm_year, .tm_mon = today.tm_mon, .tm_mday = today.tm_mday};
        t.tm_isdst = -1;
        end = strptime(text, forms[i], &t);
        if (!end || *end)
            continue;
        month = t.tm_mon;
        *us = (int64_t)mktime(&t) * 1000000;
        if (t.tm_mon == month) /* otherwise there is no such day: 2026-02-30 */
            return 0;
    }
    return fbr_fail(err, -EINVAL,
                    "--since %s: use a duration (10m, 2h) or a time (14:30, 2026-11-23T14:30)",
                    text);
}
