/* pod_log.h - what a container wrote, from the API server: each byte once, although the stream may
 * break.
 *
 * The server is asked for time stamps, which are taken off again; after a break the stream is asked
 * for from the last one on, and what was there already is passed over.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_KUBE_LOG_H
#define FBR_KUBE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/kubernetes/api.h"
#include "runtime/base/buf.h"

struct fbr_kube_log;

struct fbr_kube_log_options {
    const char *pod;
    bool follow;   /* until the container has ended; else what there is */
    unsigned tail; /* last lines only; 0: all */
    void (*data)(void *user, const void *data, size_t len);
    /* All has come, or nothing more can come. */
    void (*done)(void *user);
    void *user;
};

int fbr_kube_log_open(struct fbr_kube_log **out, struct fbr_kube_api *api,
                      const struct fbr_kube_log_options *o);
/* Also before done(). */
void fbr_kube_log_close(struct fbr_kube_log *l);
void fbr_kube_log_pause(struct fbr_kube_log *l, bool paused);
/* After done(): the container runs on, so there will be more. False: the server does not give
 * it. */
bool fbr_kube_log_resume(struct fbr_kube_log *l);
/* After done(): the server gave nothing, and will not: there is no such pod, or we may not read its
 * output. */
bool fbr_kube_log_is_refused(const struct fbr_kube_log *l);
/* After done(): it never broke off, so what came is all there was. */
bool fbr_kube_log_is_whole(const struct fbr_kube_log *l);

/* ---- Of which that is made: pure ---- */

#define FBR_KUBE_STAMP 40

/* Takes the stamps off a stream of lines "2026-11-21T16:05:00.123456789Z text". A line without a
 * stamp is no output: the kubelet puts its own errors in the stream, whose status 200 it has sent
 * before (kuberuntime_container.go, "unable to retrieve container logs for ..."). */
struct fbr_kube_lines {
    char stamp[FBR_KUBE_STAMP];   /* of the last line that was told */
    unsigned same;                /* lines with it that were told */
    size_t partial;               /* bytes of the last one, when its end has not come */
    char skip_to[FBR_KUBE_STAMP]; /* after a break: what comes before is known; "" otherwise */
    unsigned skip;                /* lines with that stamp still to be passed over, */
    size_t eat;                   /* and bytes of the line at hand */
    char head[FBR_KUBE_STAMP];    /* a stamp that comes in pieces */
    size_t head_len;
    bool in_text, dropping;
    bool foreign; /* a line without a stamp came: it is not the container's, and was passed over */
};

void fbr_kube_lines_add(struct fbr_kube_lines *l, const void *data, size_t len,
                        void (*out)(void *user, const void *data, size_t len), void *user);
/* The stream begins again from the second of the last stamp. False when nothing was read yet. */
bool fbr_kube_lines_resume(struct fbr_kube_lines *l);

#endif
