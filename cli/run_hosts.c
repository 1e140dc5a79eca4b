/* run_hosts.c - the hosts of `fiber run`.
 *
 * A host's name becomes a word of ssh's command line. So it may have only the characters of host
 * names, and must not begin like an option.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_hosts.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "backends/command/template.h"
#include "backends/slurm/slurm_state.h"
#include "backends/tool/tool.h"
#include "cli/text_file.h"
#include "ring/plan.h"
#include "runtime/base/buf.h"
#include "runtime/base/log.h"
#include "runtime/net/host_address.h"

#define HOSTS_MAX 8192
#define SLOTS_MAX 999999
#define BLANKS " \t"

/* ---- Words ---- */

static bool is_name(const char *name, size_t len)
{
    if (!isalnum((unsigned char)name[0]) && name[0] != '_' && name[0] != ':')
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("._-:@%", name[i]))
            return false;
    return true;
}

static int bad_host(const char *where, const char *word, size_t len, struct fbr_error *err)
{
    const char *hint = "";

    if (memchr(word, '/', len))
        hint = "; for a file with hosts, use --hostfile FILE";
    else if (len && word[0] != '[' && memchr(word, '[', len))
        hint = "; instead of n[1-3], use n1,n2,n3";
    return fbr_fail(err, -EINVAL,
                    "%s: \"%.*s\" is not a host: use NAME, NAME:RANKS or [ADDRESS]:RANKS, with 1 "
                    "rank or more%s",
                    where, (int)(len < 64 ? len : 64), word, hint);
}

static struct run_host *find(const struct run_hosts *h, const char *name, size_t len)
{
    for (size_t i = h->n; i-- > 0;) /* a host's lines stand together */
        if (strlen(h->at[i].name) == len && !strncasecmp(h->at[i].name, name, len))
            return &h->at[i];
    return NULL;
}

static int64_t slots_of(const struct run_host *host)
{
    return host->slots + host->bare;
}

/* Returns a new host, or one that is named again. NULL with an error. */
static struct run_host *take_name(struct run_hosts *h, const char *where, const char *name,
                                  size_t len, struct fbr_error *err)
{
    struct run_host *host = find(h, name, len);
    char *copy;

    if (host)
        return host;
    if (h->n == HOSTS_MAX) {
        fbr_fail(err, -EINVAL, "%s: more than %d hosts", where, HOSTS_MAX);
        return NULL;
    }
    copy = strndup(name, len);
    if (!copy || !fbr_grow(&h->at, h->n, sizeof(*h->at))) {
        free(copy);
        fbr_fail(err, -ENOMEM, "out of memory");
        return NULL;
    }
    h->at[h->n] = (struct run_host){.name = copy};
    return &h->at[h->n++];
}

/* Parses NAME or NAME:SLOTS; *slots is 0 if there are no slots. */
static struct run_host *take_host(struct run_hosts *h, const char *where, const char *word,
                                  size_t len, unsigned *slots, struct fbr_error *err)
{
    const char *name;
    size_t n;

    if (fbr_host_split(word, len, &name, &n, slots) < 0 || !is_name(name, n)) {
        bad_host(where, word, len, err);
        return NULL;
    }
    return take_name(h, where, name, n, err);
}

static int add_named(struct run_hosts *h, const char *where, const char *name, unsigned long slots,
                     struct fbr_error *err)
{
    struct run_host *host;

    if (!is_name(name, strlen(name)) || slots < 1 || slots > SLOTS_MAX)
        return fbr_fail(err, -EINVAL, "%s: \"%.64s\" is not a host with 1 to %d ranks", where, name,
                        SLOTS_MAX);
    host = take_name(h, where, name, strlen(name), err);
    if (!host)
        return err->code;
    host->slots += (int64_t)slots;
    return 0;
}

int run_hosts_list(struct run_hosts *h, const char *text, struct fbr_error *err)
{
    while (*text) {
        size_t len = strcspn(text, "," BLANKS);
        struct run_host *host;
        unsigned slots;

        if (len) {
            host = take_host(h, "-H", text, len, &slots, err);
            if (!host)
                return err->code;
            host->slots += slots;
            host->bare += !slots;
        }
        text += len + (text[len] != '\0');
    }
    return h->n ? 0 : fbr_fail(err, -EINVAL, "-H: the list has no host");
}

/* ---- Lines of a file ---- */

/* Parses "slots=4" and "slots = 4"; returns its end. */
static const char *take_key(const char *where, const char *at, unsigned *slots, unsigned *most,
                            struct fbr_error *err)
{
    static const char *const keys[] = {"slots",     "slot",      "cpus",      "cpu",      "count",
                                       "max_slots", "max-slots", "slots_max", "slots-max"};
    size_t len = strcspn(at, "=" BLANKS), k = 0;
    const char *value = at + len + strspn(at + len, BLANKS);
    unsigned long n = 0;
    char *end = NULL;

    while (k < 9 && (strlen(keys[k]) != len || strncasecmp(keys[k], at, len) != 0))
        k++;
    if (k == 9) {
        fbr_fail(err, -EINVAL, "%s: \"%.*s\" is not known after a host; use slots=N or max_slots=N",
                 where, (int)(len < 64 ? len : 64), at);
        return NULL;
    }
    value += *value == '=' ? 1 + strspn(value + 1, BLANKS) : 0;
    if (isdigit((unsigned char)*value))
        n = strtoul(value, &end, 10);
    if (n < 1 || n > SLOTS_MAX || !strchr(BLANKS, *end)) { /* also matches the NUL */
        fbr_fail(err, -EINVAL, "%s: %.*s=%.*s: a number from 1 to %d was expected", where, (int)len,
                 at, (int)strcspn(value, BLANKS) < 32 ? (int)strcspn(value, BLANKS) : 32, value,
                 SLOTS_MAX);
        return NULL;
    }
    *(k < 5 ? slots : most) = (unsigned)n;
    return end;
}

static int take_line(void *user, const char *where, char *line, struct fbr_error *err)
{
    struct run_hosts *h = user;
    unsigned slots, most = 0;
    struct run_host *host;
    const char *at = line;
    size_t len;

    line[strcspn(line, "#")] = '\0';
    at += strspn(at, BLANKS);
    if (!*at)
        return 0;
    len = strcspn(at, BLANKS);
    host = take_host(h, where, at, len, &slots, err);
    if (!host)
        return err->code;
    for (at += len; at && *(at += strspn(at, BLANKS));)
        at = take_key(where, at, &slots, &most, err);
    if (!at)
        return err->code;
    if (most && !slots)
        slots = most;
    host->slots += slots;
    host->bare += !slots;
    host->most += most;
    if (host->most && host->most < slots_of(host))
        return fbr_fail(err, -EINVAL, "%s: max_slots=%lld is less than slots=%lld", where,
                        (long long)host->most, (long long)slots_of(host));
    return 0;
}

int run_hosts_parse(struct run_hosts *h, const char *origin, const char *text, size_t len,
                    struct fbr_error *err)
{
    int rc;

    h->of_file = true;
    rc = text_file_lines(origin, text, len, take_line, h, err);
    if (rc < 0)
        return rc;
    return h->n ? 0
                : fbr_fail(err, -EINVAL,
                           "%.200s: the file has no host; write a line HOST slots=N for each",
                           origin);
}

int run_hosts_read(struct run_hosts *h, const char *path, struct fbr_error *err)
{
    char *text;
    size_t len;
    int rc = text_file_read(path, &text, &len, err);

    if (rc < 0)
        return rc;
    rc = run_hosts_parse(h, path, text, len, err);
    free(text);
    return rc;
}

int run_hosts_choose(struct run_hosts *h, const struct run_hosts *only, struct fbr_error *err)
{
    struct run_host host;
    size_t kept = 0;

    for (size_t i = 0; i < only->n; i++)
        if (!find(h, only->at[i].name, strlen(only->at[i].name)))
            return fbr_fail(err, -EINVAL,
                            "-H: %.64s is not in the hostfile; with both options, -H selects hosts "
                            "of the file",
                            only->at[i].name);
    for (size_t i = 0; i < h->n; i++) {
        const struct run_host *chosen = find(only, h->at[i].name, strlen(h->at[i].name));

        if (!chosen)
            continue;
        if (h->at[i].most && chosen->slots > h->at[i].most)
            return fbr_fail(err, -EINVAL, "-H %.64s:%lld is more than its max_slots=%lld",
                            h->at[i].name, (long long)chosen->slots, (long long)h->at[i].most);
        host = h->at[i]; /* hosts that are not chosen move to the end */
        h->at[i] = h->at[kept];
        if (chosen->slots) {
            host.slots = chosen->slots;
            host.bare = 0;
        }
        h->at[kept++] = host;
    }
    for (size_t i = kept; i < h->n; i++)
        free(h->at[i].name);
    h->n = kept;
    return 0;
}

/* ---- Which host is which ---- */

static bool is_here(const char *name, const char *self)
{
    unsigned char bytes[sizeof(struct in6_addr)];
    char mine[FBR_HOST_ADDRESS_MAX];
    size_t len = strlen(name);

    if (!strcasecmp(name, "localhost") || !strcmp(name, "::1") || !strcasecmp(name, self))
        return true;
    /* the name without its domain */
    if (len && !strncasecmp(name, self, len) && self[len] == '.')
        return true;
    if (inet_pton(AF_INET, name, bytes) == 1)
        return bytes[0] == 127 || fbr_host_address_find(name, mine) == 0;
    return inet_pton(AF_INET6, name, bytes) == 1 && fbr_host_address_find(name, mine) == 0;
}

bool run_hosts_here(const struct run_hosts *h)
{
    char self[256] = "";
    size_t i = 0;

    gethostname(self, sizeof(self) - 1);
    while (i < h->n && is_here(h->at[i].name, self))
        i++;
    return i == h->n;
}

/* ---- Ranks ---- */

int64_t run_hosts_slots(const struct run_hosts *h)
{
    int64_t all = 0;

    for (size_t i = 0; i < h->n; i++)
        all += slots_of(&h->at[i]);
    return all;
}

int64_t run_hosts_most(const struct run_hosts *h)
{
    int64_t all = 0;

    for (size_t i = 0; i < h->n; i++) {
        if (!h->at[i].most)
            return 0;
        all += h->at[i].most;
    }
    return all;
}

/* Whether no line has slots. */
static bool is_silent(const struct run_hosts *h)
{
    for (size_t i = 0; i < h->n; i++)
        if (h->at[i].slots || h->at[i].bare != 1)
            return false;
    return h->of_file;
}

/* How many more ranks the host may have within its slots, or beyond them. */
static int64_t room_of(const struct run_hosts *h, size_t i, const struct run_hosts_wish *wish,
                       bool beyond)
{
    const struct run_host *host = &h->at[i];
    int64_t slots = wish->per_node ? wish->per_node : slots_of(host);
    int64_t most = wish->per_node || !host->most ? INT64_MAX : host->most;

    return (beyond ? most : slots) - h->ranks[i];
}

/* Adds ranks evenly, where the first hosts get one more, or fills one host after the other. Returns
 * the number of ranks for which there is no room. */
static int spread(struct run_hosts *h, int left, const struct run_hosts_wish *wish, bool beyond,
                  bool even)
{
    int open = 1, share;

    while (left > 0 && open > 0) {
        open = 0;
        for (size_t i = 0; i < h->n; i++)
            open += room_of(h, i, wish, beyond) > 0;
        share = !even ? left : open && left > open ? left / open : 1;
        for (size_t i = 0; i < h->n && left > 0; i++) {
            int64_t room = room_of(h, i, wish, beyond);
            int more = room < share ? (int)room : share;

            if (room <= 0)
                continue;
            more = more < left ? more : left;
            h->ranks[i] += more;
            left -= more;
        }
    }
    return left;
}

static int too_many(const struct run_hosts *h, const struct run_hosts_wish *wish, int64_t slots,
                    struct fbr_error *err)
{
    char example[128];

    if (wish->per_node)
        return fbr_fail(err, -EINVAL,
                        "%d ranks do not fit on %zu host%s with %d each; omit one of the numbers, "
                        "or add --oversubscribe",
                        wish->size, h->n, h->n == 1 ? "" : "s", wish->per_node);
    snprintf(example, sizeof(example), "%s%.64s%s%zu", h->of_file ? "slots=" : "-H ",
             h->of_file ? "" : h->at[0].name, h->of_file ? "" : ":",
             ((size_t)wish->size + h->n - 1) / h->n);
    return fbr_fail(err, -EINVAL,
                    "%d ranks are more than the %lld slot%s of %zu host%s: add --oversubscribe, or "
                    "set the slots of each host, such as %s",
                    wish->size, (long long)slots, slots == 1 ? "" : "s", h->n, h->n == 1 ? "" : "s",
                    example);
}

static int give(struct run_hosts *h, const struct run_hosts_wish *wish, int size,
                struct fbr_error *err)
{
    bool silent = is_silent(h) && !wish->per_node;
    int left = size;

    for (size_t i = 0; i < h->n; i++)
        h->names[i] = h->at[i].name;
    if (!silent) {
        left = spread(h, size, wish, false, wish->even);
        if (left && !wish->oversubscribe)
            return too_many(h, wish, size - left, err);
    }
    if (spread(h, left, wish, true, true) > 0)
        return fbr_fail(err, -EINVAL, "%d ranks are more than the max_slots of all %zu hosts",
                        wish->size, h->n);
    return 0;
}

void run_hosts_cut(struct run_hosts *h, size_t n)
{
    while (h->n > n)
        free(h->at[--h->n].name);
}

int run_hosts_fit(struct run_hosts *h, const struct run_hosts_wish *wish, struct fbr_error *err)
{
    int64_t size;
    int rc;

    if (wish->nodes > 0 && (size_t)wish->nodes > h->n)
        return fbr_fail(err, -EINVAL, "--nodes %d: only %zu host%s named", wish->nodes, h->n,
                        h->n == 1 ? " is" : "s are");
    if (wish->nodes > 0)
        run_hosts_cut(h, (size_t)wish->nodes);
    size = wish->size       ? wish->size
           : wish->per_node ? (int64_t)wish->per_node * (int64_t)h->n
                            : run_hosts_slots(h);
    if (size > FBR_PLAN_RANKS)
        return fbr_fail(err, -EINVAL, "the hosts have %lld slots, which are more than %u ranks",
                        (long long)size, FBR_PLAN_RANKS);
    h->names = calloc(h->n + 1, sizeof(*h->names));
    h->ranks = calloc(h->n + 1, sizeof(*h->ranks));
    if (!h->names || !h->ranks)
        return fbr_fail(err, -ENOMEM, "out of memory");
    rc = give(h, wish, (int)size, err);
    if (rc < 0)
        return rc;
    while (h->n > 1 && h->ranks[h->n - 1] == 0)
        run_hosts_cut(h, h->n - 1);
    return (int)size;
}

/* ---- All hosts ---- */

char *run_hosts_setting(const struct run_hosts *h)
{
    struct fbr_buf b = {0};

    for (size_t i = 0; i < h->n; i++) {
        const char *name = h->at[i].name;
        bool address = strchr(name, ':');

        fbr_putf(&b, address ? "%s[%s]" : "%s%s", i ? " " : "", name);
    }
    return fbr_buf_text(&b);
}

void run_hosts_fini(struct run_hosts *h)
{
    run_hosts_cut(h, 0);
    free(h->at);
    free(h->names);
    free(h->ranks);
    *h = (struct run_hosts){0};
}

/* ---- Allocations ---- */

#define SPACES " \t\r"
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

/* Returns the number that a word is; 0: it is not a number, or NULL. */
static unsigned long number(const char *word)
{
    return word && !word[strspn(word, "0123456789")] ? strtoul(word, NULL, 10) : 0;
}

/* Parses NODES CORES HOSTLIST: if the split is not even, the first nodes have one more. */
static int take_group(struct run_hosts *h, const char *where, char *line, struct fbr_error *err)
{
    char *rest = NULL;
    unsigned long nodes = number(strtok_r(line, SPACES, &rest));
    unsigned long cores = number(strtok_r(NULL, SPACES, &rest));
    const char *list = strtok_r(NULL, SPACES, &rest);
    struct fbr_args names = {0};
    int rc = nodes ? fbr_slurm_hosts(list ? list : "", HOSTS_MAX, &names) : 0;

    if (rc < 0 || (nodes && (names.n != nodes || cores < nodes)))
        rc =
            fbr_fail(err, rc < 0 ? rc : -EINVAL, "%s: the line is not NODES CORES HOSTLIST", where);
    for (size_t i = 0; rc == 0 && i < names.n; i++)
        rc = add_named(h, where, names.at[i], cores / nodes + (i < cores % nodes), err);
    fbr_args_fini(&names);
    return rc;
}

struct listed {
    struct run_hosts *hosts;
    enum run_manager kind;
};

static int take_listed(void *user, const char *where, char *line, struct fbr_error *err)
{
    struct listed *l = user;
    char *rest = NULL;
    int rc = 0;

    if (l->kind == RUN_FLUX)
        return take_group(l->hosts, where, line, err);
    for (const char *name = strtok_r(line, SPACES, &rest); name && rc == 0;
         name = l->kind == RUN_SGE ? NULL : strtok_r(NULL, SPACES, &rest)) /* HOST RANKS */
        rc = add_named(l->hosts, where, name, number(strtok_r(NULL, SPACES, &rest)), err);
    return rc;
}

int run_allocation_parse(struct run_hosts *h, enum run_manager kind, const char *origin,
                         const char *text, size_t len, struct fbr_error *err)
{
    struct listed l = {h, kind};
    int rc;

    if (kind == RUN_PBS || kind == RUN_LSF_FILE)
        return run_hosts_parse(h, origin, text, len, err);
    rc = text_file_lines(origin, text, len, take_listed, &l, err);
    return rc == 0 && !h->n ? fbr_fail(err, -EINVAL, "%.200s: the list has no host", origin) : rc;
}

/* ---- Finding the allocation ---- */

/* Reads the hosts of a Flux allocation; none if Flux does not answer. */
static int ask_flux(struct run_hosts *h, struct fbr_error *err)
{
    struct fbr_error why = {0, ""};
    struct fbr_args w = {0};
    struct fbr_buf out = {0}, said = {0};
    int32_t code = 0;
    int rc;

    rc = fbr_args_split(&w,
                        "flux resource list --states=free,allocated --no-header "
                        "\"--format={nnodes} {ncores} {nodelist}\"",
                        err);
    if (rc < 0)
        goto done;
    if (fbr_tool_wait(&w, environ, ASK_MS, &out, &said, &code, &why) < 0 || code)
        fbr_warn("FLUX_URI is set, but flux resource list shows no hosts: %.200s",
                 why.text[0] ? why.text : (const char *)said.data);
    else
        rc = run_allocation_parse(h, RUN_FLUX, "flux resource list", (const char *)out.data,
                                  strlen((const char *)out.data), err);
done:
    fbr_buf_fini(&said);
    fbr_buf_fini(&out);
    fbr_args_fini(&w);
    return rc;
}

static int read_hosts(struct run_hosts *h, enum run_manager kind, const char *value,
                      struct fbr_error *err)
{
    const char *name = managers[kind].variable;
    char *text = NULL;
    size_t len;
    int rc;

    if (kind == RUN_FLUX)
        return ask_flux(h, err);
    if (!managers[kind].is_file)
        return run_allocation_parse(h, kind, name, value, strlen(value), err);
    if ((rc = text_file_read(value, &text, &len, err)) < 0 ||
        (rc = run_allocation_parse(h, kind, value, text, len, err)) < 0)
        fbr_wrap(err, "%s (use -H HOST, or unset %s, to start without it)", name, name);
    free(text);
    return rc;
}

int run_allocation_find(struct run_allocation *a, struct fbr_error *err)
{
    const char *copies = getenv("FLUX_JOB_SIZE"), *start, *value;
    char path[PATH_MAX], word[32];
    int kind = 0, rc;

    *a = (struct run_allocation){.start = NULL};
    while (kind < RUN_MANAGERS && (!(value = getenv(managers[kind].variable)) || !value[0]))
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

int run_allocation_room(const struct run_allocation *a, struct fbr_capacity *room,
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
        room->slots[i] = (unsigned)slots_of(&a->hosts.at[i]);
    }
    room->hosts = (unsigned)n;
    room->copies = a->copies;
    return 0;
}
