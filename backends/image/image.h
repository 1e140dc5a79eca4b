/* image.h - container images without a registry, a Dockerfile or an engine: an archive of two
 * layers with the files that programs need (closure.h), at their paths on this machine. The lower
 * layer has the libraries and packages: engines and registries keep it when the program changes.
 *
 * The archive is an OCI image layout (image-spec 1.0) with the manifest.json of `docker save` in
 * it, so `docker load`, `podman load` and `ctr images import` accept it. The same files give the
 * same bytes: entries are sorted, times and owners are 0.
 *
 * A layer is never held in memory: the files are read twice, once for its digest and once for the
 * archive. A file that changes in between is an error.
 *
 * Any thread but the loop thread, because the functions read files; one thread at a time per image.
 * The code is a part of the module "cluster"; code outside it uses struct fbr_image_ops
 * (cluster.h).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/image/closure.h"
#include "runtime/program/args.h"
#include "runtime/base/config.h"

#define FBR_IMAGE_ID 16        /* hexadecimal digits */
#define FBR_IMAGE_NAME_MAX 385 /* 255 bytes, ':', a tag of 128 bytes, NUL */

struct fbr_image;

/* Lists are NULL-terminated, and may be NULL. Texts are copied. */
struct fbr_image_spec {
    const char *const *files; /* files and directories; the first program runs by default */
    /* data: their libraries are not required, a missing file is not an error */
    const char *const *more;
    const char *const *directories; /* directories to make, which all users may write */
    /* "K=V"; LD_LIBRARY_PATH is also the library_path of `closure` */
    const char *const *env;
    const char *const *entrypoint;
    const char *workdir;
    struct fbr_closure_options closure;
};

struct fbr_image_facts {
    /* of the plan: made from the paths, sizes and times of the files, and from the options */
    const char *id;
    size_t files;                       /* number of entries of the layers */
    const struct fbr_file *const *list; /* the entries; valid until the image is closed */
    char *const *notes;                 /* for the user, NULL-terminated; NULL: none */
    uint64_t bytes;                     /* of the files */
    uint64_t archive;                   /* bytes written, after fbr_image_write() */
    const char *digest; /* "sha256:...", the image's id for an engine, after fbr_image_write() */
};

/* Finds the files; takes milliseconds for a program. -ENOENT and other errors, with a message. */
int fbr_image_open(struct fbr_image **out, const struct fbr_image_spec *spec,
                   struct fbr_error *err);
void fbr_image_close(struct fbr_image *i); /* NULL is allowed */

/* Opens the image of this program: the program, the libraries that it has loaded, the files of the
 * key image_add, and the working directory. A word "@FILE" stands for the lines of that file, each
 * the path of data; "\\ " is a blank in a word. */
int fbr_image_open_own(struct fbr_image **out, const struct fbr_config *config,
                       struct fbr_error *err);
/* Returns LD_LIBRARY_PATH of this process with absolute directories, for free(); NULL: not set. */
char *fbr_image_library_path(void);
/* Adds the libraries that this process has loaded. */
void fbr_image_mapped(struct fbr_args *list);

void fbr_image_facts(const struct fbr_image *i, struct fbr_image_facts *out);

/* Writes the archive to fd, from its position on; fd may be a pipe. -EINVAL: not a valid name;
 * -EPIPE: the reader has gone (a caller that writes to a pipe ignores SIGPIPE); -ESTALE: a file was
 * changed meanwhile. */
int fbr_image_write(struct fbr_image *i, const char *name, int fd, struct fbr_error *err);

/* Makes "train:latest" and "docker.io/library/train:latest" from "train", the names that engines
 * and Kubernetes use. -EINVAL and a message. Pure. */
int fbr_image_name(const char *name, char tagged[FBR_IMAGE_NAME_MAX],
                   char whole[FBR_IMAGE_NAME_MAX], struct fbr_error *err);

/* Whether a login may help a pull, by the registry's answer as the engine reports it: access was
 * denied, or so many pulls are allowed only with one. Pure. */
bool fbr_image_refused(const char *text);

/* For callers that have loaded the module. */
#define FBR_IMAGE_ENGINE_MAX 300
struct fbr_image_ops {
    int (*open)(struct fbr_image **out, const struct fbr_image_spec *spec, struct fbr_error *err);
    void (*close)(struct fbr_image *i);
    void (*facts)(const struct fbr_image *i, struct fbr_image_facts *out);
    int (*write)(struct fbr_image *i, const char *name, int fd, struct fbr_error *err);
    int (*load)(struct fbr_image *i, const char *name, const struct fbr_config *config,
                char engine[FBR_IMAGE_ENGINE_MAX], struct fbr_error *err);
    int (*name)(const char *name, char tagged[FBR_IMAGE_NAME_MAX], char whole[FBR_IMAGE_NAME_MAX],
                struct fbr_error *err);
};
