/* docker_priv.h - the state of the Docker backend and of its containers.
 *
 * docker.c (the backend), container.c (one container) and events.c (events) share it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <limits.h>

#include "backends/docker/container_image.h"
#include "backends/docker/container_fsm.h"
#include "backends/docker/engine.h"
#include "backends/docker/engine_codec.h"
#include "runtime/proc/backend.h"
#include "runtime/base/master_id.h"

#define FBR_DOCKER_PATIENCE_MS 120000 /* for requests, while the engine is away */

#define FBR_DOCKER_FIRST 200 /* the bytes of each stream that are kept, and a NUL */

struct fbr_docker_job {
    struct fbr_docker_job *next, *prev;
    struct fbr_backend *b;
    void *user;                     /* NULL: released, the runtime takes no further events */
    enum fbr_container_state state; /* only container.c changes it */
    char name[FBR_DOCKER_NAME_MAX], id[72], image[256];
    char *body;
    /* for an image that lacks our program; NULL: the job runs another program */
    char *bundled_body;
    int fetch;  /* the number of the fetch of its image, while that is on its way; else 0 */
    int bundle; /* the archive with our program, while it is sent; -1: none */
    struct fbr_buf ticket; /* the archive with the ticket */
    struct fbr_http_call *call, *output;
    struct fbr_docker_frames frames;
    /* bytes of each stream: reported so far; still to skip of a repeated output */
    uint64_t got[2], skip[2];
    struct fbr_timer timer; /* for the rest of the output, or for news */
    int64_t memory;         /* its limit, for messages; 0: none */
    int32_t code;
    int sig;                         /* the last signal from the runtime, or SIGKILL */
    uint64_t early;                  /* signals that came before it ran, by bit */
    unsigned archive;                /* number of the next archive: our program, the ticket */
    char first[2][FBR_DOCKER_FIRST]; /* the beginning of each stream, NUL-terminated */
    bool bundled;                    /* fact: created to run the program of the archive */
    bool oom;                        /* fact: the engine reported that memory ran out */
    bool unseen; /* fact: it ended while the engine was away; the reason is unknown */
    /* fact: it ran when the list was requested, and the list has not shown it yet */
    bool awaited;
    bool paused; /* wish: the runtime takes no output */
};

struct fbr_backend {
    struct fbr_backend_env env;
    struct fbr_docker_engine engine;
    struct json_t *overlay; /* of the file that docker_template names; NULL: none */
    struct fbr_docker_wishes wishes;
    struct fbr_docker_images *images;
    struct fbr_docker_bundle *bundle;
    char program[PATH_MAX]; /* path of our own program */
    struct fbr_json_lines lines;
    struct fbr_docker_job *jobs;
    struct fbr_http_call *events, *looking;
    struct fbr_timer again;
    char run[40], since[40], network[256], master[FBR_MASTER_ID_MAX];
    /* our uid:gid, for images that are made of our program; "": the user of the image */
    char caller[32];
    char *groups;      /* our supplementary groups, separated by blanks; NULL: none */
    unsigned failures; /* consecutive failures of the stream of events */
    /* the stream has ended, and no list has shown since then which containers are left */
    bool away;
    bool tty; /* the overlay sets a terminal, so output has no frames */
};

void fbr_docker_job_start(struct fbr_docker_job *j);
void fbr_docker_job_signal(struct fbr_docker_job *j, int sig);
/* Takes the engine's report of the container's end. */
void fbr_docker_job_died(struct fbr_docker_job *j, int32_t code);
void fbr_docker_job_gone(struct fbr_docker_job *j);
void fbr_docker_job_runs(struct fbr_docker_job *j);
void fbr_docker_job_wipe(struct fbr_docker_job *j);
void fbr_docker_job_on_time(void *job);
/* For requests after whose answer nothing happens. */
void fbr_docker_on_sent(void *user, const struct fbr_http_answer *a);
fbr_docker_image_news fbr_docker_on_image;
/* The archive with our program is ready, or cannot be made (`why`, else NULL). */
void fbr_docker_on_bundle(struct fbr_backend *b, const char *why);

int fbr_docker_sweep_images(struct fbr_backend *b, int64_t before_ms, int dry,
                            fbr_backend_swept *swept, void *user, struct fbr_error *err);

int fbr_docker_bundle_open(struct fbr_docker_bundle **out, struct fbr_backend *b,
                           struct fbr_error *err);
void fbr_docker_bundle_close(struct fbr_docker_bundle *d); /* NULL is allowed */
/* Whether an image lacks our program: 1, 0, or -1: not checked yet. */
int fbr_docker_bundle_lacks(const struct fbr_docker_bundle *d, const char *image);
void fbr_docker_bundle_learn(struct fbr_docker_bundle *d, const char *image, bool lacks);
/* Returns a descriptor of the archive, for one reader, which closes it. -EAGAIN: the archive is
 * being made, and fbr_docker_on_bundle() follows; other errors with a sentence. */
int fbr_docker_bundle_take(struct fbr_docker_bundle *d, struct fbr_error *err);

/* Returns the job of a container; NULL: it is not one of ours. `name`: may begin with a slash. */
struct fbr_docker_job *fbr_docker_find(const struct fbr_backend *b, const char *id,
                                       const char *name);
/* Watches the events of our run, from its beginning. */
void fbr_docker_watch(struct fbr_backend *b);
/* Removes the containers of runs whose master is dead, except those that run. */
void fbr_docker_sweep(struct fbr_backend *b);
/* Reads the output of a container, as backend.h says. */
int fbr_docker_logs(struct fbr_backend *b, const char *id, int follow,
                    const struct fbr_backend_reader *reader, struct fbr_error *err);
/* Returns a path with a filter, which is JSON, for fbr_docker_send(). */
char *fbr_docker_list_path(const struct fbr_backend *b, const char *path, const char *filter);
/* Requests the list of our containers: a container that is missing from it is gone. */
void fbr_docker_look(struct fbr_backend *b);
/* For the timer: requests the events or the list again, whichever failed. */
void fbr_docker_on_again(void *backend);
