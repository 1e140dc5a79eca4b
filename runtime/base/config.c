/* config.c - typed configuration: the table of keys, and the sources of their values.
 *
 * Sources are read from the weakest to the strongest, and each overwrites the values of those
 * before. So all values enter through one function that checks them (entry_put), and nothing is
 * merged.
 *
 * A value does not change once a reader can see it. A new value takes its place, and the old one
 * stays until the configuration is freed, so that a string stays as it was when a caller read it. A
 * value that is set again is reused, so a program that alternates between two values does not use
 * more memory.
 *
 * inih (https://github.com/benhoyt/inih) splits the lines. It gets them from our own reader instead
 * of a file, for two reasons: its handler does not get the line number (INI_HANDLER_LINENO is off
 * in distributions), and its fixed line buffer (INI_MAX_LINE, 200) would split a long line and read
 * the rest as a line of its own.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ini.h>

#include "runtime/base/fds.h"
#include "runtime/base/log.h"

#define MAX_FILE ((size_t)FBR_MIB)
#define MAX_NAME 64  /* longest key */
#define MAX_KEYS 192 /* Fiber's own and those of all backends */

static const struct fbr_config_key own_keys[] = {
    {"backend", "FIBER_BACKEND", FBR_CONFIG_ENUM, "auto", 0, 0, fbr_backend_words,
     "what starts jobs; auto: in a pod kubernetes, in a Slurm allocation slurm, else local"},
    {"transport", "FIBER_TRANSPORT", FBR_CONFIG_ENUM, "auto", 0, 0, "auto unix tcp",
     "how jobs reach their parent; auto: as the backend needs it"},
    {"log_level", "FIBER_LOG_LEVEL", FBR_CONFIG_ENUM, "warn", 0, 0, "error warn info debug trace",
     "which lines go to standard error"},
    {"heartbeat", "FIBER_HEARTBEAT", FBR_CONFIG_MS, "5s", 50, FBR_HOUR_MS, NULL,
     "time between two heartbeats of a process"},
    {"heartbeat_misses", "FIBER_HEARTBEAT_MISSES", FBR_CONFIG_INT, "3", 1, 1000, NULL,
     "missing heartbeats after which a process counts as lost"},
    {"start_timeout", "FIBER_START_TIMEOUT", FBR_CONFIG_MS, "60s", 100, 7 * 24 * FBR_HOUR_MS, NULL,
     "time for a job to join, counted from when its backend has a place for it"},
    {"start_patience", "FIBER_START_PATIENCE", FBR_CONFIG_MS, "30s", 0, 7 * 24 * FBR_HOUR_MS, NULL,
     "how long a pool without workers tries to start some, at least four times, before its maps "
     "fail; the next map tries again"},
    {"gang_timeout", "FIBER_GANG_TIMEOUT", FBR_CONFIG_MS, "15m", 0, 7 * 24 * FBR_HOUR_MS, NULL,
     "how long the joined nodes of a ring wait for nodes that have no place yet; then all of them "
     "are released. 0: for ever"},
    {"join_timeout", "FIBER_JOIN_TIMEOUT", FBR_CONFIG_MS, "5s", 100, FBR_HOUR_MS, NULL,
     "time for a new connection to authenticate"},
    {"grace", "FIBER_GRACE", FBR_CONFIG_MS, "5s", 0, FBR_HOUR_MS, NULL,
     "time between asking a process to end and killing it"},
    {"linger", "FIBER_LINGER", FBR_CONFIG_MS, "5s", 100, FBR_HOUR_MS, NULL,
     "time without progress after which an end no longer waits for a queue's owner to take "
     "messages, or for killed processes to be gone"},
    {"retries", "FIBER_RETRIES", FBR_CONFIG_INT, "2", -1, 1000000, NULL,
     "how often a task is started again after its worker died; -1: as often as it takes"},
    {"tag_output", "FIBER_TAG_OUTPUT", FBR_CONFIG_BOOL, "false", 0, 0, NULL,
     "put the name of the process in front of each line that it writes"},
    {"run_dir", "FIBER_RUN_DIR", FBR_CONFIG_STR, "/tmp", 1, FBR_CONFIG_TEXT_MAX, NULL,
     "folder for sockets; default: $XDG_RUNTIME_DIR if it is writable and its name short, "
     "else /tmp, or /dev/shm where /tmp is read-only"},
    {"log_dir", "FIBER_LOG_DIR", FBR_CONFIG_STR, "", 0, FBR_CONFIG_TEXT_MAX, NULL,
     "folder for the output of ranks that `fiber logs` shows; empty: $XDG_STATE_HOME/fiber/logs, "
     "else ~/.local/state/fiber/logs"},
    {"log_keep", "FIBER_LOG_KEEP", FBR_CONFIG_SIZE, "16Mi", 0, 1024 * FBR_GIB, NULL,
     "how much output of each rank is kept: its last bytes; 0: nothing"},
    {"log_total", "FIBER_LOG_TOTAL", FBR_CONFIG_SIZE, "1Gi", FBR_MIB, 1024 * 1024 * FBR_GIB, NULL,
     "how much output of all runs is kept; the oldest is removed first, and any after 14 days or "
     "200 runs"},
    {"bind", "FIBER_BIND", FBR_CONFIG_STR, "", 0, FBR_CONFIG_TEXT_MAX, NULL,
     "address or interface that jobs dial; empty: the one that the backend needs"},
    {"image", "FIBER_IMAGE", FBR_CONFIG_STR, "", 0, FBR_CONFIG_TEXT_MAX, NULL,
     "image of jobs that set none; empty: the image that this process runs in, else one made from "
     "this program"},
    {"image_add", "FIBER_IMAGE_ADD", FBR_CONFIG_STR, "", 0, FBR_CONFIG_TEXT_MAX, NULL,
     "more programs and folders for an image made from this program"},
    {"template", "FIBER_TEMPLATE", FBR_CONFIG_BOOL, "true", 0, 0, NULL,
     "on this host, start copies of a program's template (Python): in pools of four workers or "
     "more, and for processes from the fourth on"},
    {"max_message", "FIBER_MAX_MESSAGE", FBR_CONFIG_SIZE, "4Gi", 64 * FBR_KIB, 1024 * FBR_GIB, NULL,
     "largest message that a peer may announce"},
    {"hold_max", "FIBER_HOLD_MAX", FBR_CONFIG_SIZE, "0", 0, 1024 * 1024 * FBR_GIB, NULL,
     "how much memory a process holds for others: messages of queues, values of stores, calls, "
     "incomplete messages, unread answers; more is refused. 0: half of the memory that it may use"},
};

/* All keys: Fiber's own, then those of the backends in the order of the registry. */
static struct fbr_config_key all_keys[MAX_KEYS];
static size_t all_count;

static void add_keys(const struct fbr_config_key *keys, size_t n)
{
    if (n > MAX_KEYS - all_count) {
        fbr_log_error("configuration: more than %d keys", MAX_KEYS);
        abort();
    }
    if (n)
        memcpy(all_keys + all_count, keys, n * sizeof(*keys));
    all_count += n;
}

static void collect_keys(void)
{
    const struct fbr_config_key *keys;
    size_t n;

    add_keys(own_keys, sizeof(own_keys) / sizeof(own_keys[0]));
    for (size_t i = 0; fbr_backend_keys(i, &keys, &n); i++)
        add_keys(keys, n);
}

/* FIBER_* variables that are not configuration: a parent passes them to its child, a ring to its
 * ranks, and `fiber exec` to its command. */
static const char internal_variables[] =
    "FIBER_TICKET FIBER_WORK FIBER_RANK_RESTARTS FIBER_MOCK FIBER_RANK FIBER_SIZE FIBER_LOCAL_RANK "
    "FIBER_LOCAL_SIZE FIBER_NODE FIBER_NODES FIBER_JOB FIBER_EPOCH FIBER_PMI FIBER_PID";

struct entry {
    struct entry *older; /* the earlier values of the same key */
    char *text, *origin;
    int64_t number; /* bool, int, ms, bytes, index of the enum's word */
    bool given;     /* not the default */
};

struct fbr_config {
    /* The keys of the library that made this configuration; a module has no keys of backends. */
    const struct fbr_config_key *keys;
    size_t count;
    /* this process has loaded its configuration before, and printed the warnings then */
    bool again;
    pthread_mutex_t lock; /* guards setters and newest */
    struct entry *newest[MAX_KEYS];
    struct entry *_Atomic entries[MAX_KEYS]; /* the current values */
};

/* ---- values ---- */

/* Returns the known key (or variable) that is nearest to what the user typed, or NULL if none is
 * near. */
static const char *key_suggest(const struct fbr_config *c, const char *typed, bool env)
{
    const char *found = NULL;
    size_t len, best;

    if (!env && !strncmp(typed, "FIBER_", 6)) /* a variable in place of its key */
        typed += 6;
    len = strlen(typed);
    best = (len < 9 ? 2 : len / 4) + 1;
    for (size_t i = 0; i < c->count; i++) {
        const char *name = env ? c->keys[i].env : c->keys[i].name;
        size_t d = fbr_word_distance(typed, len, name, strlen(name));

        if (d < best) {
            best = d;
            found = name;
        }
    }
    return found;
}

static const struct fbr_config_key *key_find(const struct fbr_config *c, const char *name, bool env)
{
    for (size_t i = 0; i < c->count; i++)
        if (!strcmp(env ? c->keys[i].env : c->keys[i].name, name))
            return &c->keys[i];
    return NULL;
}

static void entry_free(struct entry *e)
{
    if (!e)
        return;
    free(e->text);
    free(e->origin);
    free(e);
}

static struct entry *entry_new(const char *value, const char *origin, int64_t number, bool given)
{
    struct entry *e = calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    e->text = strdup(value);
    e->origin = strdup(origin);
    e->number = number;
    e->given = given;
    if (e->text && e->origin)
        return e;
    entry_free(e);
    return NULL;
}

/* Accepts the level names of Python's logging and of Fiber 0.2. */
static const char *level_word(const char *value)
{
    static const char *const same[][2] = {
        {"error", "error"}, {"warn", "warn"},    {"info", "info"},      {"debug", "debug"},
        {"trace", "trace"}, {"warning", "warn"}, {"critical", "error"},
    };

    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        if (!strcasecmp(value, same[i][0]))
            return same[i][1];
    return value;
}

static int entry_put(struct fbr_config *c, const struct fbr_config_key *k, const char *value,
                     const char *origin, bool given, struct fbr_error *err)
{
    struct entry **newest = &c->newest[k - c->keys], *e;
    int64_t number = 0;
    int rc;

    if (!strcmp(k->name, "log_level"))
        value = level_word(value);
    rc = fbr_value_parse(k, value, &number, origin, err);
    if (rc)
        return rc;
    pthread_mutex_lock(&c->lock);
    for (e = *newest; e; e = e->older)
        if (e->given == given && !strcmp(e->text, value) && !strcmp(e->origin, origin))
            break;
    if (!e && (e = entry_new(value, origin, number, given))) {
        e->older = *newest;
        *newest = e;
    }
    if (e)
        atomic_store(&c->entries[k - c->keys], e);
    pthread_mutex_unlock(&c->lock);
    return e ? 0 : fbr_fail(err, -ENOMEM, "%s: out of memory", origin);
}

int fbr_config_set(struct fbr_config *c, const char *key, const char *value, const char *origin,
                   struct fbr_error *err)
{
    const struct fbr_config_key *k = key_find(c, key, false);
    const char *near;

    if (k)
        return entry_put(c, k, value, origin, true, err);
    near = key_suggest(c, key, false);
    return fbr_fail(err, -EINVAL, "%s: unknown key \"%.64s\"%s%s%s", origin, key,
                    near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

const char *fbr_config_tmp(void)
{
    return access("/tmp", W_OK) < 0 && errno == EROFS ? "/dev/shm" : "/tmp";
}

struct fbr_config *fbr_config_new(void)
{
    struct fbr_config *c = calloc(1, sizeof(*c));
    const char *dir = getenv("XDG_RUNTIME_DIR");
    int rc = 0;

    if (!c)
        return NULL;
    c->keys = fbr_config_keys(&c->count);
    pthread_mutex_init(&c->lock, NULL);
    for (size_t i = 0; i < c->count && !rc; i++)
        rc = entry_put(c, &c->keys[i], c->keys[i].fallback, "default", false, NULL);
    if (!dir || dir[0] != '/' || access(dir, W_OK | X_OK) || strlen(dir) > FBR_RUN_DIR_MAX)
        dir = fbr_config_tmp();
    if (!rc)
        rc = entry_put(c, key_find(c, "run_dir", false), dir, "default", false, NULL);
    if (!rc)
        return c;
    fbr_config_free(c);
    return NULL;
}

void fbr_config_free(struct fbr_config *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->count; i++) {
        while (c->newest[i]) {
            struct entry *e = c->newest[i];

            c->newest[i] = e->older;
            entry_free(e);
        }
    }
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* ---- files ---- */

struct source {
    const char *at, *end;
    int line; /* number of lines that inih has read */
    const char *name;
    int (*pair)(void *user, const char *key, const char *value, const char *where,
                struct fbr_error *err);
    void *user;
    struct fbr_error *err;
    int rc;
};

/* Replaces fgets() in inih: reads the next line without its leading blanks, and without a comment
 * that begins with '#' after a blank; inih itself knows those that begin with ';'. An invalid line
 * ends the text with an error. */
static char *source_line(char *out, int size, void *stream)
{
    struct source *s = stream;
    const char *newline, *start = s->at;
    size_t len;

    if (s->rc || s->at == s->end)
        return NULL;
    newline = memchr(start, '\n', (size_t)(s->end - start));
    s->at = newline ? newline + 1 : s->end;
    s->line++;
    while (start < s->at && (*start == ' ' || *start == '\t'))
        start++;
    len = (size_t)(s->at - start);
    if (memchr(start, '\0', len) || len > (size_t)size - 3) {
        s->rc = fbr_fail(s->err, -EINVAL, "%s:%d: the line is %s", s->name, s->line,
                         len > (size_t)size - 3 ? "too long" : "not text");
        return NULL;
    }
    memcpy(out, start, len);
    out[len] = '\0';
    for (size_t i = 1; i < len; i++)
        if (out[i] == '#' && (out[i - 1] == ' ' || out[i - 1] == '\t'))
            out[i] = '\0';
    return out;
}

static int source_pair(void *user, const char *section, const char *name, const char *value)
{
    struct source *s = user;
    char key[128], origin[PATH_MAX + 16];

    if (s->rc)
        return 0;
    snprintf(key, sizeof(key), "%s%s%s", section, *section ? "." : "", name);
    snprintf(origin, sizeof(origin), "%s:%d", s->name, s->line);
    s->rc = s->pair(s->user, key, value, origin, s->err);
    return s->rc == 0;
}

static int source_read(struct source *s, const void *text, size_t len)
{
    int first;

    s->at = text;
    s->end = (const char *)text + len;
    first = ini_parse_stream(source_line, s, source_pair, s);
    if (first < 0)
        return fbr_fail(s->err, -ENOMEM, "%s: out of memory", s->name);
    if (first > 0 && (!s->rc || first < s->line)) /* a line that inih could not split comes first */
        return fbr_fail(s->err, -EINVAL, "%s:%d: neither \"key = value\" nor \"[section]\"",
                        s->name, first);
    return s->rc;
}

/* Keys of Fiber 0.2, whose files are still read. The Python package itself reads those that are
 * marked `python`; the others have no effect, and their lines cause a warning. */
static const struct {
    const char *key;
    bool python;
} former_keys[] = {
    {"cpu_per_job", true},   {"mem_per_job", true},   {"default_backend", true},
    {"default_image", true}, {"debug", true},         {"use_push_queue", false},
    {"ipc_active", false},   {"log_file", false},     {"ipc_admin_master_port", false},
    {"use_bash", false},     {"merge_output", false}, {"ipc_admin_worker_port", false},
};

static bool pass_over(const struct fbr_config *c, const char *key, const char *where)
{
    for (size_t i = 0; i < sizeof(former_keys) / sizeof(former_keys[0]); i++) {
        if (strcmp(former_keys[i].key, key))
            continue;
        if (!former_keys[i].python && !c->again)
            fbr_warn("%s: %s is a setting of Fiber 0.2 that has no effect now", where, key);
        return true;
    }
    return false;
}

static int set_pair(void *user, const char *key, const char *value, const char *where,
                    struct fbr_error *err)
{
    static const char section[] = "default.";

    if (strncmp(key, section, sizeof(section) - 1) == 0)
        key += sizeof(section) - 1;
    if (pass_over(user, key, where))
        return 0;
    return fbr_config_set(user, key, value, where, err);
}

int fbr_config_parse(struct fbr_config *c, const char *origin, const void *text, size_t len,
                     struct fbr_error *err)
{
    struct source s = {.name = origin, .pair = set_pair, .user = c, .err = err};

    return source_read(&s, text, len);
}

/* Returns the reason why an open file must not be read, or NULL. A .fiberconfig of another user in
 * a shared folder such as /tmp could choose the programs that run. */
static const char *file_refuse(int fd, bool trusted)
{
    struct stat st;

    if (fstat(fd, &st))
        return fbr_strerror(errno);
    if (!S_ISREG(st.st_mode))
        return "it is not a regular file";
    if (trusted)
        return NULL;
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return "it belongs to another user";
    return st.st_mode & S_IWOTH ? "everyone may write it" : NULL;
}

/* Reads a file. Stores in *why why it must not, or cannot, be read, and returns 0 then. NULL: it
 * was read. */
static int source_file(struct source *s, bool trusted, const char **why)
{
    int fd = open(s->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), rc;
    char *text;
    size_t len;

    *why = fd < 0 ? fbr_strerror(errno) : file_refuse(fd, trusted);
    if (*why) {
        fbr_fds_close(fd);
        return 0;
    }
    rc = fbr_fds_read_all(fd, MAX_FILE, &text, &len);
    if (rc == -EFBIG)
        return fbr_fail(s->err, -EINVAL, "%s: the file has more than %zu bytes", s->name, MAX_FILE);
    if (rc == -ENOMEM)
        return fbr_fail(s->err, rc, "%s: out of memory", s->name);
    if (rc < 0) {
        *why = fbr_strerror(rc);
        return 0;
    }
    rc = source_read(s, text, len);
    free(text);
    return rc;
}

static int file_read(struct fbr_config *c, const char *path, bool trusted, struct fbr_error *err)
{
    struct source s = {.name = path, .pair = set_pair, .user = c, .err = err};
    const char *why;
    int rc;

    if (access(path, F_OK) < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    rc = source_file(&s, trusted, &why);
    if (why && !c->again)
        fbr_warn("%s is ignored: %s", path, why);
    return rc;
}

int fbr_config_user_file(char *path, size_t size)
{
    const char *dir = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int n = 0;

    if (dir && dir[0] == '/')
        n = snprintf(path, size, "%s/fiber/fiber.conf", dir);
    else if (home && home[0] == '/')
        n = snprintf(path, size, "%s/.config/fiber/fiber.conf", home);
    return n > 0 && (size_t)n < size ? 0 : -ENOENT;
}

static int user_file_read(struct fbr_config *c, struct fbr_error *err)
{
    char path[PATH_MAX];

    return fbr_config_user_file(path, sizeof(path)) == 0 ? file_read(c, path, true, err) : 0;
}

int fbr_config_scan(const char *path,
                    int (*pair)(void *user, const char *key, const char *value, const char *where,
                                struct fbr_error *err),
                    void *user, struct fbr_error *err)
{
    struct source s = {.name = path, .pair = pair, .user = user, .err = err};
    const char *why;
    int rc = source_file(&s, false, &why);

    return why ? fbr_fail(err, -EINVAL, "%s cannot be used: %s", path, why) : rc;
}

/* ---- environment ---- */

static bool is_former(const char *key)
{
    for (size_t i = 0; i < sizeof(former_keys) / sizeof(former_keys[0]); i++)
        if (!strcasecmp(former_keys[i].key, key))
            return true;
    return false;
}

static int variable_take(struct fbr_config *c, const char *name, const char *value,
                         struct fbr_error *err)
{
    const struct fbr_config_key *k = key_find(c, name, true);
    const char *near;

    if (fbr_word_index(internal_variables, name) >= 0 || fbr_backend_variable(name))
        return 0;
    if (k)
        return *value ? entry_put(c, k, value, name, true, err) : 0;
    near = is_former(name + 6) ? NULL : key_suggest(c, name, true);
    if (!near) { /* of Fiber 0.2, or of another program with the same prefix */
        fbr_info("the environment has a variable %.64s, which is not a setting of Fiber", name);
        return 0;
    }
    return fbr_fail(err, -EINVAL, "the environment has an unknown variable %.64s; did you mean %s?",
                    name, near);
}

static int environment_read(struct fbr_config *c, struct fbr_error *err)
{
    for (char **e = environ; e && *e; e++) {
        const char *equals = strchr(*e, '=');
        char name[128];
        int rc;

        if (strncmp(*e, "FIBER_", 6) || !equals)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)(equals - *e), *e);
        rc = variable_take(c, name, equals + 1, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int load(struct fbr_config **config, bool again, struct fbr_error *err)
{
    struct fbr_config *c = fbr_config_new();
    int rc;

    *config = NULL;
    if (!c)
        return fbr_fail(err, -ENOMEM, "configuration: out of memory");
    c->again = again;
    rc = file_read(c, "/etc/fiber/fiber.conf", true, err);
    rc = rc ? rc : user_file_read(c, err);
    rc = rc ? rc : file_read(c, "./.fiberconfig", false, err);
    rc = rc ? rc : environment_read(c, err);
    if (rc) {
        fbr_config_free(c);
        return rc;
    }
    *config = c;
    return 0;
}

int fbr_config_load(struct fbr_config **config, struct fbr_error *err)
{
    return load(config, false, err);
}

int fbr_config_load_again(struct fbr_config **config, struct fbr_error *err)
{
    return load(config, true, err);
}

/* ---- reading values ---- */

static const struct entry *entry_get(const struct fbr_config *c, const char *key, unsigned types)
{
    const struct fbr_config_key *k = key_find(c, key, false);

    if (!k || !(types & (1u << k->type))) {
        fbr_log_error("configuration: \"%s\" is not a key of the type that was asked for", key);
        abort();
    }
    return atomic_load(&c->entries[k - c->keys]);
}

bool fbr_config_bool(const struct fbr_config *c, const char *key)
{
    return entry_get(c, key, 1u << FBR_CONFIG_BOOL)->number != 0;
}

int fbr_config_int(const struct fbr_config *c, const char *key)
{
    return (int)entry_get(c, key, 1u << FBR_CONFIG_INT | 1u << FBR_CONFIG_ENUM)->number;
}

int fbr_config_ms(const struct fbr_config *c, const char *key)
{
    return (int)entry_get(c, key, 1u << FBR_CONFIG_MS)->number;
}

uint64_t fbr_config_size(const struct fbr_config *c, const char *key)
{
    return (uint64_t)entry_get(c, key, 1u << FBR_CONFIG_SIZE)->number;
}

const char *fbr_config_str(const struct fbr_config *c, const char *key)
{
    return entry_get(c, key, ~0u)->text;
}

const char *fbr_config_text(const struct fbr_config *c, const char *key)
{
    return key_find(c, key, false) ? fbr_config_str(c, key) : NULL;
}

const char *fbr_config_origin(const struct fbr_config *c, const char *key)
{
    return entry_get(c, key, ~0u)->origin;
}

const struct fbr_config_key *fbr_config_keys(size_t *n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, collect_keys);
    *n = all_count;
    return all_keys;
}

/* ---- from parent to child ---- */

void fbr_config_put(const struct fbr_config *c, struct fbr_buf *b)
{
    const struct entry *now[MAX_KEYS]; /* other threads may set values meanwhile */
    uint16_t count = 0;

    for (size_t i = 0; i < c->count; i++) {
        now[i] = atomic_load(&c->entries[i]);
        count += now[i]->given;
    }
    fbr_put_u16(b, count);
    for (size_t i = 0; i < c->count; i++)
        if (now[i]->given) {
            fbr_put_str(b, c->keys[i].name);
            fbr_put_str(b, now[i]->text);
        }
}

int fbr_config_get(struct fbr_config *c, struct fbr_cur *cur, struct fbr_error *err)
{
    int rc = 0;

    for (uint16_t left = fbr_get_u16(cur); left && !rc && fbr_cur_ok(cur); left--) {
        char key[MAX_NAME], value[FBR_CONFIG_LIST_MAX + 1];

        fbr_get_str(cur, key, sizeof(key));
        fbr_get_str(cur, value, sizeof(value));
        if (fbr_cur_ok(cur))
            rc = fbr_config_set(c, key, value, "parent", err);
    }
    return fbr_cur_ok(cur) ? rc
                           : fbr_fail(err, -EBADMSG, "the parent's configuration is malformed");
}
