/* docker_priv.h - what docker.c (the backend), container.c (one container) and events.c (events)
 * share.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_DOCKER_PRIV_H
#define FBR_DOCKER_PRIV_H

#include <limits.h>

#include "backends/docker/container_image.h"
#include "backends/docker/container_fsm.h"
#include "backends/docker/engine.h"
#include "backends/docker/engine_text.h"
#include "runtime/proc/backend.h"
#include "runtime/base/master_id.h"

#define FBR_DOCKER_PATIENCE_MS 120000 /* of requests, while the engine is away */

struct fbr_docker_job {
    struct fbr_docker_job *next, *prev;
    struct fbr_backend *b;
    void *user;                     /* NULL: released, the runtime wants to hear no more */
    enum fbr_container_state state; /* container.c alone changes it */
    char name[FBR_DOCKER_NAME_MAX], id[72], image[256];
    char *body;
    char *bundled_body;    /* for an image that lacks our program; NULL: it is not ours */
    int bundle;            /* the archive with it, while it is sent; -1 */
    struct fbr_buf ticket; /* the archive with it */
    struct fbr_http_call *call, *output;
    struct fbr_docker_frames frames;
    uint64_t got[2], skip[2]; /* bytes of each stream: told; of a repetition, told before */
    struct fbr_timer timer;   /* for what has not come yet: the rest of the output, news */
    uint64_t memory;          /* its limit, for the sentence */
    int32_t code;
    int sig;          /* the runtime asked for last */
    unsigned archive; /* that is put in next: our program, the ticket */
    char first[200];  /* of what it wrote to standard error */
    bool bundled;     /* fact: made to run the program of the archive */
    bool oom;         /* fact: the engine said that memory ran out */
    bool unseen; /* fact: it ended while the engine was away: with it, or of itself, nobody knows */
    bool asked;  /* fact: it ran when the list was asked for, and the list has not had it yet */
    bool paused; /* wish: the runtime takes no output */
};

/* A container that never ran and has to go. */
struct fbr_docker_removal {
    struct fbr_docker_removal *next, *prev;
    struct fbr_backend *b;
    char name[FBR_DOCKER_NAME_MAX];
};

struct fbr_backend {
    struct fbr_backend_env env;
    struct fbr_docker_engine engine;
    struct fbr_docker_wishes wishes;
    struct fbr_docker_images *images;
    struct fbr_docker_bundle *bundle;
    char program[PATH_MAX]; /* our own */
    struct fbr_json_lines lines;
    struct fbr_docker_job *jobs;
    struct fbr_docker_removal *removals;
    struct fbr_http_call *events, *looking;
    struct fbr_timer again;
    char run[40], since[40], network[256], master[FBR_MASTER_ID_MAX];
    /* we, as uid:gid, in images that are made of our program; "": who the image says */
    char caller[32];
    char *groups;      /* ours, as words; NULL */
    unsigned failures; /* of the stream of events, in a row */
    bool away;         /* it has ended, and no list has told since what is left */
    bool tty;          /* the overlay says that output has no frames */
};

/* "/v1.41" and the rest, for free(); NULL without memory. */
char *fbr_docker_path(const struct fbr_backend *b, const char *format, const char *text);
struct fbr_http_call *fbr_docker_send(struct fbr_backend *b, const char *format, const char *text,
                                      struct fbr_http_request r);

void fbr_docker_job_start(struct fbr_docker_job *j);
void fbr_docker_job_signal(struct fbr_docker_job *j, int sig);
/* Takes the engine's report of the container's end. */
void fbr_docker_job_died(struct fbr_docker_job *j, int32_t code);
void fbr_docker_job_gone(struct fbr_docker_job *j);
void fbr_docker_job_runs(struct fbr_docker_job *j);
void fbr_docker_job_wipe(struct fbr_docker_job *j);
void fbr_docker_job_on_time(void *job);

int fbr_docker_sweep_images(struct fbr_backend *b, int64_t before_ms, int dry,
                            fbr_backend_swept *swept, void *user, struct fbr_error *err);

int fbr_docker_bundle_open(struct fbr_docker_bundle **out, struct fbr_loop *loop,
                           struct fbr_error *err);
void fbr_docker_bundle_close(struct fbr_docker_bundle *d); /* NULL is fine */
/* Whether an image lacks our program: 1, 0, or -1: nobody has looked yet. */
int fbr_docker_bundle_lacks(const struct fbr_docker_bundle *d, const char *image);
void fbr_docker_bundle_learn(struct fbr_docker_bundle *d, const char *image, bool lacks);
/* Tells a descriptor of the archive, the caller's to close, or -1 and why. */
void fbr_docker_bundle_want(struct fbr_docker_bundle *d,
                            void (*done)(void *user, int fd, const char *why), void *user);
void fbr_docker_bundle_forget(struct fbr_docker_bundle *d, const void *user);

/* Watches the events of our run, from its beginning. */
void fbr_docker_watch(struct fbr_backend *b);
/* Removes what runs whose master is dead have left, if it does not run. */
void fbr_docker_sweep(struct fbr_backend *b);
/* Reads the output of a container, as backend.h says. */
int fbr_docker_logs(struct fbr_backend *b, const char *id, int follow,
                    const struct fbr_backend_reader *reader, struct fbr_error *err);
/* Asks for the list of our containers: what is missing is gone. */
void fbr_docker_look(struct fbr_backend *b);

#endif
