/* engine_text.h - what goes to the Docker engine and comes from it: bodies, frames of output,
 * events; pure.
 *
 * Source of the format: the Engine API, version 1.41 (docs.docker.com/engine/api).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_DOCKER_TEXT_H
#define FBR_DOCKER_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/http/json.h"
#include "backends/image/tar.h"
#include "runtime/proc/backend.h"
#include "runtime/base/buf.h"

#define FBR_DOCKER_NAME_MAX 128
#define FBR_DOCKER_TICKET_DIR ".fiber" /* in the container's root */

/* "fiber-1a2b3c4d-17-worker_17", which the engine takes as a name (at least two of [a-zA-Z0-9_.-])
 * and which is the same each time. */
void fbr_docker_name(const struct fbr_job *job, char out[FBR_DOCKER_NAME_MAX]);

/* The configured wishes for containers. NULL or "": none. */
struct fbr_docker_wishes {
    const char *network, *user, *mounts, *caps; /* mounts and caps: words; caps "none" */
    const char *groups;                         /* more of the user's, as words */
    uint64_t shm;
    int64_t pids; /* processes and threads; 0: as many as the engine lets there be */
    const struct json_t *overlay; /* put into the body; may be NULL */
    const char *master;           /* of the label fiber.master */
};

/* The body of POST /containers/create; `program` for a job that is our own program. NULL without
 * memory. */
struct json_t *fbr_docker_body(const struct fbr_job *job, const struct fbr_docker_wishes *w,
                               const char *image, const char *program, const char *workdir);

/* False, and a sentence: an argument or a variable that JSON cannot carry. */
bool fbr_docker_is_text(const struct fbr_job *job, struct fbr_error *err);

/* The same with a command that runs our program where it was put (bundle.h); changes the body. For
 * free(). */
char *fbr_docker_bundled(struct json_t *body);

/* Finds the user of a container whose body says `user`, "" for none; `made`: its image was made
 * here, and says none either. False: only the image knows. */
bool fbr_docker_owner(const char *user, bool made, struct fbr_tar_owner *out);
/* A tar archive with the ticket, for PUT /containers/ID/archive?path=/. With an owner only that
 * user can read it. With NULL every user of the container can: there is only the image's own. */
void fbr_docker_ticket(const void *ticket, size_t len, const struct fbr_tar_owner *owner,
                       struct fbr_buf *out);

/* Frames of an attached container without a terminal: u8 stream, three zeros, u32 big-endian
 * length, bytes. */
struct fbr_docker_frames {
    uint8_t head[8];
    unsigned have;
    uint32_t left;
};
/* Calls out(user, stream, data, len) for each piece; false: these are not frames. */
bool fbr_docker_frames(struct fbr_docker_frames *f, const void *data, size_t len,
                       void (*out)(void *user, int stream, const void *data, size_t len),
                       void *user);

/* How far a pull is, by its lines:
 * {"status":"Downloading","progressDetail":{"current":1,"total":9},"id":"a3ed"}. The engine tells
 * how large a layer is when it begins with it. Begins as zeros; of more layers nothing is told. */
#define FBR_DOCKER_LAYERS 128
struct fbr_docker_pull {
    struct fbr_docker_layer {
        char id[16];
        int64_t all, pulled, unpacked; /* bytes; all is 0: not known yet */
        bool here;                     /* complete */
    } layers[FBR_DOCKER_LAYERS];
    int count;
    char status[64]; /* the last one */
};
void fbr_docker_pull_add(struct fbr_docker_pull *p, const struct json_t *line);
/* "pulled 1.2 of 34.5 MB, and 2 layers more" */
void fbr_docker_pull_format(const struct fbr_docker_pull *p, char *out, size_t size);

/* The exit code of a container as a job has it: 128 + N of signal N is -N. */
int32_t fbr_docker_code(int64_t status);

/* The version of the API that we speak with an engine that offers min to max: "1.41". An engine
 * that has left all that we know behind is tried with its oldest. -EPROTONOSUPPORT and a
 * sentence. */
int fbr_docker_version(const char *min, const char *max, char out[16], struct fbr_error *err);

/* The id of the container that a process with this /proc/self/mountinfo is in; false: in none. */
bool fbr_docker_own_id(const char *mountinfo, char out[65]);

/* "repo:tag" as fromImage and tag; a digest stays in fromImage. */
void fbr_docker_split_image(const char *image, char *repo, char *tag, size_t size);

#endif
