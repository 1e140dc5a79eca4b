/* pmi1_spawn.c - reads the spawn requests of PMI-1.
 *
 * Only the info key "wdir" has an effect. The others (host, path, ...) are for launchers that place
 * by name.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_bridge/pmi1_spawn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/buf.h"
#include "runtime/program/args.h"

#define APPS_MAX 1024
#define ARGS_MAX 65536
#define COUNT_MAX 10000000

struct fbr_pmi1_spawn {
    struct fbr_bridge_app apps[APPS_MAX];
    struct fbr_args argv[APPS_MAX]; /* the first is the program */
    size_t napps;                   /* programs that have begun */
    long total;
    size_t bytes;
    struct fbr_buf preput;
    char key[FBR_PMI2_KEY_MAX]; /* key of the preput pair that is being read */
    bool wdir_next;             /* the last info key was "wdir" */
};

struct fbr_pmi1_spawn *fbr_pmi1_spawn_new(void)
{
    struct fbr_pmi1_spawn *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->napps = 1;
    return s;
}

void fbr_pmi1_spawn_free(struct fbr_pmi1_spawn *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->napps; i++) {
        fbr_args_fini(&s->argv[i]);
        free((char *)(uintptr_t)s->apps[i].workdir);
    }
    fbr_buf_fini(&s->preput);
    free(s);
}

bool fbr_pmi2_is_key(const char *key)
{
    size_t len = key ? strlen(key) : 0;

    for (size_t i = 0; i < len; i++)
        if ((unsigned char)key[i] < ' ')
            return false;
    return len > 0 && len < FBR_PMI2_KEY_MAX;
}

long fbr_pmi1_number(const char *text, long otherwise)
{
    char *end;
    long n;

    if (!text)
        return otherwise;
    errno = 0;
    n = strtol(text, &end, 10);
    return errno || end == text || *end ? otherwise : n;
}

/* Adds argv[at]. All clients send the program first, and then its arguments in their order. */
static int add_arg(struct fbr_args *argv, long at, const char *text)
{
    if (at != (long)argv->n || at >= ARGS_MAX)
        return -EPROTO;
    return fbr_args_add(argv, text, strlen(text));
}

static int add_preput(struct fbr_pmi1_spawn *s, const char *value)
{
    if (!*s->key || strlen(value) >= FBR_PMI2_VALUE_MAX || strchr(value, '\n'))
        return -EPROTO;
    fbr_putf(&s->preput, "%s=%s\n", s->key, value);
    *s->key = 0;
    return s->preput.failed ? -ENOMEM : 0;
}

static int set_workdir(struct fbr_bridge_app *app, const char *value)
{
    free((char *)(uintptr_t)app->workdir);
    app->workdir = strdup(value);
    return app->workdir ? 0 : -ENOMEM;
}

int fbr_pmi1_spawn_field(struct fbr_pmi1_spawn *s, const char *key, const char *value)
{
    struct fbr_bridge_app *app = &s->apps[s->napps - 1];
    struct fbr_args *argv = &s->argv[s->napps - 1];
    long n = fbr_pmi1_number(value, -1), arg;

    s->bytes += strlen(key) + strlen(value) + 32;
    if (s->bytes > FBR_PMI1_SPAWN_MAX)
        return -E2BIG;
    if (!strcmp(key, "nprocs")) {
        app->count = n > 0 && n <= COUNT_MAX ? (uint32_t)n : 0;
    } else if (!strcmp(key, "totspawns")) {
        s->total = n;
    } else if (!strcmp(key, "spawnssofar")) {
        return n == (long)s->napps ? 0 : -EPROTO;
    } else if (!strcmp(key, "execname")) {
        return add_arg(argv, 0, value);
    } else if (!strncmp(key, "arg", 3) && (arg = fbr_pmi1_number(key + 3, -1)) >= 0) {
        return add_arg(argv, arg, value);
    } else if (!strncmp(key, "preput_key_", 11)) {
        if (!fbr_pmi2_is_key(value) || strchr(value, '='))
            return -EPROTO;
        memcpy(s->key, value, strlen(value) + 1);
    } else if (!strncmp(key, "preput_val_", 11)) {
        return add_preput(s, value);
    } else if (!strncmp(key, "info_key_", 9)) {
        s->wdir_next = !strcmp(value, "wdir");
    } else if (!strncmp(key, "info_val_", 9) && s->wdir_next) {
        s->wdir_next = false;
        return set_workdir(app, value);
    }
    /* argcnt, preput_num and info_num repeat what the fields show; unknown keys are ignored */
    return 0;
}

int fbr_pmi1_spawn_end(struct fbr_pmi1_spawn *s)
{
    struct fbr_bridge_app *app = &s->apps[s->napps - 1];
    const struct fbr_args *argv = &s->argv[s->napps - 1];

    if (!argv->n || !*argv->at[0] || !app->count || s->total > APPS_MAX ||
        (long)s->napps > s->total || *s->key)
        return -EPROTO;
    app->argv = (const char *const *)argv->at;
    if ((long)s->napps < s->total) {
        s->napps++;
        s->wdir_next = false;
        return 0;
    }
    fbr_put_u8(&s->preput, 0);
    return s->preput.failed ? -ENOMEM : 1;
}

int fbr_pmi1_spawn_line(struct fbr_pmi1_spawn *s, const char *line)
{
    const char *equals = strchr(line, '=');
    char key[48];

    if (!strcmp(line, "endcmd"))
        return fbr_pmi1_spawn_end(s);
    if (!equals || (size_t)(equals - line) >= sizeof(key))
        return -EPROTO;
    memcpy(key, line, (size_t)(equals - line));
    key[equals - line] = 0;
    return fbr_pmi1_spawn_field(s, key, equals + 1);
}

const struct fbr_bridge_app *fbr_pmi1_spawn_apps(const struct fbr_pmi1_spawn *s, size_t *n,
                                                 const char **preput)
{
    *n = s->napps;
    *preput = (const char *)s->preput.data;
    return s->apps;
}
