/* engine_codec.h - the data that the Docker engine takes and sends: bodies, frames of output,
 * events; pure.
 *
 * Source of the format: the Engine API, version 1.41 (docs.docker.com/engine/api).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/http/json.h"
#include "runtime/proc/backend.h"
#include "runtime/base/buf.h"

#define FBR_DOCKER_NAME_MAX 128
#define FBR_DOCKER_TICKET_DIR ".fiber" /* in the root directory of the container */

/* Makes a name such as "fiber-1a2b3c4d-17-worker_17". The engine accepts it (at least two of
 * [a-zA-Z0-9_.-]), and it is the same each time. */
void fbr_docker_name(const struct fbr_job *job, char out[FBR_DOCKER_NAME_MAX]);

/* The configuration of containers. NULL or "": not set. */
struct fbr_docker_wishes {
    /* mounts and caps: separated by blanks; caps may be "none" */
    const char *network, *user, *mounts, *caps;
    const char *groups; /* supplementary groups of the user, separated by blanks */
    uint64_t shm;
    int64_t pids;                 /* processes and threads; 0: the engine's limit */
    const struct json_t *overlay; /* merged into the body; may be NULL */
    const char *master;           /* value of the label fiber.master */
};

/* Makes the body of POST /containers/create; `program` is for a job that is our own program. NULL
 * without memory. */
struct json_t *fbr_docker_body(const struct fbr_job *job, const struct fbr_docker_wishes *w,
                               const char *image, const char *program, const char *workdir);

/* Checks that JSON can carry the arguments, variables and working directory of the job, and the
 * path of a program that is not our own. False, and a message, if it cannot. */
bool fbr_docker_is_text(const struct fbr_job *job, struct fbr_error *err);

/* Makes the same body with a command that runs our program from the place where the bundle puts it
 * (bundle.h); changes `body`. For free(). */
char *fbr_docker_bundled(struct json_t *body);

struct fbr_docker_user {
    unsigned uid, gid;
};

/* Finds the user of a container whose body has the user `user` ("": none). `made`: its image was
 * made here, and names no user either. False: only the image knows. */
bool fbr_docker_owner(const char *user, bool made, struct fbr_docker_user *out);
/* Makes a tar archive with the ticket, for PUT /containers/ID/archive?path=/. With an owner, only
 * that user can read the ticket. With NULL every user of the container can; such a container has
 * only the user of its image. */
void fbr_docker_ticket(const void *ticket, size_t len, const struct fbr_docker_user *owner,
                       struct fbr_buf *out);

/* The frames of an attached container without a terminal: u8 stream, three zero bytes, u32
 * big-endian length, bytes. */
struct fbr_docker_frames {
    uint8_t head[8];
    unsigned have;
    uint32_t left;
};
/* Calls out(user, stream, data, len) for each piece; false: the data are not frames. */
bool fbr_docker_frames(struct fbr_docker_frames *f, const void *data, size_t len,
                       void (*out)(void *user, int stream, const void *data, size_t len),
                       void *user);

/* The progress of a pull, from its lines:
 * {"status":"Downloading","progressDetail":{"current":1,"total":9},"id":"a3ed"}. The engine reports
 * the size of a layer when it begins with that layer. Initialise with zeros; layers beyond
 * FBR_DOCKER_LAYERS are ignored. */
#define FBR_DOCKER_LAYERS 128
struct fbr_docker_pull {
    struct fbr_docker_layer {
        char id[16];
        int64_t all, pulled, unpacked; /* bytes; all is 0: not known yet */
        bool here;                     /* complete */
    } layers[FBR_DOCKER_LAYERS];
    int count;
    char status[64]; /* the last status line */
};
void fbr_docker_pull_add(struct fbr_docker_pull *p, const struct json_t *line);
/* Writes "pulled 1.2 of 34.5 MB, and 2 layers more". */
void fbr_docker_pull_format(const struct fbr_docker_pull *p, char *out, size_t size);

/* Converts the exit code of a container to the exit code of a job: 128 + N, for signal N, becomes
 * -N. */
int32_t fbr_docker_code(int64_t status);

/* Chooses the version of the API ("1.41") for an engine that offers min to max. If all versions of
 * the engine are newer than ours, its oldest is tried. -EPROTONOSUPPORT and a message. */
int fbr_docker_version(const char *min, const char *max, char out[16], struct fbr_error *err);

/* Finds the id of the container of a process with this /proc/self/mountinfo; false: no
 * container. */
bool fbr_docker_own_id(const char *mountinfo, char out[65]);

/* Splits "repo:tag" into fromImage and tag; a digest stays in fromImage. */
void fbr_docker_split_image(const char *image, char *repo, char *tag, size_t size);
