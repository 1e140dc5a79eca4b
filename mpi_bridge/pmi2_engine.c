/* pmi2_engine.c - PMI-2, the second protocol of the PMI server.
 *
 * After "cmd=init pmi_version=2" a client sends messages: the length in six characters, decimal
 * digits and blanks, then "cmd=NAME;key=value;...", where a ';' in a value is written twice. The
 * answer to NAME is NAME-response, with rc=0, or rc and errmsg. The header of Slurm's libpmi2
 * (slurm/pmi2.h) and MPICH's src/pmi define the meaning.
 *
 * A client with threads marks a request by thrid, and may send another one before it has the
 * answer. Such requests wait here, in their order.
 *
 * In addition to the commands of MPICH there is Slurm's "ring": each rank gives a text to either
 * side and gets the texts of its neighbours. Here it is a barrier with two puts, under keys that no
 * client can put.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_bridge/pmi1_priv.h"

#define LENGTH_DIGITS 6
#define WAITING_MAX (4u << 20) /* bytes that a client may send while it waits for an answer */
#define ERR_OTHER 14           /* PMI2_ERR_OTHER */
#define ERR_KEY 4              /* PMI2_ERR_INVALID_KEY */
#define ERR_VALUE 6            /* PMI2_ERR_INVALID_VAL */

/* ---- messages ---- */

/* The contents of a message: `n` keys, each followed by its value. Each text ends with its NUL. */
struct message {
    const char *pairs;
    size_t n;
};

/* Unpacks in place: no pair grows. Returns 0 or -EPROTO. */
static int unpack(struct message *m, char *text, size_t len)
{
    size_t to = 0;
    bool in_key = true;

    *m = (struct message){.pairs = text};
    for (size_t at = 0; at < len; at++) {
        char c = text[at];

        if (!c || (in_key && c == ';'))
            return -EPROTO;
        if (in_key && c == '=') {
            in_key = false;
            c = 0;
        } else if (!in_key && c == ';' && at + 1 < len && text[at + 1] == ';') {
            at++;
        } else if (c == ';') {
            in_key = true;
            m->n++;
            c = 0;
        }
        text[to++] = c;
    }
    return in_key && m->n && !text[to - 1] ? 0 : -EPROTO;
}

/* Returns the pair after this one. */
static const char *next_pair(const char *pair)
{
    pair += strlen(pair) + 1;
    return pair + strlen(pair) + 1;
}

static const char *value_of(const char *pair)
{
    return pair + strlen(pair) + 1;
}

static const char *get(const struct message *m, const char *key)
{
    const char *pair = m->pairs;

    for (size_t i = 0; i < m->n; i++, pair = next_pair(pair))
        if (!strcmp(pair, key))
            return value_of(pair);
    return NULL;
}

static bool is_true(const char *text)
{
    return text && (!strcmp(text, "TRUE") || !strcmp(text, "true") || !strcmp(text, "1"));
}

/* ---- answers ---- */

static void put_pair(struct fbr_buf *b, const char *key, const char *value)
{
    fbr_put(b, key, strlen(key));
    fbr_put(b, "=", 1);
    for (; *value; value++)
        fbr_put(b, *value == ';' ? ";;" : value, *value == ';' ? 2 : 1);
    fbr_put(b, ";", 1);
}

/* Answers that command with pairs, each a key and its value; NULL ends them. */
__attribute__((sentinel)) static void answer(struct fbr_pmi1_conn *c, const char *cmd, ...)
{
    char name[64], digits[16];
    const char *key;
    struct fbr_buf b = {0};
    va_list ap;

    fbr_put(&b, "      ", LENGTH_DIGITS);
    snprintf(name, sizeof(name), "%.48s-response", cmd);
    put_pair(&b, "cmd", name);
    if (*c->thrid)
        put_pair(&b, "thrid", c->thrid);
    va_start(ap, cmd);
    while ((key = va_arg(ap, const char *)))
        put_pair(&b, key, va_arg(ap, const char *));
    va_end(ap);
    if (b.failed || b.len - LENGTH_DIGITS > 999999) {
        fbr_pmi1_hang_up(c, "out of memory");
    } else if (!c->dead) {
        snprintf(digits, sizeof(digits), "%6zu", b.len - LENGTH_DIGITS);
        memcpy(b.data, digits, LENGTH_DIGITS);
        c->e->ops->send(c->e->user, c->link, b.data, b.len);
    }
    fbr_buf_fini(&b);
}

static void reply(struct fbr_pmi1_conn *c, const char *cmd, int rc, const char *why)
{
    char number[16];

    snprintf(number, sizeof(number), "%d", rc);
    answer(c, cmd, "rc", number, rc ? "errmsg" : NULL, why, NULL);
}

static void reply_value(struct fbr_pmi1_conn *c, const char *cmd, const char *value)
{
    answer(c, cmd, "rc", "0", "found", value ? "TRUE" : "FALSE", value ? "value" : NULL, value,
           NULL);
}

/* Writes the key of a rank's text for its neighbours. The tab keeps it apart from keys of
 * clients. */
static void ring_key(char key[FBR_PMI2_KEY_MAX], uint32_t rank, const char *side)
{
    snprintf(key, FBR_PMI2_KEY_MAX, "\tring-%u-%s", rank, side);
}

static void reply_ring(struct fbr_pmi1_conn *c, int code)
{
    uint32_t size = c->e->config.size, rank = (uint32_t)c->rank;
    char key[FBR_PMI2_KEY_MAX], count[16];
    const char *left, *right;

    ring_key(key, (rank + size - 1) % size, "right"); /* the right text of our left neighbour */
    left = fbr_pmi1_find(c->e->store, key);
    ring_key(key, (rank + 1) % size, "left");
    right = fbr_pmi1_find(c->e->store, key);
    if (code || !left || !right) {
        reply(c, "ring", ERR_OTHER, "some ranks are gone, or have not called it");
        return;
    }
    snprintf(count, sizeof(count), "%u", rank);
    answer(c, "ring", "rc", "0", "ring-count", count, "ring-left", left, "ring-right", right, NULL);
}

void fbr_pmi2_done(struct fbr_pmi1_conn *c, enum fbr_pmi1_wait what, int code, const char *text)
{
    const char *failed = code == -EEXIST   ? "the name is already published"
                         : code == -ENOENT ? "no such name"
                                           : "it failed";
    int rc = code < 0 ? ERR_OTHER : 0;

    switch (what) {
    case FBR_PMI1_BARRIER:
        reply(c, "kvs-fence", code ? ERR_OTHER : 0, "some ranks are gone");
        break;
    case FBR_PMI1_RING:
        reply_ring(c, code);
        break;
    case FBR_PMI1_PUBLISH:
        reply(c, "name-publish", rc, failed);
        break;
    case FBR_PMI1_UNPUBLISH:
        reply(c, "name-unpublish", rc, failed);
        break;
    case FBR_PMI1_LOOKUP:
        if (code < 0)
            reply(c, "name-lookup", rc, failed);
        else /* some clients look at "port" */
            answer(c, "name-lookup", "rc", "0", "found", "TRUE", "value", text, "port", text, NULL);
        break;
    case FBR_PMI1_SPAWN:
        if (code < 0)
            reply(c, "spawn", rc, "the processes could not be started");
        else
            answer(c, "spawn", "rc", "0", "jobid", text ? text : "", "nerrs", "0", NULL);
        break;
    default:
        break;
    }
}

/* ---- requests ---- */

static void on_fullinit(struct fbr_pmi1_conn *c, const struct message *m)
{
    const char *said = get(m, "pmirank") ? get(m, "pmirank") : get(m, "srcid");
    long rank = fbr_pmi1_number(said, -1);
    char number[16], size[16], app[16];

    if (c->rank >= 0 && rank >= 0 && c->rank != rank) {
        fbr_pmi1_hang_up(c, "it names another rank than its own");
        return;
    }
    if (c->rank < 0)
        c->rank = rank;
    if (!c->speaks && !fbr_pmi1_speak_for(c))
        return;
    snprintf(number, sizeof(number), "%u", (uint32_t)c->rank);
    snprintf(size, sizeof(size), "%u", c->e->config.size);
    snprintf(app, sizeof(app), "%u", fbr_pmi1_slot(c->e, c->rank)->app);
    answer(c, "fullinit", "rc", "0", "pmi-version", "2", "pmi-subversion", "0", "rank", number,
           "size", size, "appnum", app, "debugged", "FALSE", "pmiverbose", "FALSE",
           c->e->config.parent ? "spawner-jobid" : NULL, c->e->config.parent, NULL);
    c->e->ops->met(c->e->user, (uint32_t)c->rank, "PMI 2.0");
}

static void on_finalize(struct fbr_pmi1_conn *c, const struct message *m)
{
    reply(c, "finalize", 0, NULL);
    fbr_pmi1_leave(c);
}

/* Handles an abort, which has no answer. A rank that ends only itself leaves its server. */
static void on_abort(struct fbr_pmi1_conn *c, const struct message *m)
{
    const char *world = get(m, "isworld");
    const char *text = get(m, "msg") ? get(m, "msg") : get(m, "message"); /* MPICH's key */

    if (world && !is_true(world))
        fbr_pmi1_leave(c);
    else
        c->e->ops->abort(c->e->user, (uint32_t)c->rank, (int)fbr_pmi1_number(get(m, "exitcode"), 1),
                         text ? text : "");
}

static void on_job_id(struct fbr_pmi1_conn *c, const struct message *m)
{
    answer(c, "job-getid", "rc", "0", "jobid", c->e->config.nspace, NULL);
}

/* MPI does not use this command: jobs meet by a port that one of them publishes. */
static void on_job_connect(struct fbr_pmi1_conn *c, const struct message *m)
{
    reply(c, get(m, "cmd"), ERR_OTHER,
          "PMI cannot connect jobs here: publish a port, and look it up");
}

/* Checks the key and the value. Returns 0, or an error after it has sent the answer. */
static int check_pair(struct fbr_pmi1_conn *c, const char *cmd, const char *key, const char *value)
{
    if (fbr_pmi2_is_key(key) && value && strlen(value) < FBR_PMI2_VALUE_MAX)
        return 0;
    if (fbr_pmi2_is_key(key))
        reply(c, cmd, ERR_VALUE, "the value is missing or too long");
    else
        reply(c, cmd, ERR_KEY, "the key is missing, too long, or contains control characters");
    return -EINVAL;
}

static void on_put(struct fbr_pmi1_conn *c, const struct message *m)
{
    const char *key = get(m, "key"), *value = get(m, "value");

    if (check_pair(c, "kvs-put", key, value) == 0)
        reply(c, "kvs-put", fbr_pmi1_put(c->e, key, value) < 0 ? ERR_OTHER : 0, "out of memory");
}

static void on_get(struct fbr_pmi1_conn *c, const struct message *m)
{
    const char *job = get(m, "jobid"), *key = get(m, "key");

    if (job && *job && strcmp(job, c->e->config.nspace) != 0)
        reply(c, "kvs-get", ERR_OTHER, "this is not the name of its own job, see job-getid");
    else
        reply_value(c, "kvs-get", fbr_pmi2_is_key(key) ? fbr_pmi1_find(c->e->store, key) : NULL);
}

static void on_fence(struct fbr_pmi1_conn *c, const struct message *m)
{
    fbr_pmi1_enter(c, FBR_PMI1_BARRIER);
}

static void on_ring(struct fbr_pmi1_conn *c, const struct message *m)
{
    static const char *const sides[] = {"left", "right"}, *const names[] = {"ring-left",
                                                                            "ring-right"};
    char key[FBR_PMI2_KEY_MAX];

    for (int i = 0; i < 2; i++) {
        const char *value = get(m, names[i]);

        if (!value || strlen(value) >= FBR_PMI2_VALUE_MAX) {
            reply(c, "ring", ERR_VALUE, "the value is missing or too long");
            return;
        }
        ring_key(key, (uint32_t)c->rank, sides[i]);
        if (fbr_pmi1_put(c->e, key, value) < 0) {
            reply(c, "ring", ERR_OTHER, "out of memory");
            return;
        }
    }
    fbr_pmi1_enter(c, FBR_PMI1_RING);
}

static void on_job_attr(struct fbr_pmi1_conn *c, const struct message *m)
{
    const char *key = get(m, "key"), *value = NULL;
    char number[16];

    if (key && !strcmp(key, "universeSize")) {
        snprintf(number, sizeof(number), "%u", c->e->config.size);
        value = number;
    } else if (key && !strcmp(key, "hasNameServ")) {
        value = "TRUE";
    } else if (key && !strcmp(key, "physTopology")) {
        value = c->e->config.alone ? "complete" : "hierarchical";
    } else if (key && !strcmp(key, "physTopologyLevels")) {
        value = c->e->config.alone ? NULL : "complete,complete";
    } else if (fbr_pmi2_is_key(key)) {
        /* PMI_process_mapping, and what the parent job has put */
        value = fbr_pmi1_find(c->e->store, key);
    }
    reply_value(c, "info-getjobattr", value && *value ? value : NULL);
}

static void reply_no_attribute(struct fbr_pmi1_conn *c)
{
    reply(c, "info-getnodeattr", ERR_OTHER, "some ranks are gone");
}

void fbr_pmi2_attribute(struct fbr_pmi1 *e, const char *key, const char *value)
{
    for (uint32_t i = 0; i < e->config.count; i++) {
        struct fbr_pmi1_slot *slot = &e->slots[i];

        if (slot->wait != FBR_PMI1_NODE_ATTR || (key && strcmp(slot->attr, key) != 0))
            continue;
        slot->wait = FBR_PMI1_NOTHING;
        if (slot->conn && key)
            reply_value(slot->conn, "info-getnodeattr", value);
        else if (slot->conn)
            reply_no_attribute(slot->conn);
    }
    fbr_pmi1_resume(e);
}

static void on_put_node_attr(struct fbr_pmi1_conn *c, const struct message *m)
{
    const char *key = get(m, "key"), *value = get(m, "value");
    struct fbr_pmi1 *e = c->e;

    if (check_pair(c, "info-putnodeattr", key, value) < 0)
        return;
    if (fbr_pmi1_table_set(e, &e->attrs, key, value) < 0) {
        reply(c, "info-putnodeattr", ERR_OTHER, "out of memory");
        return;
    }
    reply(c, "info-putnodeattr", 0, NULL);
    fbr_pmi2_attribute(e, key, value);
}

static void on_get_node_attr(struct fbr_pmi1_conn *c, const struct message *m)
{
    const char *key = get(m, "key");
    const char *value = fbr_pmi2_is_key(key) ? fbr_pmi1_find(c->e->attrs, key) : NULL;
    struct fbr_pmi1_slot *slot = fbr_pmi1_slot(c->e, c->rank);
    char *copy;

    if (value || !fbr_pmi2_is_key(key) || !is_true(get(m, "wait"))) {
        reply_value(c, "info-getnodeattr", value);
        return;
    }
    if (c->e->broken) {
        reply_no_attribute(c);
        return;
    }
    copy = strdup(key);
    if (!copy) {
        reply(c, "info-getnodeattr", ERR_OTHER, "out of memory");
        return;
    }
    free(slot->attr);
    slot->attr = copy;
    slot->wait = FBR_PMI1_NODE_ATTR;
}

static void on_name(struct fbr_pmi1_conn *c, const struct message *m)
{
    const char *cmd = get(m, "cmd"), *name = get(m, "name"), *port = get(m, "port");
    enum fbr_pmi1_wait what = !strcmp(cmd, "name-lookup")    ? FBR_PMI1_LOOKUP
                              : !strcmp(cmd, "name-publish") ? FBR_PMI1_PUBLISH
                                                             : FBR_PMI1_UNPUBLISH;

    if (!fbr_pmi1_is_word(name) || (what == FBR_PMI1_PUBLISH && !fbr_pmi1_is_word(port)))
        reply(c, cmd, ERR_VALUE, "the name or the port is missing, too long, or contains blanks");
    else
        fbr_pmi1_name(c, what, name, port);
}

/* ---- spawn ---- */

/* Takes a pair by the name that it has in PMI-1. Many keys end in a number. */
static int feed_pair(struct fbr_pmi1_spawn *s, const char *pair)
{
    static const char *const names[][2] = {
        {"subcmd", "execname"},   {"maxprocs", "nprocs"},   {"infokey", "info_key_"},
        {"infoval", "info_val_"}, {"ppkey", "preput_key_"}, {"ppval", "preput_val_"},
    };
    long n = strncmp(pair, "argv", 4) ? -1 : fbr_pmi1_number(pair + 4, -1);
    char arg[32];

    if (n >= 0) { /* in PMI-1 argument 0 is the program */
        snprintf(arg, sizeof(arg), "arg%lu", (unsigned long)n + 1);
        return fbr_pmi1_spawn_field(s, arg, value_of(pair));
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!strncmp(pair, names[i][0], strlen(names[i][0])))
            return fbr_pmi1_spawn_field(s, names[i][1], value_of(pair));
    return 0;
}

/* Returns 0, or -EPROTO, -E2BIG, -ENOMEM. */
static int feed_spawn(struct fbr_pmi1_spawn *s, const struct message *m)
{
    const char *total = get(m, "ncmds"), *pair = m->pairs;
    int rc = fbr_pmi1_spawn_field(s, "totspawns", total ? total : ""), programs = 0;

    for (size_t i = 0; i < m->n && rc == 0; i++, pair = next_pair(pair))
        if (strcmp(pair, "subcmd") != 0 || programs++ == 0 || (rc = fbr_pmi1_spawn_end(s)) == 0)
            rc = feed_pair(s, pair);
    if (rc == 0 && (rc = fbr_pmi1_spawn_end(s)) == 1) /* as many programs as announced */
        return 0;
    return rc < 0 ? rc : -EPROTO;
}

static void on_spawn(struct fbr_pmi1_conn *c, const struct message *m)
{
    struct fbr_pmi1_spawn *s = fbr_pmi1_spawn_new();
    int rc = s ? feed_spawn(s, m) : -ENOMEM;

    if (rc < 0)
        reply(c, "spawn", ERR_OTHER,
              rc == -ENOMEM ? "out of memory" : "it is malformed or too long");
    else
        fbr_pmi1_start(c, s);
    fbr_pmi1_spawn_free(s);
}

/* ---- reading ---- */

static const struct {
    const char *cmd;
    void (*fn)(struct fbr_pmi1_conn *c, const struct message *m);
} requests[] = {
    {"fullinit", on_fullinit},
    {"finalize", on_finalize},
    {"abort", on_abort},
    {"job-getid", on_job_id},
    {"job-connect", on_job_connect},
    {"job-disconnect", on_job_connect},
    {"kvs-put", on_put},
    {"kvs-get", on_get},
    {"kvs-fence", on_fence},
    {"ring", on_ring},
    {"info-getjobattr", on_job_attr},
    {"info-putnodeattr", on_put_node_attr},
    {"info-getnodeattr", on_get_node_attr},
    {"name-publish", on_name},
    {"name-lookup", on_name},
    {"name-unpublish", on_name},
    {"spawn", on_spawn},
};

static void run_request(struct fbr_pmi1_conn *c, const struct message *m)
{
    const char *cmd = get(m, "cmd"), *thrid = get(m, "thrid");

    if (!cmd || !*cmd) {
        fbr_pmi1_hang_up(c, "a message has no command");
        return;
    }
    if (!c->speaks && strcmp(cmd, "fullinit") != 0) {
        fbr_pmi1_hang_up(c, "it has not sent its rank");
        return;
    }
    snprintf(c->thrid, sizeof(c->thrid), "%s", thrid ? thrid : "");
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
        if (!strcmp(cmd, requests[i].cmd)) {
            requests[i].fn(c, m);
            return;
        }
    reply(c, cmd, ERR_OTHER, "unknown command");
}

/* Returns the length at the start of a message, or -1. */
static long length_of(const char *text)
{
    char digits[LENGTH_DIGITS + 1];
    size_t n, at;

    memcpy(digits, text, LENGTH_DIGITS);
    digits[LENGTH_DIGITS] = 0;
    at = strspn(digits, " ");
    n = strspn(digits + at, "0123456789");
    if (n == 0 || digits[at + n + strspn(digits + at + n, " ")])
        return -1;
    return strtol(digits, NULL, 10);
}

int fbr_pmi2_read(struct fbr_pmi1_conn *c)
{
    size_t left = c->in.len - c->at;
    struct message m;
    const char *text;
    char *copy;
    long len;

    if (c->speaks && fbr_pmi1_slot(c->e, c->rank)->wait != FBR_PMI1_NOTHING) {
        if (left > WAITING_MAX)
            fbr_pmi1_hang_up(c, "it sent too many requests before one was answered");
        return 0;
    }
    if (left < LENGTH_DIGITS)
        return 0;
    text = (const char *)c->in.data + c->at;
    len = length_of(text);
    if (len <= 0) {
        fbr_pmi1_hang_up(c, "a message does not begin with its length");
        return 0;
    }
    if (left - LENGTH_DIGITS < (size_t)len)
        return 0;
    c->at += LENGTH_DIGITS + (size_t)len;
    copy = malloc((size_t)len);
    if (!copy) {
        fbr_pmi1_hang_up(c, "out of memory");
        return 0;
    }
    memcpy(copy, text + LENGTH_DIGITS, (size_t)len);
    if (unpack(&m, copy, (size_t)len) < 0)
        fbr_pmi1_hang_up(c, "a message does not consist of \"key=value;\"");
    else
        run_request(c, &m);
    free(copy);
    return 1;
}
