/* pmi1_engine.c - a server of PMI-1 and PMI-2: the common part, and PMI-1.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_bridge/pmi1_engine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "mpi_bridge/pmi1_priv.h"

#define REPLY_MAX 2048
#define ENTRY_COST 128 /* bytes of an entry without its text, roughly */

/* ---- the store ---- */

const char *fbr_pmi1_find(struct fbr_pmi1_entry *table, const char *key)
{
    struct fbr_pmi1_entry *found;

    HASH_FIND_STR(table, key, found);
    return found ? found->value : NULL;
}

int fbr_pmi1_table_set(struct fbr_pmi1 *e, struct fbr_pmi1_entry **table, const char *key,
                       const char *value)
{
    size_t key_len = strlen(key), value_len = strlen(value), more;
    struct fbr_pmi1_entry *entry;
    char *copy;

    HASH_FIND_STR(*table, key, entry);
    more = value_len + (entry ? 0 : key_len + ENTRY_COST);
    if (more > FBR_PMI1_STORE_MAX - e->store_size)
        return -ENOSPC;
    copy = strdup(value);
    if (!copy)
        return -ENOMEM;
    if (!entry) {
        entry = calloc(1, sizeof(*entry) + key_len + 1);
        if (entry) {
            memcpy(entry->key, key, key_len + 1);
            HASH_ADD_KEYPTR(hh, *table, entry->key, key_len, entry);
        }
        if (!entry || !entry->hh.tbl) {
            free(entry);
            free(copy);
            return -ENOMEM;
        }
    } else {
        e->store_size -= strlen(entry->value);
        free(entry->value);
    }
    entry->value = copy;
    e->store_size += more;
    return 0;
}

static void table_free(struct fbr_pmi1_entry **table)
{
    struct fbr_pmi1_entry *entry, *next;

    HASH_ITER(hh, *table, entry, next) {
        HASH_DEL(*table, entry);
        free(entry->value);
        free(entry);
    }
}

int fbr_pmi1_set(struct fbr_pmi1 *e, const char *key, const char *value)
{
    return fbr_pmi1_table_set(e, &e->store, key, value);
}

/* True if s is made of printable ASCII characters; `blanks`: it may have blanks, or be empty. */
static bool is_text(const char *s, size_t max, bool blanks)
{
    size_t n = 0;

    for (; s[n]; n++)
        if ((unsigned char)s[n] < (blanks ? ' ' : '!') || (unsigned char)s[n] > '~' || n + 1 >= max)
            return false;
    return blanks || n;
}

bool fbr_pmi1_is_word(const char *text)
{
    return text && is_text(text, FBR_PMI1_VALUE_MAX, false);
}

int fbr_pmi1_preput(struct fbr_pmi1 *e, const char *lines)
{
    while (*lines) {
        size_t len = strcspn(lines, "\n"), key_len;
        char pair[FBR_PMI2_KEY_MAX + FBR_PMI2_VALUE_MAX];
        int rc;

        if (len >= sizeof(pair))
            return -EINVAL;
        memcpy(pair, lines, len);
        pair[len] = 0;
        key_len = strcspn(pair, "=");
        if (!pair[key_len])
            return -EINVAL;
        pair[key_len] = 0;
        if (!fbr_pmi2_is_key(pair) || len - key_len > FBR_PMI2_VALUE_MAX)
            return -EINVAL;
        rc = fbr_pmi1_set(e, pair, pair + key_len + 1);
        if (rc < 0)
            return rc;
        lines += len + (lines[len] == '\n');
    }
    return 0;
}

static int merge(struct fbr_pmi1 *e, const void *data, size_t len)
{
    struct fbr_cur c = fbr_cur(data, len);

    while (fbr_cur_left(&c) && fbr_cur_ok(&c)) {
        char key[FBR_PMI2_KEY_MAX], value[FBR_PMI2_VALUE_MAX];
        int rc;

        fbr_get_str(&c, key, sizeof(key));
        fbr_get_str(&c, value, sizeof(value));
        if (!fbr_cur_ok(&c))
            break;
        rc = fbr_pmi1_set(e, key, value);
        if (rc < 0)
            return rc;
    }
    return fbr_cur_ok(&c) ? 0 : -EPROTO;
}

/* ---- connections ---- */

struct fbr_pmi1_slot *fbr_pmi1_slot(struct fbr_pmi1 *e, int64_t rank)
{
    if (rank < e->config.first || rank >= (int64_t)e->config.first + e->config.count)
        return NULL;
    return &e->slots[rank - e->config.first];
}

__attribute__((format(printf, 2, 3))) static void reply(struct fbr_pmi1_conn *c, const char *fmt,
                                                        ...)
{
    char text[REPLY_MAX];
    va_list ap;
    int n;

    if (c->dead)
        return;
    va_start(ap, fmt);
    n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (n > 0 && (size_t)n < sizeof(text))
        c->e->ops->send(c->e->user, c->link, text, (size_t)n);
}

/* A rank that is gone while it waits in a barrier stays counted. If it has died, the end of its job
 * follows, or fbr_pmi1_lost(). */
static void forget(struct fbr_pmi1_conn *c)
{
    struct fbr_pmi1_slot *slot = fbr_pmi1_slot(c->e, c->rank);

    if (slot && slot->conn == c)
        slot->conn = NULL;
}

static void conn_free(struct fbr_pmi1_conn *c)
{
    DL_DELETE(c->e->conns, c);
    fbr_buf_fini(&c->in);
    fbr_pmi1_spawn_free(c->spawn);
    free(c);
}

void fbr_pmi1_hang_up(struct fbr_pmi1_conn *c, const char *why)
{
    if (c->dead)
        return;
    c->dead = true;
    forget(c);
    c->e->ops->hang_up(c->e->user, c->link, why);
}

struct fbr_pmi1_conn *fbr_pmi1_attach(struct fbr_pmi1 *e, void *link, int64_t rank)
{
    struct fbr_pmi1_conn *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    *c = (struct fbr_pmi1_conn){.e = e, .link = link, .rank = rank, .version = 1};
    DL_APPEND(e->conns, c);
    return c;
}

void fbr_pmi1_detach(struct fbr_pmi1_conn *c)
{
    forget(c);
    conn_free(c);
}

bool fbr_pmi1_speak_for(struct fbr_pmi1_conn *c)
{
    struct fbr_pmi1_slot *slot = fbr_pmi1_slot(c->e, c->rank);

    if (!slot || slot->taken) {
        fbr_pmi1_hang_up(c, !slot ? "it names a rank that is not on this node"
                                  : "its rank has another connection already");
        return false;
    }
    slot->taken = true;
    slot->conn = c;
    c->speaks = true;
    return true;
}

/* ---- the words of a line ---- */

/* Finds where the value of the key begins; NULL if the key is not there. All text after "value="
 * belongs to that value. */
static char *word_at(char *line, const char *key)
{
    size_t len = strlen(key);

    for (char *at = line; *at;) {
        at += strspn(at, " \t\r");
        if (!strncmp(at, key, len) && at[len] == '=')
            return at + len + 1;
        if (!strncmp(at, "value=", 6))
            return NULL;
        at += strcspn(at, " \t\r");
    }
    return NULL;
}

/* Stores the value of the key, at most size - 1 bytes. False: it is missing or longer. */
static bool word(char *line, const char *key, char *out, size_t size)
{
    const char *at = word_at(line, key);
    size_t len = at ? strcspn(at, " \t\r") : 0;

    if (!at || len >= size)
        return false;
    memcpy(out, at, len);
    out[len] = 0;
    return true;
}

static long number(char *line, const char *key, long otherwise)
{
    char text[24];

    return word(line, key, text, sizeof(text)) ? fbr_pmi1_number(text, otherwise) : otherwise;
}

/* ---- requests ---- */

/* A client of PMI-2 sends "fullinit" next, which names its rank. */
static void on_init(struct fbr_pmi1_conn *c, char *line)
{
    long version = number(line, "pmi_version", 0);

    if (version == 2) {
        c->version = 2;
        reply(c, "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n");
        return;
    }
    if (version < 1) {
        reply(c, "cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1\n");
        return;
    }
    reply(c, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n");
    c->e->ops->met(c->e->user, (uint32_t)c->rank, "PMI 1.1");
}

static void on_maxes(struct fbr_pmi1_conn *c, char *line)
{
    reply(c, "cmd=maxes rc=0 kvsname_max=%d keylen_max=%d vallen_max=%d\n", FBR_PMI1_NAME_MAX,
          FBR_PMI1_KEY_MAX, FBR_PMI1_VALUE_MAX);
}

static void on_appnum(struct fbr_pmi1_conn *c, char *line)
{
    reply(c, "cmd=appnum rc=0 appnum=%u\n", fbr_pmi1_slot(c->e, c->rank)->app);
}

static void on_universe(struct fbr_pmi1_conn *c, char *line)
{
    reply(c, "cmd=universe_size rc=0 size=%u\n", c->e->config.size);
}

static void on_name(struct fbr_pmi1_conn *c, char *line)
{
    reply(c, "cmd=my_kvsname rc=0 kvsname=%s\n", c->e->config.nspace);
}

int fbr_pmi1_put(struct fbr_pmi1 *e, const char *key, const char *value)
{
    int rc = fbr_pmi1_set(e, key, value);
    struct fbr_pmi1_entry *entry;

    if (rc < 0)
        return rc;
    HASH_FIND_STR(e->store, key, entry);
    entry->fresh = true;
    return 0;
}

static void on_put(struct fbr_pmi1_conn *c, char *line)
{
    char name[FBR_PMI1_NAME_MAX], key[FBR_PMI1_KEY_MAX], *value = word_at(line, "value");
    const char *wrong = NULL;

    if (!word(line, "kvsname", name, sizeof(name)) || strcmp(name, c->e->config.nspace))
        wrong = "no_such_kvsname";
    else if (!word(line, "key", key, sizeof(key)) || !is_text(key, sizeof(key), false))
        wrong = "bad_key";
    else if (!value || !is_text(value, FBR_PMI1_VALUE_MAX, true))
        wrong = "bad_value";
    else if (fbr_pmi1_put(c->e, key, value) < 0)
        wrong = "out_of_memory";
    reply(c, "cmd=put_result rc=%d msg=%s\n", wrong ? -1 : 0, wrong ? wrong : "success");
}

static void on_get(struct fbr_pmi1_conn *c, char *line)
{
    char name[FBR_PMI1_NAME_MAX], key[FBR_PMI1_KEY_MAX];
    const char *found;

    if (!word(line, "kvsname", name, sizeof(name)) || strcmp(name, c->e->config.nspace)) {
        reply(c, "cmd=get_result rc=-1 msg=no_such_kvsname value=unknown\n");
        return;
    }
    found = word(line, "key", key, sizeof(key)) ? fbr_pmi1_find(c->e->store, key) : NULL;
    if (found && is_text(found, FBR_PMI1_VALUE_MAX, true)) /* PMI-2 may have put any text */
        reply(c, "cmd=get_result rc=0 msg=success value=%s\n", found);
    else
        reply(c, "cmd=get_result rc=-1 msg=no_such_key value=unknown\n");
}

/* Not recursive: a request that is read here may end the next barrier. */
void fbr_pmi1_resume(struct fbr_pmi1 *e)
{
    struct fbr_pmi1_conn *c, *next;

    e->resume_again = true;
    if (e->resuming)
        return;
    e->resuming = true;
    while (e->resume_again) {
        e->resume_again = false;
        DL_FOREACH_SAFE(e->conns, c, next)
            if (c->in.len && !c->reading)
                fbr_pmi1_bytes(c, NULL, 0);
    }
    e->resuming = false;
}

static void done(struct fbr_pmi1_conn *c, enum fbr_pmi1_wait what, int code, const char *text);

static void barrier_out(struct fbr_pmi1 *e, int code)
{
    e->in_barrier = 0;
    for (uint32_t i = 0; i < e->config.count; i++) {
        struct fbr_pmi1_slot *slot = &e->slots[i];
        enum fbr_pmi1_wait what = slot->wait;

        if (what != FBR_PMI1_BARRIER && what != FBR_PMI1_RING)
            continue;
        slot->wait = FBR_PMI1_NOTHING;
        if (slot->conn)
            done(slot->conn, what, code, NULL);
    }
    fbr_pmi1_resume(e);
}

/* Asks the owner for a fence with the pairs that are fresh. */
static int fence(struct fbr_pmi1 *e)
{
    struct fbr_pmi1_entry *entry, *next;
    struct fbr_buf puts = {0};
    int rc;

    HASH_ITER(hh, e->store, entry, next) {
        if (!entry->fresh)
            continue;
        entry->fresh = false;
        fbr_put_str(&puts, entry->key);
        fbr_put_str(&puts, entry->value);
    }
    rc = puts.failed ? -ENOMEM : e->ops->fence(e->user, puts.data, puts.len);
    fbr_buf_fini(&puts);
    return rc;
}

void fbr_pmi1_enter(struct fbr_pmi1_conn *c, enum fbr_pmi1_wait wait)
{
    struct fbr_pmi1 *e = c->e;
    int rc;

    fbr_pmi1_slot(e, c->rank)->wait = wait;
    if (e->broken)
        barrier_out(e, -ECONNABORTED);
    if (e->broken || ++e->in_barrier < e->config.count)
        return;
    rc = e->config.alone ? 0 : fence(e);
    if (rc < 0 || e->config.alone)
        barrier_out(e, rc);
}

static void on_barrier(struct fbr_pmi1_conn *c, char *line)
{
    fbr_pmi1_enter(c, FBR_PMI1_BARRIER);
}

void fbr_pmi1_leave(struct fbr_pmi1_conn *c)
{
    struct fbr_pmi1_slot *slot = fbr_pmi1_slot(c->e, c->rank);

    if (!slot->left)
        c->e->ops->left(c->e->user, (uint32_t)c->rank);
    slot->left = true;
}

static void on_finalize(struct fbr_pmi1_conn *c, char *line)
{
    reply(c, "cmd=finalize_ack rc=0\n");
    fbr_pmi1_leave(c);
}

/* In newer MPICHs the message goes on over many lines. */
static void on_abort(struct fbr_pmi1_conn *c, char *line)
{
    const char *text = word_at(line, "error_msg");

    if (!text)
        text = word_at(line, "message");
    c->aborted = true;
    c->e->ops->abort(c->e->user, (uint32_t)c->rank, (int)number(line, "exitcode", 1),
                     text ? text : "");
}

/* MPICH reads info, newer MPICHs read rc. */
static void reply_published(struct fbr_pmi1_conn *c, enum fbr_pmi1_wait what, int code,
                            const char *port)
{
    const char *name = what == FBR_PMI1_PUBLISH  ? "publish"
                       : what == FBR_PMI1_LOOKUP ? "lookup"
                                                 : "unpublish";
    const char *why = code == -EEXIST   ? "it_is_published_already"
                      : code == -ENOENT ? "no_such_name"
                                        : "failed";

    if (code < 0)
        reply(c, "cmd=%s_result rc=-1 info=%s msg=%s\n", name, why, why);
    else if (what == FBR_PMI1_LOOKUP)
        reply(c, "cmd=lookup_result rc=0 info=ok port=%s\n", port);
    else
        reply(c, "cmd=%s_result rc=0 info=ok\n", name);
}

void fbr_pmi1_name(struct fbr_pmi1_conn *c, enum fbr_pmi1_wait what, const char *name,
                   const char *port)
{
    uint32_t rank = (uint32_t)c->rank;
    int rc = -EINVAL;

    fbr_pmi1_slot(c->e, rank)->wait = what;
    if (fbr_pmi1_is_word(name) && (what != FBR_PMI1_PUBLISH || fbr_pmi1_is_word(port)))
        rc = c->e->ops->name(c->e->user, rank, what, name, port);
    if (rc < 0)
        fbr_pmi1_answer(c->e, rank, rc, NULL);
}

/* publish_name, lookup_name or unpublish_name */
static void on_service(struct fbr_pmi1_conn *c, char *line)
{
    char name[FBR_PMI1_VALUE_MAX], port[FBR_PMI1_VALUE_MAX];
    char first = *word_at(line, "cmd");

    fbr_pmi1_name(c,
                  first == 'p'   ? FBR_PMI1_PUBLISH
                  : first == 'l' ? FBR_PMI1_LOOKUP
                                 : FBR_PMI1_UNPUBLISH,
                  word(line, "service", name, sizeof(name)) ? name : NULL,
                  word(line, "port", port, sizeof(port)) ? port : NULL);
}

/* Answers the request for which a client has waited. */
static void done(struct fbr_pmi1_conn *c, enum fbr_pmi1_wait what, int code, const char *text)
{
    if (c->version == 2)
        fbr_pmi2_done(c, what, code, text);
    else if (what == FBR_PMI1_BARRIER)
        reply(c,
              code ? "cmd=barrier_out rc=-1 msg=some_ranks_are_gone\n" : "cmd=barrier_out rc=0\n");
    else if (what == FBR_PMI1_SPAWN)
        reply(c, code < 0 ? "cmd=spawn_result rc=-1 msg=%s\n" : "cmd=spawn_result rc=0\n",
              "the_processes_could_not_be_started");
    else
        reply_published(c, what, code, text);
}

void fbr_pmi1_answer(struct fbr_pmi1 *e, uint32_t rank, int code, const char *text)
{
    struct fbr_pmi1_slot *slot = fbr_pmi1_slot(e, rank);
    enum fbr_pmi1_wait what = slot ? slot->wait : FBR_PMI1_NOTHING;

    if (what < FBR_PMI1_PUBLISH || what > FBR_PMI1_SPAWN)
        return;
    slot->wait = FBR_PMI1_NOTHING;
    if (!slot->conn)
        return;
    if (what == FBR_PMI1_LOOKUP && code == 0 && !fbr_pmi1_is_word(text))
        code = -EPROTO;
    done(slot->conn, what, code, text);
    fbr_pmi1_resume(e);
}

void fbr_pmi1_start(struct fbr_pmi1_conn *c, const struct fbr_pmi1_spawn *s)
{
    uint32_t rank = (uint32_t)c->rank;
    const struct fbr_bridge_app *apps;
    const char *preput;
    size_t n;
    int rc;

    fbr_pmi1_slot(c->e, rank)->wait = FBR_PMI1_SPAWN;
    apps = fbr_pmi1_spawn_apps(s, &n, &preput);
    rc = c->e->ops->spawn(c->e->user, rank, apps, n, preput);
    if (rc < 0)
        fbr_pmi1_answer(c->e, rank, rc, NULL);
}

/* A spawn has many lines. A spawn of several programs comes as several requests. */
static void spawn_line(struct fbr_pmi1_conn *c, char *line)
{
    int rc = fbr_pmi1_spawn_line(c->spawn, line);

    if (rc == 1) {
        fbr_pmi1_start(c, c->spawn);
        fbr_pmi1_spawn_free(c->spawn);
        c->spawn = NULL;
    } else if (rc < 0) {
        fbr_pmi1_hang_up(c, rc == -ENOMEM ? "out of memory" : "its spawn is malformed");
    }
}

static void on_initack(struct fbr_pmi1_conn *c, char *line)
{
    long rank = number(line, "pmiid", -1);

    if (c->rank >= 0 && c->rank != rank) {
        fbr_pmi1_hang_up(c, "it names another rank than its own");
        return;
    }
    c->rank = rank;
    if (c->speaks || fbr_pmi1_speak_for(c))
        reply(c, "cmd=initack rc=0\ncmd=set size=%u\ncmd=set rank=%ld\ncmd=set debug=0\n",
              c->e->config.size, rank);
}

static const struct {
    const char *cmd;
    void (*fn)(struct fbr_pmi1_conn *c, char *line);
} requests[] = {
    {"init", on_init},
    {"get_maxes", on_maxes},
    {"get_appnum", on_appnum},
    {"get_universe_size", on_universe},
    {"get_my_kvsname", on_name},
    {"put", on_put},
    {"get", on_get},
    {"barrier_in", on_barrier},
    {"finalize", on_finalize},
    {"abort", on_abort},
    {"publish_name", on_service},
    {"lookup_name", on_service},
    {"unpublish_name", on_service},
    {"initack", on_initack},
};

/* True if the connection speaks for its rank, and the rank waits for no answer. Else hangs up. */
static bool may_ask(struct fbr_pmi1_conn *c)
{
    if (!c->speaks && (c->rank < 0 || !fbr_pmi1_speak_for(c))) {
        fbr_pmi1_hang_up(c, "it has not sent its rank");
        return false;
    }
    if (fbr_pmi1_slot(c->e, c->rank)->wait != FBR_PMI1_NOTHING) {
        fbr_pmi1_hang_up(c, "it sent a request before the last one was answered");
        return false;
    }
    return true;
}

static void run_request(struct fbr_pmi1_conn *c, char *line)
{
    char cmd[64];

    if (!word(line, "cmd", cmd, sizeof(cmd)) || !is_text(cmd, sizeof(cmd), false)) {
        fbr_pmi1_hang_up(c, "a line has no command");
        return;
    }
    if (!strcmp(cmd, "init") && !c->speaks && number(line, "pmi_version", 0) == 2) {
        on_init(c, line);
        return;
    }
    if ((c->speaks || strcmp(cmd, "initack") != 0) && !may_ask(c))
        return;
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
        if (!strcmp(cmd, requests[i].cmd)) {
            requests[i].fn(c, line);
            return;
        }
    reply(c, "cmd=%s_result rc=-1 msg=unknown_command\n", cmd);
}

static void on_line(struct fbr_pmi1_conn *c, char *line)
{
    if (c->spawn) {
        spawn_line(c, line);
        return;
    }
    if (strncmp(line, "mcmd=spawn", 10) != 0) {
        if (line[strspn(line, " \t\r")])
            run_request(c, line);
        return;
    }
    if (!may_ask(c))
        return;
    c->spawn = fbr_pmi1_spawn_new();
    if (!c->spawn)
        fbr_pmi1_hang_up(c, "out of memory");
}

/* Reads the next line. Returns 1; 0: more bytes have to come, or it has hung up. */
static int read_line(struct fbr_pmi1_conn *c)
{
    size_t left = c->in.len - c->at, len;
    char *line, *end;

    if (!left)
        return 0;
    line = (char *)c->in.data + c->at;
    end = memchr(line, '\n', left);
    len = end ? (size_t)(end - line) : left;
    if (len >= FBR_PMI1_LINE_MAX) {
        fbr_pmi1_hang_up(c, "a line is too long");
        return 0;
    }
    if (!end)
        return 0;
    *end = 0;
    c->at += len + 1;
    if (strlen(line) != len)
        fbr_pmi1_hang_up(c, "a line has a NUL in it");
    else
        on_line(c, line);
    return 1;
}

void fbr_pmi1_bytes(struct fbr_pmi1_conn *c, const void *data, size_t len)
{
    if (len)
        fbr_put(&c->in, data, len);
    if (c->in.failed)
        fbr_pmi1_hang_up(c, "out of memory");
    c->reading = true;
    while (!c->dead && !c->aborted && (c->version == 2 ? fbr_pmi2_read(c) : read_line(c)) > 0)
        ;
    c->reading = false;
    if (c->dead) {
        conn_free(c);
        return;
    }
    fbr_buf_consume(&c->in, c->aborted ? c->in.len : c->at);
    c->at = 0;
}

/* ---- the job ---- */

void fbr_pmi1_lost(struct fbr_pmi1 *e)
{
    e->broken = true;
    fbr_pmi2_attribute(e, NULL, NULL);
    barrier_out(e, -ECONNABORTED);
}

void fbr_pmi1_fenced(struct fbr_pmi1 *e, int code, const void *data, size_t len)
{
    struct fbr_cur c = fbr_cur(data, len);

    while (code == 0 && fbr_cur_left(&c)) {
        const void *puts;
        size_t n = 0;

        fbr_get_u32(&c);
        puts = fbr_get_bytes(&c, &n);
        code = puts ? merge(e, puts, n) : -EPROTO;
    }
    if (!e->broken)
        barrier_out(e, code);
}

struct fbr_pmi1 *fbr_pmi1_open(const struct fbr_pmi1_ops *ops, void *user,
                               const struct fbr_pmi1_config *config)
{
    struct fbr_pmi1 *e = calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    e->ops = ops;
    e->user = user;
    e->config = *config;
    if (config->parent) {
        snprintf(e->parent, sizeof(e->parent), "%s", config->parent);
        e->config.parent = e->parent;
    }
    e->slots = calloc(config->count ? config->count : 1, sizeof(*e->slots));
    if (!e->slots) {
        fbr_pmi1_close(e);
        return NULL;
    }
    for (uint32_t i = 0; config->local && i < config->count; i++)
        e->slots[i].app = config->local[i].app;
    return e;
}

void fbr_pmi1_close(struct fbr_pmi1 *e)
{
    struct fbr_pmi1_conn *c, *c2;

    if (!e)
        return;
    DL_FOREACH_SAFE(e->conns, c, c2)
        conn_free(c);
    table_free(&e->store);
    table_free(&e->attrs);
    for (uint32_t i = 0; e->slots && i < e->config.count; i++)
        free(e->slots[i].attr);
    free(e->slots);
    free(e);
}

void fbr_pmi1_mapping(char out[FBR_PMI1_VALUE_MAX], const uint32_t *first, uint32_t nodes)
{
    size_t at = (size_t)snprintf(out, FBR_PMI1_VALUE_MAX, "(vector");

    for (uint32_t k = 0, n; k < nodes; k += n) {
        uint32_t ranks = first[k + 1] - first[k];

        for (n = 1; k + n < nodes && first[k + n + 1] - first[k + n] == ranks; n++)
            ;
        at += (size_t)snprintf(out + at, FBR_PMI1_VALUE_MAX - at, ",(%u,%u,%u)", k, n, ranks);
        if (at + 2 > FBR_PMI1_VALUE_MAX) {
            out[0] = 0;
            return;
        }
    }
    snprintf(out + at, FBR_PMI1_VALUE_MAX - at, ")");
}
