/* run_allocation.c - allocations of PBS, LSF, SGE and Flux; see run_allocation.h.
 *
 * Open MPI and Hydra read the same variables and files. Jobs are started by the manager's own command where that passes
 * standard input on, by which the ticket comes: blaunch and qrsh do, pbs_tmrsh does not.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_allocation.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/slurm/slurm_state.h"
#include "backends/tool/tool.h"
#include "cli/text_file.h"
#include "runtime/base/buf.h"
#include "runtime/base/log.h"

#define SPACES " \t\r"
#define HOSTS_MAX 8192
#define ASK_MS 10000

static const struct {
    const char *variable, *start;
    bool is_file;
} managers[RUN_MANAGERS] = {
    [RUN_PBS] = {"PBS_NODEFILE", NULL, true},
    [RUN_LSF] = {"LSB_MCPU_HOSTS", "blaunch {host} {shell_command}", false},
    [RUN_LSF_FILE] = {"LSB_DJOB_HOSTFILE", "blaunch {host} {shell_command}", true},
    [RUN_SGE] = {"PE_HOSTFILE", "qrsh -inherit {host} {shell_command}", true},
    [RUN_FLUX] = {"FLUX_URI", NULL, false},
};

/* ---- Texts ---- */

/* The next word; its length, 0: there is none. */
static size_t next_field(const char **at)
{
    *at += strspn(*at, SPACES);
    return strcspn(*at, SPACES);
}

/* A word that is a number; 0: it is none. */
static unsigned long next_number(const char **at)
{
    size_t n = next_field(at), i = 0;
    unsigned long value = 0;

    for (; i < n && isdigit((unsigned char)(*at)[i]) && value < UINT_MAX; i++)
        value = value * 10 + (unsigned long)((*at)[i] - '0');
    *at += n;
    return i == n ? value : 0;
}

/* HOST RANKS */
static int take_pair(struct run_hosts *h, const char *where, const char **at, struct fbr_error *err)
{
    size_t n = next_field(at);
    const char *name = *at;

    *at += n;
    return n ? run_hosts_add(h, where, name, n, next_number(at), err) : 0;
}

/* NODES CORES HOSTLIST: the first nodes have one more when it is no even split. */
static int take_group(struct run_hosts *h, const char *where, const char *at, struct fbr_error *err)
{
    unsigned long nodes = next_number(&at), cores = next_number(&at);
    size_t n = next_field(&at);
    char *list = strndup(at, n);
    struct fbr_words names = {0};
    int rc = !list ? -ENOMEM : nodes ? fbr_slurm_hosts(list, HOSTS_MAX, &names) : 0;

    free(list);
    if (rc == 0 && nodes && (names.n != nodes || cores < nodes))
        rc = -EINVAL;
    if (rc < 0)
        fbr_fail(err, rc, "%s: the line is not NODES CORES HOSTLIST", where);
    for (size_t i = 0; rc == 0 && i < names.n; i++)
        rc = run_hosts_add(h, where, names.at[i], strlen(names.at[i]),
                           cores / nodes + (i < cores % nodes), err);
    fbr_words_fini(&names);
    return rc;
}

static int take_words(struct run_hosts *h, enum run_manager kind, const char *where,
                      const char *line, struct fbr_error *err)
{
    int rc = 0;

    if (kind == RUN_FLUX)
        return take_group(h, where, line, err);
    if (kind == RUN_SGE)
        return take_pair(h, where, &line, err);
    while (rc == 0 && *line)
        rc = take_pair(h, where, &line, err);
    return rc;
}

int run_allocation_parse(struct run_hosts *h, enum run_manager kind, const char *origin,
                         const char *text, size_t len, struct fbr_error *err)
{
    char *copy, *rest = NULL, where[256];
    unsigned number = 0;
    int rc = 0;

    if (kind == RUN_PBS || kind == RUN_LSF_FILE)
        return run_hosts_parse(h, origin, text, len, err);
    copy = malloc(len + 1);
    if (!copy)
        return fbr_fail(err, -ENOMEM, "out of memory");
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (strlen(copy) != len)
        rc = fbr_fail(err, -EINVAL, "%.200s: not text", origin);
    for (char *line = copy; rc == 0 && line; line = rest) {
        rest = strchr(line, '\n');
        if (rest)
            *rest++ = '\0';
        snprintf(where, sizeof(where), "%.200s:%u", origin, ++number);
        rc = take_words(h, kind, where, line, err);
    }
    free(copy);
    return rc == 0 && !h->n ? fbr_fail(err, -EINVAL, "%.200s: there is no host in it", origin) : rc;
}

/* ---- Where they are ---- */

/* What Flux has for us; nothing when it cannot be asked. */
static int ask_flux(struct run_hosts *h, struct fbr_error *err)
{
    struct fbr_error why = {0, ""};
    struct fbr_words w = {0};
    struct fbr_buf out, said;
    int32_t code = 0;
    int rc = fbr_words_split(&w,
                             "flux resource list --states=free,allocated --no-header "
                             "\"--format={nnodes} {ncores} {nodelist}\"",
                             err);

    fbr_buf_init(&out);
    fbr_buf_init(&said);
    if (rc == 0 && (fbr_tool_wait(&w, environ, ASK_MS, &out, &said, &code, &why) < 0 || code))
        fbr_warn("FLUX_URI is set, and flux resource list tells no hosts: %.200s",
                 why.text[0] ? why.text : (const char *)said.data);
    else if (rc == 0)
        rc = run_allocation_parse(h, RUN_FLUX, "flux resource list", (const char *)out.data,
                                  strlen((const char *)out.data), err);
    fbr_buf_fini(&said);
    fbr_buf_fini(&out);
    fbr_words_fini(&w);
    return rc;
}

static int read_hosts(struct run_hosts *h, enum run_manager kind, const char *value,
                      struct fbr_error *err)
{
    const char *name = managers[kind].variable;
    char *text;
    size_t len;
    int rc;

    if (kind == RUN_FLUX)
        return ask_flux(h, err);
    if (!managers[kind].is_file)
        return run_allocation_parse(h, kind, name, value, strlen(value), err);
    rc = text_file_read(value, &text, &len, err);
    if (rc == 0) {
        rc = run_allocation_parse(h, kind, value, text, len, err);
        free(text);
    }
    return rc < 0 ? fbr_wrap(err, "%s (-H HOST, or unset %s, does without it)", name, name) : 0;
}

int run_allocation_find(struct run_allocation *a, struct fbr_error *err)
{
    const char *copies = getenv("FLUX_JOB_SIZE"), *start, *value;
    char path[PATH_MAX], word[32];
    int kind = 0, rc;

    *a = (struct run_allocation){.start = NULL};
    while (kind < RUN_MANAGERS &&
           (!(value = getenv(managers[kind].variable)) || !value[0])) /* the first that is set */
        kind++;
    if (kind == RUN_MANAGERS)
        return 0;
    rc = read_hosts(&a->hosts, (enum run_manager)kind, value, err);
    if (rc < 0) {
        run_hosts_fini(&a->hosts);
        return rc;
    }
    start = managers[kind].start;
    snprintf(word, sizeof(word), "%.*s", start ? (int)strcspn(start, " ") : 0, start ? start : "");
    if (start && fbr_tool_find(word, path, sizeof(path), &(struct fbr_error){0, ""}) == 0)
        a->start = start;
    if (kind == RUN_FLUX && copies && getenv("FLUX_TASK_RANK"))
        a->copies = (unsigned)strtoul(copies, NULL, 10);
    return 0;
}

int run_allocation_room(const struct run_allocation *a, struct fbr_room *room,
                        struct fbr_error *err)
{
    size_t n = a->hosts.n;

    room->names = calloc(n + 1, sizeof(*room->names));
    room->slots = calloc(n + 1, sizeof(*room->slots));
    if (!room->names || !room->slots)
        return fbr_fail(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        room->names[i] = strdup(a->hosts.at[i].name);
        if (!room->names[i])
            return fbr_fail(err, -ENOMEM, "out of memory");
        room->slots[i] = (unsigned)(a->hosts.at[i].slots + a->hosts.at[i].bare);
    }
    room->hosts = (unsigned)n;
    room->copies = a->copies;
    return 0;
}
