/* container_image.c - finds, makes and pulls the images of containers.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/docker/container_image.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <utlist.h>

#include "backends/docker/pull_command.h"
#include "backends/image/image.h"
#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/base/log.h"
#include "runtime/base/sync.h"

#define LOAD_MS 600000
#define PROGRESS_MS 500

/* An image that is on its way to the engine. */
struct fetch {
    struct fetch *next, *prev;
    struct fbr_docker_images *m;
    int number;
    char image[256];
    struct fbr_json_lines lines;
    char failed[400];
    struct fbr_docker_pull progress;
    uint64_t told_ms;                /* last report of progress */
    uv_work_t work;                  /* makes the image */
    pthread_t thread;                /* runs a command that pulls, and then posts `pulled` */
    struct fbr_docker_engine engine; /* for the thread: ours may be closed before it begins */
    struct fbr_post pulled;
    int fd; /* the archive */
    struct fbr_error err;
    bool making, at_work;
};

struct fbr_docker_images {
    struct fbr_docker_engine *engine;
    const struct fbr_config *config;
    struct fbr_loop *loop;
    fbr_docker_image_news *news;
    void *user;
    struct fetch *fetches;
    int number;              /* of the last fetch */
    struct fbr_image *image; /* the image that is made of our program */
    char own[128];           /* the name of that image; "" until it is needed */
    bool there;              /* the engine has that image */
    atomic_bool stop;        /* the thread that waits for a command must end */
    bool closed;             /* closed while a thread still works on an image */
};

/* ---- Waiting for an image ---- */

static struct fetch *find_fetch(struct fbr_docker_images *m, const char *image)
{
    struct fetch *f;

    DL_FOREACH(m->fetches, f)
        if (strcmp(f->image, image) == 0)
            return f;
    return NULL;
}

static struct fetch *new_fetch(struct fbr_docker_images *m, const char *image)
{
    struct fetch *f = calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    f->m = m;
    f->number = ++m->number;
    f->fd = -1;
    snprintf(f->image, sizeof(f->image), "%s", image);
    DL_APPEND(m->fetches, f);
    return f;
}

static void notify(const struct fetch *f, const char *text)
{
    f->m->news(f->m->user, f->number, text, false, false);
}

static void notify_end(struct fetch *f, const char *text, bool good)
{
    DL_DELETE(f->m->fetches, f);
    f->m->news(f->m->user, f->number, text, true, good);
    fbr_fds_close(f->fd);
    fbr_buf_fini(&f->lines.line);
    free(f);
}

/* ---- Pulling ---- */

/* Reads a line of progress, or {"error":"..."}. */
static void on_line(void *user, const struct json_t *j)
{
    struct fetch *f = user;
    const char *error = fbr_json_text(j, "error", NULL);
    char text[480], say[100];

    if (error[0])
        snprintf(f->failed, sizeof(f->failed), "%.390s", error);
    if (error[0] || f->making)
        return;
    fbr_docker_pull_add(&f->progress, j);
    /* thousands of lines arrive */
    if (fbr_now_ms() - f->told_ms < PROGRESS_MS)
        return;
    f->told_ms = fbr_now_ms();
    fbr_docker_pull_format(&f->progress, say, sizeof(say));
    snprintf(text, sizeof(text), "image %.200s: %s", f->image, say);
    notify(f, text);
}

static void on_progress(void *user, const void *data, size_t len)
{
    struct fetch *f = user;

    fbr_json_lines(&f->lines, data, len, on_line, f);
}

static void on_marked(void *user, const struct fbr_http_answer *a)
{
    (void)user; /* without the mark, `fiber gc` keeps the image for longer */
}

/* Tags the image with the name that it already has, so that the engine records the time of its last
 * use (image_sweep.c). */
static void mark_used(struct fbr_docker_images *m)
{
    const char *tag = strchr(m->own, ':') + 1;

    fbr_docker_send(m->engine,
                    fbr_docker_path(m->engine, "/images/%s/tag?repo=%.*s&tag=%s", m->own,
                                    (int)(tag - 1 - m->own), m->own, tag),
                    (struct fbr_http_request){.method = "POST", .done = on_marked});
}

/* A thread of its own: the command may take long, and the four threads of libuv also serve files
 * and look-ups of host names. */
static void *pull_by_command(void *arg)
{
    struct fetch *f = arg;

    pthread_setname_np(pthread_self(), "fbr-pull");
    fbr_docker_pull_command(&f->engine, f->image, &f->m->stop, &f->err);
    fbr_loop_post_own(f->m->loop, &f->pulled);
    return NULL;
}

static void on_pulled(void *arg)
{
    struct fetch *f = arg;
    bool missing = f->err.code == -ENOENT; /* a command would repeat the engine's words */
    char text[900];

    pthread_join(f->thread, NULL);
    f->at_work = false;
    fbr_loop_release(f->m->loop);
    snprintf(text, sizeof(text),
             "image %.200s is not on the engine, and cannot be pulled: %.150s%s%.400s", f->image,
             missing ? f->failed : "", missing ? " - " : "", f->err.text);
    if (f->m->closed)
        fbr_docker_images_close(f->m);
    else
        notify_end(f, f->err.code < 0 ? text : "", f->err.code == 0);
}

/* The registry asks for a login, which the engine does not have. */
static void begin_command(struct fetch *f)
{
    char text[300];
    int rc;

    snprintf(text, sizeof(text), "image %.200s is pulled by `docker pull`, with your logins",
             f->image);
    notify(f, text);
    f->engine = *f->m->engine;
    f->pulled = (struct fbr_post){.fn = on_pulled, .arg = f, .own = true};
    f->at_work = true;
    fbr_loop_hold(f->m->loop);
    rc = fbr_thread_start(&f->thread, pull_by_command, f);
    if (rc == 0)
        return;
    f->at_work = false;
    fbr_loop_release(f->m->loop);
    notify_end(f, "cannot start a thread for `docker pull`", false);
}

static void on_fetched(void *user, const struct fbr_http_answer *a)
{
    struct fetch *f = user;
    char text[900];
    bool good = a->status == 200 && !f->failed[0];

    if (f->making)
        f->m->there = good;
    if (f->making && good)
        mark_used(f->m);
    if (!f->failed[0])
        fbr_http_describe(a, f->failed, sizeof(f->failed));
    if (!f->making && !good && fbr_image_refused(f->failed)) {
        begin_command(f);
        return;
    }
    snprintf(text, sizeof(text), "image %.200s %s: %s", f->image,
             f->making ? "could not be loaded" : "is not on the engine, and cannot be pulled",
             f->failed);
    notify_end(f, good ? "" : text, good);
}

/* Returns the number of the fetch; -ENOMEM: it has ended. Frees the path. */
static int send_to(struct fetch *f, char *path, struct fbr_http_request r)
{
    r.user = f;
    if (fbr_docker_send(f->m->engine, path, r))
        return f->number;
    notify_end(f, "out of memory", false);
    return -ENOMEM;
}

static int pull(struct fetch *f)
{
    char repo[256], tag[256], *r, *t, *path = NULL;

    fbr_docker_split_image(f->image, repo, tag, sizeof(repo));
    r = fbr_http_escape(repo);
    t = fbr_http_escape(tag);
    if (r && t)
        path = fbr_docker_path(f->m->engine, "/images/create?fromImage=%s&tag=%s", r, t);
    free(r);
    free(t);
    fbr_info("docker: pulling the image %s", f->image);
    return send_to(
        f, path,
        (struct fbr_http_request){.method = "POST", .data = on_progress, .done = on_fetched});
}

int fbr_docker_images_pull(struct fbr_docker_images *m, const char *image)
{
    struct fetch *f = find_fetch(m, image);

    if (strcmp(image, m->own) == 0) { /* another user removed it from the engine */
        m->there = false;
        return fbr_docker_images_want(m, image);
    }
    if (f)
        return f->number;
    f = new_fetch(m, image);
    return f ? pull(f) : -ENOMEM;
}

/* ---- Making our own ---- */

/* Opens a file without a name. It may be large, and /tmp is memory on many hosts. */
static int temporary(struct fbr_error *err)
{
    const char *const folders[] = {fbr_getenv("TMPDIR"), "/var/tmp", "/tmp"};
    int fd = -1;

    for (size_t i = 0; fd < 0 && i < sizeof(folders) / sizeof(folders[0]); i++)
        if (folders[i] && folders[i][0])
            fd = open(folders[i], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return fd < 0 ? fbr_fail(err, -errno, "cannot make a temporary file: %s", fbr_strerror(errno))
                  : fd;
}

/* Makes the image; runs on a thread of libuv's pool. */
static void make(uv_work_t *work)
{
    struct fetch *f = work->data;

    f->fd = temporary(&f->err);
    if (f->fd < 0 || fbr_image_write(f->m->image, f->m->own, f->fd, &f->err) < 0)
        return;
    if (lseek(f->fd, 0, SEEK_SET) < 0)
        fbr_fail(&f->err, -errno, "temporary file: %s", fbr_strerror(errno));
}

static void on_made(uv_work_t *work, int status)
{
    struct fetch *f = work->data;
    char text[FBR_ERROR_TEXT + 80];

    f->at_work = false;
    fbr_loop_release(f->m->loop);
    if (f->m->closed) {
        fbr_docker_images_close(f->m);
        return;
    }
    if (status < 0 || f->err.code < 0) {
        snprintf(text, sizeof(text),
                 "cannot make an image of this program (set image, or see fiber-image(1)): %s",
                 f->err.text);
        notify_end(f, text, false);
        return;
    }
    send_to(f, fbr_docker_path(f->m->engine, "/images/load?quiet=1"),
            (struct fbr_http_request){.method = "POST",
                                      .type = "application/x-tar",
                                      .body_fd = f->fd,
                                      .timeout_ms = LOAD_MS,
                                      .data = on_progress,
                                      .done = on_fetched});
}

static void on_looked(void *user, const struct fbr_http_answer *a)
{
    struct fbr_image_facts facts;
    struct fetch *f = user;
    char text[80];

    if (a->status == 200) {
        f->m->there = true;
        mark_used(f->m);
        notify_end(f, "", true);
        return;
    }
    if (a->status != 404) {
        on_fetched(f, a);
        return;
    }
    fbr_image_facts(f->m->image, &facts);
    snprintf(text, sizeof(text), "making an image of this program, %llu MiB",
             (unsigned long long)(facts.bytes >> 20) + 1);
    notify(f, text);
    f->work.data = f;
    f->at_work = true;
    fbr_loop_hold(f->m->loop);
    uv_queue_work(fbr_loop_uv(f->m->loop), &f->work, make, on_made);
}

int fbr_docker_images_want(struct fbr_docker_images *m, const char *image)
{
    struct fetch *f = find_fetch(m, image);

    if (m->there || strcmp(image, m->own) != 0)
        return 0;
    if (f)
        return f->number;
    f = new_fetch(m, image);
    if (!f)
        return -ENOMEM;
    f->making = true;
    return send_to(
        f, fbr_docker_path(m->engine, "/images/%s/json", image),
        (struct fbr_http_request){.method = "GET", .patience_ms = 10000, .done = on_looked});
}

static int name_own(struct fbr_docker_images *m, struct fbr_error *err)
{
    struct fbr_image_facts facts;
    int rc = fbr_image_open_own(&m->image, m->config, err);

    if (rc < 0)
        return fbr_wrap(
            err,
            "no image is set (key image, FIBER_IMAGE), and none can be made from this program");
    fbr_image_facts(m->image, &facts);
    snprintf(m->own, sizeof(m->own), "fiber-auto:%.64s", facts.id);
    return 0;
}

int fbr_docker_images_choose(struct fbr_docker_images *m, const char *image, char *out, size_t size,
                             struct fbr_error *err)
{
    const char *configured = fbr_config_str(m->config, "image");
    int rc = 0;

    if (!image || !image[0])
        image = configured[0] ? configured : m->engine->own_image;
    if (strlen(image) >= size)
        return fbr_fail(err, -ENAMETOOLONG,
                        "the name of the image %.60s... has %zu characters, but may have at most "
                        "%zu; give the image a shorter tag",
                        image, strlen(image), size - 1);
    if (!image[0] && !m->own[0])
        rc = name_own(m, err);
    snprintf(out, size, "%s", image[0] ? image : m->own);
    return rc;
}

bool fbr_docker_images_is_own(const struct fbr_docker_images *m, const char *image)
{
    return strcmp(image, m->own) == 0 || strcmp(image, m->engine->own_image) == 0;
}

bool fbr_docker_images_is_made(const struct fbr_docker_images *m, const char *image)
{
    return m->own[0] && strcmp(image, m->own) == 0;
}

/* ---- The beginning and the end ---- */

int fbr_docker_images_open(struct fbr_docker_images **out, struct fbr_docker_engine *engine,
                           const struct fbr_config *config, struct fbr_loop *loop,
                           fbr_docker_image_news *news, void *user, struct fbr_error *err)
{
    struct fbr_docker_images *m = calloc(1, sizeof(*m));

    if (!m)
        return fbr_fail(err, -ENOMEM, "out of memory");
    m->engine = engine;
    m->config = config;
    m->loop = loop;
    m->news = news;
    m->user = user;
    *out = m;
    return 0;
}

/* If a thread is at work, it calls this function again when it is done, and the rest happens
 * then. */
void fbr_docker_images_close(struct fbr_docker_images *m)
{
    struct fetch *f, *next;

    if (!m)
        return;
    m->closed = true;
    atomic_store(&m->stop, true);
    DL_FOREACH_SAFE(m->fetches, f, next) {
        fbr_buf_fini(&f->lines.line);
        if (f->at_work)
            continue;
        fbr_fds_close(f->fd);
        DL_DELETE(m->fetches, f);
        free(f);
    }
    if (m->fetches)
        return;
    fbr_image_close(m->image);
    free(m);
}
