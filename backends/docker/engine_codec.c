/* engine_codec.c - builds and parses the data that the Docker engine takes and sends.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/docker/engine_codec.h"

#include "backends/image/bundle.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/config_value.h"

#define OLDEST 40 /* 1.40: device requests */
#define NEWEST 44 /* used when both sides speak it */
#define TAR_BLOCK 512
#define TAR_OWNER_MAX 02000000 /* the largest number that fits into a tar header */

/* ---- Creating ---- */

void fbr_docker_name(const struct fbr_job *job, char out[FBR_DOCKER_NAME_MAX])
{
    char *at;

    snprintf(out, FBR_DOCKER_NAME_MAX, "fiber-%.8s-%llu-%.48s", job->run_uid,
             (unsigned long long)job->process, job->name);
    for (at = out; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("_.-", *at))
            *at = '_';
}

/* Returns the words as a JSON array; NULL without memory. Blanks separate them, and `between`. */
static struct json_t *word_list(const char *words, char between)
{
    struct json_t *list = fbr_json_pack("[]");
    char *copy = strdup(words), *rest = copy, *w;

    if (!copy) {
        fbr_json_free(list);
        return NULL;
    }
    for (char *at = copy; *at; at++)
        *at = *at == between ? ' ' : *at;
    while ((w = fbr_value_word(&rest)))
        fbr_json_push(&list, fbr_json_string(w));
    free(copy);
    return list;
}

static struct json_t *arguments(const struct fbr_job *job)
{
    struct json_t *list = fbr_json_pack("[]");

    for (size_t i = 1; job->argv && job->argv[0] && job->argv[i]; i++)
        fbr_json_push(&list, fbr_json_string(job->argv[i]));
    return list;
}

static bool sets(const struct json_t *list, const char *variable)
{
    size_t n = strcspn(variable, "=");

    for (size_t i = 0; i < fbr_json_count(list); i++) {
        const char *text = fbr_json_text(fbr_json_item(list, i), NULL);

        if (strncmp(text, variable, n) == 0 && (text[n] == '=' || !text[n]))
            return true;
    }
    return false;
}

/* A merge would replace our list by the template's: then the container would find no ticket. */
static struct json_t *environment(const struct fbr_job *job, const struct json_t *theirs)
{
    static const char ticket[] = "FIBER_TICKET=file:/" FBR_DOCKER_TICKET_DIR "/ticket";
    struct json_t *list = fbr_json_pack("[]");

    for (size_t i = 0; i < fbr_json_count(theirs); i++)
        fbr_json_push(&list, fbr_json_string(fbr_json_text(fbr_json_item(theirs, i), NULL)));
    for (size_t i = 0; job->added_env && job->added_env[i]; i++)
        if (!sets(theirs, job->added_env[i]))
            fbr_json_push(&list, fbr_json_string(job->added_env[i]));
    if (job->ticket)
        fbr_json_push(&list, fbr_json_string(ticket));
    return list;
}

/* The label fiber.master names our process, so that another process can find out whether we are
 * gone. */
static struct json_t *labels(const struct fbr_job *job, const struct fbr_docker_wishes *w)
{
    char uid[16]; /* values of labels are strings */
    struct json_t *l;

    snprintf(uid, sizeof(uid), "%d", (int)geteuid());
    l = fbr_json_pack("{s:s, s:s}", "fiber.run", job->run_uid, "fiber.uid", uid);
    fbr_json_put(&l, "fiber.job", fbr_json_string(job->name));
    if (w->master)
        fbr_json_put(&l, "fiber.master", fbr_json_string(w->master));
    return l;
}

static void put_limits(struct json_t **h, const struct fbr_job *job,
                       const struct fbr_docker_wishes *w)
{
    if (w->pids)
        fbr_json_put(h, "PidsLimit", fbr_json_pack("I", (long long)w->pids));
    if (job->cpus > 0)
        fbr_json_put(h, "NanoCpus", fbr_json_pack("I", (long long)(job->cpus * 1e9)));
    if (job->memory) { /* without MemorySwap the container may swap as much again */
        fbr_json_put(h, "Memory", fbr_json_pack("I", (long long)job->memory));
        fbr_json_put(h, "MemorySwap", fbr_json_pack("I", (long long)job->memory));
    }
    if (job->gpus > 0)
        fbr_json_put(h, "DeviceRequests",
                     fbr_json_pack("[{s:i, s:[[s]]}]", "Count", job->gpus, "Capabilities", "gpu"));
}

static struct json_t *host_config(const struct fbr_job *job, const struct fbr_docker_wishes *w)
{
    /* tini is process 1: it passes signals on, which the program would not receive as process 1,
     * and reaps zombies. */
    struct json_t *h = fbr_json_pack("{s:b, s:b, s:[s], s:[s]}", "AutoRemove", 1, "Init", 1,
                                     "CapDrop", "ALL", "SecurityOpt", "no-new-privileges");

    if (w->caps && w->caps[0] && strcmp(w->caps, "none") != 0)
        fbr_json_put(&h, "CapAdd", word_list(w->caps, ','));
    if (w->mounts && w->mounts[0])
        fbr_json_put(&h, "Binds", word_list(w->mounts, ' '));
    if (w->network && w->network[0])
        fbr_json_put(&h, "NetworkMode", fbr_json_string(w->network));
    if (w->groups && w->groups[0])
        fbr_json_put(&h, "GroupAdd", word_list(w->groups, ' '));
    if (w->shm)
        fbr_json_put(&h, "ShmSize", fbr_json_pack("I", (long long)w->shm));
    put_limits(&h, job, w);
    return h;
}

struct json_t *fbr_docker_body(const struct fbr_job *job, const struct fbr_docker_wishes *w,
                               const char *image, const char *program, const char *workdir)
{
    struct json_t *b = fbr_json_pack("{s:b, s:b}", "AttachStdout", 1, "AttachStderr", 1);
    struct json_t *entry = fbr_json_pack("[]");

    fbr_json_push(&entry, fbr_json_string(program ? program : job->file));
    fbr_json_put(&b, "Image", fbr_json_string(image));
    fbr_json_put(&b, "Entrypoint", entry);
    fbr_json_put(&b, "Cmd", arguments(job));
    fbr_json_put(&b, "Labels", labels(job, w));
    if (workdir)
        fbr_json_put(&b, "WorkingDir", fbr_json_string(workdir));
    if (w->user && w->user[0])
        fbr_json_put(&b, "User", fbr_json_string(w->user));
    fbr_json_put(&b, "HostConfig", host_config(job, w));
    if (b && w->overlay && fbr_json_merge(b, w->overlay) < 0) {
        fbr_json_free(b);
        return NULL;
    }
    fbr_json_put(&b, "Env", environment(job, fbr_json_at(w->overlay, "Env", NULL)));
    return b;
}

char *fbr_docker_bundled(struct json_t *body)
{
    struct json_t *entry = fbr_json_pack("[]");

    for (size_t i = 0; fbr_bundle_command[i]; i++)
        fbr_json_push(&entry, fbr_json_string(fbr_bundle_command[i]));
    return fbr_json_set(body, "Entrypoint", entry) < 0 ? NULL : fbr_json_print(body, NULL);
}

/* ---- The ticket ---- */

bool fbr_docker_owner(const char *user, bool made, struct fbr_docker_user *out)
{
    char *end;

    memset(out, 0, sizeof(*out));
    /* an image of ours without a user: root */
    if (!user[0])
        return made;
    if (strspn(user, "0123456789:") != strlen(user) || user[0] == ':')
        return false;
    out->uid = (unsigned)strtoul(user, &end, 10);
    out->gid = *end == ':' ? (unsigned)strtoul(end + 1, NULL, 10) : 0;
    return out->uid < TAR_OWNER_MAX && out->gid < TAR_OWNER_MAX;
}

/* Adds the header of an entry in POSIX ustar format. */
static void put_head(struct fbr_buf *out, const char *name, char type, unsigned mode,
                     const struct fbr_docker_user *owner, size_t size)
{
    char h[TAR_BLOCK] = {0};
    unsigned sum = 0;

    snprintf(h, 100, "%s", name);
    snprintf(h + 100, 8, "%07o", mode);
    snprintf(h + 108, 8, "%07o", owner ? owner->uid : 0);
    snprintf(h + 116, 8, "%07o", owner ? owner->gid : 0);
    snprintf(h + 124, 12, "%011zo", size);
    snprintf(h + 136, 12, "%011o", 0);
    memset(h + 148, ' ', 8); /* the checksum is computed with blanks in its place */
    h[156] = type;
    memcpy(h + 257, "ustar\00000", 8);
    for (size_t i = 0; i < sizeof(h); i++)
        sum += (unsigned char)h[i];
    snprintf(h + 148, 8, "%06o", sum);
    fbr_put(out, h, sizeof(h));
}

/* The owner can read the ticket, and remove it after reading. */
void fbr_docker_ticket(const void *ticket, size_t len, const struct fbr_docker_user *owner,
                       struct fbr_buf *out)
{
    static const char zeros[2 * TAR_BLOCK];

    put_head(out, FBR_DOCKER_TICKET_DIR "/", '5', owner ? 0700 : 0777, owner, 0);
    put_head(out, FBR_DOCKER_TICKET_DIR "/ticket", '0', owner ? 0400 : 0444, owner, len);
    fbr_put(out, ticket, len);
    fbr_put(out, zeros, (TAR_BLOCK - len % TAR_BLOCK) % TAR_BLOCK);
    fbr_put(out, zeros, sizeof(zeros));
}

/* ---- Streams ---- */

bool fbr_docker_frames(struct fbr_docker_frames *f, const void *data, size_t len,
                       void (*out)(void *user, int stream, const void *data, size_t len),
                       void *user)
{
    const uint8_t *at = data;

    while (len) {
        uint32_t n;

        if (f->left == 0) {
            f->head[f->have++] = *at++;
            len--;
            if (f->have < sizeof(f->head))
                continue;
            f->have = 0;
            f->left = (uint32_t)f->head[4] << 24 | (uint32_t)f->head[5] << 16 |
                      (uint32_t)f->head[6] << 8 | f->head[7];
            if (f->head[0] > 2 || f->head[1] || f->head[2] || f->head[3])
                return false;
            continue;
        }
        n = f->left < len ? f->left : (uint32_t)len;
        out(user, f->head[0] == 2 ? 2 : 1, at, n);
        at += n;
        len -= n;
        f->left -= n;
    }
    return true;
}

/* ---- How far a pull is ---- */

static struct fbr_docker_layer *layer_of(struct fbr_docker_pull *p, const char *id)
{
    struct fbr_docker_layer *l;

    for (int i = 0; i < p->count; i++)
        if (strncmp(p->layers[i].id, id, sizeof(p->layers[i].id) - 1) == 0)
            return &p->layers[i];
    if (!id[0] || p->count == FBR_DOCKER_LAYERS)
        return NULL;
    l = &p->layers[p->count++];
    snprintf(l->id, sizeof(l->id), "%s", id);
    return l;
}

void fbr_docker_pull_add(struct fbr_docker_pull *p, const struct json_t *line)
{
    const char *status = fbr_json_text(line, "status", NULL);
    int64_t now = fbr_json_int(line, 0, "progressDetail", "current", NULL),
            all = fbr_json_int(line, 0, "progressDetail", "total", NULL);
    struct fbr_docker_layer *l;

    snprintf(p->status, sizeof(p->status), "%s", status);
    l = strncmp(status, "Pulling from ", 13) == 0 ? NULL /* the id of this line is the tag */
                                                  : layer_of(p, fbr_json_text(line, "id", NULL));
    if (!l)
        return;
    if (all > 0 && all < INT64_MAX / FBR_DOCKER_LAYERS)
        l->all = all;
    now = now < 0 ? 0 : now > l->all ? l->all : now;
    if (strcmp(status, "Downloading") == 0) {
        l->pulled = now;
    } else if (strcmp(status, "Extracting") == 0) {
        l->pulled = l->all;
        l->unpacked = now;
    } else if (strcmp(status, "Verifying Checksum") == 0 ||
               strcmp(status, "Download complete") == 0) {
        l->here = true;
        l->pulled = l->all;
    } else if (strcmp(status, "Pull complete") == 0 || strcmp(status, "Already exists") == 0) {
        l->here = true;
        l->pulled = l->unpacked = l->all;
    }
}

void fbr_docker_pull_format(const struct fbr_docker_pull *p, char *out, size_t size)
{
    int64_t all = 0, pulled = 0, unpacked = 0;
    int more = 0;

    for (int i = 0; i < p->count; i++) {
        all += p->layers[i].all;
        pulled += p->layers[i].pulled;
        unpacked += p->layers[i].unpacked;
        more += !p->layers[i].all && !p->layers[i].here;
    }
    if (all == 0)
        snprintf(out, size, "%s", p->status);
    else if (pulled == all && more == 0)
        snprintf(out, size, "unpacked %.1f of %.1f MB", (double)unpacked / 1e6, (double)all / 1e6);
    else if (more == 0)
        snprintf(out, size, "pulled %.1f of %.1f MB", (double)pulled / 1e6, (double)all / 1e6);
    else
        snprintf(out, size, "pulled %.1f of %.1f MB, and %d layer%s more", (double)pulled / 1e6,
                 (double)all / 1e6, more, more == 1 ? "" : "s");
}

/* ---- Small ones ---- */

int32_t fbr_docker_code(int64_t status)
{
    return status > 128 && status <= 128 + 64 ? -(int32_t)(status - 128) : (int32_t)(status & 255);
}

static int minor(const char *version)
{
    int n = 0;

    return sscanf(version, "1.%d", &n) == 1 ? n : -1;
}

int fbr_docker_version(const char *min, const char *max, char out[16], struct fbr_error *err)
{
    int low = minor(min), high = minor(max);
    int use = high < NEWEST ? high : low > NEWEST ? low : NEWEST;

    if (high < 0)
        return fbr_fail(err, -EPROTONOSUPPORT, "it says that its API is '%.40s': no Docker engine?",
                        max);
    if (use < OLDEST || use > high)
        return fbr_fail(
            err, -EPROTONOSUPPORT,
            "its API is '%.10s' to '%.10s', but Fiber needs 1.%d or later: use a newer engine", min,
            max, OLDEST);
    snprintf(out, 16, "1.%d", use);
    return 0;
}

/* The engine mounts these files into a container, from a folder whose name has the container's id.
 * The fourth word of a line of mountinfo is the path on the host's file system; the fifth is the
 * mount point here. */
static bool id_of_line(const char *line, char out[65])
{
    char from[1024], place[64];
    const char *id = from;

    if (sscanf(line, "%*s %*s %*s %1023s %63s", from, place) != 2 ||
        fbr_word_index("/etc/hostname /etc/hosts /etc/resolv.conf", place) < 0)
        return false;
    while ((id = strstr(id, "containers/"))) {
        id += strlen("containers/");
        if (strspn(id, "0123456789abcdef") == 64 && id[64] == '/') {
            snprintf(out, 65, "%.64s", id);
            return true;
        }
    }
    return false;
}

bool fbr_docker_own_id(const char *mountinfo, char out[65])
{
    for (const char *line = mountinfo; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (id_of_line(line, out))
            return true;
    }
    return false;
}

bool fbr_docker_is_text(const struct fbr_job *job, struct fbr_error *err)
{
    const char *path = job->workdir && !fbr_json_utf8(job->workdir)     ? "working directory"
                       : !job->own_program && !fbr_json_utf8(job->file) ? "path of the program"
                                                                        : NULL;

    if (path) {
        fbr_fail(err, -EILSEQ, "the %s of %.60s is not UTF-8, and the engine accepts only UTF-8",
                 path, job->name);
        return false;
    }
    for (size_t i = 0; job->argv && job->argv[i]; i++)
        if (!fbr_json_utf8(job->argv[i])) {
            fbr_fail(err, -EILSEQ,
                     "argument %zu of %.60s is not UTF-8, and the engine accepts only UTF-8", i,
                     job->name);
            return false;
        }
    for (size_t i = 0; job->added_env && job->added_env[i]; i++)
        if (!fbr_json_utf8(job->added_env[i])) {
            fbr_fail(err, -EILSEQ,
                     "variable %.*s of %.60s is not UTF-8, and the engine accepts only UTF-8",
                     (int)strcspn(job->added_env[i], "="), job->added_env[i], job->name);
            return false;
        }
    return true;
}

void fbr_docker_split_image(const char *image, char *repo, char *tag, size_t size)
{
    const char *slash = strrchr(image, '/'), *colon = strrchr(slash ? slash : image, ':');

    if (strchr(image, '@'))
        colon = NULL;
    snprintf(repo, size, "%.*s", (int)(colon ? colon - image : (long)strlen(image)), image);
    snprintf(tag, size, "%s", colon ? colon + 1 : strchr(image, '@') ? "" : "latest");
}
