/* container_bundle.c - puts our program, with all files that it needs, into containers whose image
 * lacks it.
 *
 * The first container of an image is asked once whether the image has the program. A thread makes
 * the bundle once, in a memory file; each container is filled from that file.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/image/bundle.h"
#include "backends/docker/docker_priv.h"
#include "runtime/base/fds.h"
#include "runtime/base/log.h"
#include "runtime/program/args.h"

struct fbr_docker_bundle {
    struct fbr_backend *b; /* not valid if closed */
    struct fbr_loop *loop;
    struct fbr_args has, lacks; /* images that have our program, and those that do not */
    uv_work_t work;
    struct fbr_error err;
    int fd; /* the memory file, which is complete unless `at_work`; -1: none */
    bool at_work, closed;
};

int fbr_docker_bundle_open(struct fbr_docker_bundle **out, struct fbr_backend *b,
                           struct fbr_error *err)
{
    struct fbr_docker_bundle *d = calloc(1, sizeof(*d));

    if (!d)
        return fbr_fail(err, -ENOMEM, "out of memory");
    d->b = b;
    d->loop = b->env.loop;
    d->fd = -1;
    *out = d;
    return 0;
}

static void free_bundle(struct fbr_docker_bundle *d)
{
    fbr_args_fini(&d->has);
    fbr_args_fini(&d->lacks);
    fbr_fds_close(d->fd);
    free(d);
}

void fbr_docker_bundle_close(struct fbr_docker_bundle *d)
{
    if (!d)
        return;
    d->closed = true;
    if (!d->at_work)
        free_bundle(d);
}

/* ---- Images ---- */

static bool lists(const struct fbr_args *images, const char *image)
{
    for (size_t i = 0; i < images->n; i++)
        if (strcmp(images->at[i], image) == 0)
            return true;
    return false;
}

int fbr_docker_bundle_lacks(const struct fbr_docker_bundle *d, const char *image)
{
    return lists(&d->lacks, image) ? 1 : lists(&d->has, image) ? 0 : -1;
}

void fbr_docker_bundle_learn(struct fbr_docker_bundle *d, const char *image, bool lacks)
{
    if (fbr_docker_bundle_lacks(d, image) >= 0)
        return;
    fbr_args_addf(lacks ? &d->lacks : &d->has, "%s", image);
    if (lacks)
        fbr_info(
            "docker: the image %s does not have this program: it is copied into the containers",
            image);
}

/* ---- The bundle ---- */

static void make(uv_work_t *work)
{
    struct fbr_docker_bundle *d = work->data;

    d->fd = memfd_create("fiber-bundle", MFD_CLOEXEC);
    if (d->fd < 0)
        fbr_fail(&d->err, -errno, "cannot make a file in memory: %s", fbr_strerror(errno));
    else
        fbr_bundle_write("/proc/self/exe", d->fd, &d->err);
}

static void on_made(uv_work_t *work, int status)
{
    struct fbr_docker_bundle *d = work->data;
    bool whole = status == 0 && d->err.code == 0;

    d->at_work = false;
    fbr_loop_release(d->loop);
    if (d->closed) {
        free_bundle(d);
        return;
    }
    if (!whole) /* the next request tries again */
        d->fd = fbr_fds_close(d->fd);
    fbr_docker_on_bundle(d->b, whole ? NULL : d->err.text);
}

int fbr_docker_bundle_take(struct fbr_docker_bundle *d, struct fbr_error *err)
{
    char path[40];
    int fd;

    if (d->at_work)
        return -EAGAIN;
    if (d->fd >= 0) { /* opened anew, so that each reader has a position of its own */
        snprintf(path, sizeof(path), "/proc/self/fd/%d", d->fd);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        return fd < 0 ? fbr_fail(err, -errno, "%s", fbr_strerror(errno)) : fd;
    }
    d->at_work = true;
    d->err = (struct fbr_error){0, ""};
    d->work.data = d;
    fbr_loop_hold(d->loop);
    uv_queue_work(fbr_loop_uv(d->loop), &d->work, make, on_made);
    return -EAGAIN;
}
