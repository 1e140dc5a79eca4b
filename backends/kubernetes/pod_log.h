/* pod_log.h - the output of a container from the API server: each byte once, although the stream
 * may break.
 *
 * The server adds time stamps, which are removed here. After a break the stream is requested from
 * the last stamp on, and lines that are already known are skipped.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "backends/kubernetes/api.h"
#include "runtime/base/buf.h"

struct fbr_kube_log;

struct fbr_kube_log_options {
    const char *pod;
    bool follow;   /* true: until the container has ended; false: only existing output */
    unsigned tail; /* last lines only; 0: all */
    void (*data)(void *user, const void *data, size_t len);
    /* All output has come, or no more can come. */
    void (*done)(void *user);
    void *user;
};

int fbr_kube_log_open(struct fbr_kube_log **out, struct fbr_kube_api *api,
                      const struct fbr_kube_log_options *o);
/* May be called before done(). */
void fbr_kube_log_close(struct fbr_kube_log *l);
void fbr_kube_log_pause(struct fbr_kube_log *l, bool paused);
/* Call after done(): the container still runs, so more output will come. False: the server refuses
 * it. */
bool fbr_kube_log_resume(struct fbr_kube_log *l);
/* After done(): the server gave no output and will give none: the pod does not exist, or we have no
 * permission to read its output. */
bool fbr_kube_log_is_refused(const struct fbr_kube_log *l);
/* After done(): the stream never broke off, so the output is complete. */
bool fbr_kube_log_is_whole(const struct fbr_kube_log *l);

/* ---- Parts: pure ---- */

#define FBR_KUBE_STAMP 40

/* Removes the stamps from a stream of lines "2026-11-21T16:05:00.123456789Z text". A line without a
 * stamp is not output of the container: the kubelet writes its own errors into the stream, because
 * it has already sent status 200 (kuberuntime_container.go, "unable to retrieve container logs for
 * ..."). */
struct fbr_kube_lines {
    char stamp[FBR_KUBE_STAMP];   /* of the last line that was passed on */
    unsigned same;                /* lines with that stamp that were passed on */
    size_t partial;               /* bytes of the last line, if its end has not come */
    char skip_to[FBR_KUBE_STAMP]; /* after a break: earlier lines are known; "" otherwise */
    unsigned skip;                /* lines with that stamp still to skip, */
    size_t eat;                   /* and bytes of the current line */
    char head[FBR_KUBE_STAMP];    /* a stamp that arrives in pieces */
    size_t head_len;
    bool in_text, dropping;
    /* a line without a stamp came: it is not the container's, and was dropped */
    bool foreign;
};

void fbr_kube_lines_add(struct fbr_kube_lines *l, const void *data, size_t len,
                        void (*out)(void *user, const void *data, size_t len), void *user);
/* Prepares for a stream that begins again at the second of the last stamp. False: nothing was read
 * yet. */
bool fbr_kube_lines_resume(struct fbr_kube_lines *l);
