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

struct app {
    struct fbr_args argv; /* the first is the program */
    char *workdir;
    uint32_t count;
    bool wdir_next; /* the last info key was "wdir" */
};

struct fbr_pmi1_spawn {
    struct app apps[APPS_MAX];
    struct fbr_bridge_app views[APPS_MAX];
    size_t napps; /* programs that have begun */
    bool between; /* a program is complete, the next must begin */
    long total, so_far;
    size_t bytes;
    struct fbr_buf preput;
    char key[FBR_PMI2_KEY_MAX]; /* key of the preput pair that is being read */
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
        fbr_args_fini(&s->apps[i].argv);
        free(s->apps[i].workdir);
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
static int add_arg(struct app *app, size_t at, const char *text)
{
    if (at != app->argv.n || at >= ARGS_MAX)
        return -EPROTO;
    return fbr_args_add(&app->argv, text, strlen(text));
}

static int add_preput(struct fbr_pmi1_spawn *s, const char *value)
{
    if (!*s->key || strlen(value) >= FBR_PMI2_VALUE_MAX)
        return -EPROTO;
    fbr_putf(&s->preput, "%s=%s\n", s->key, value);
    *s->key = 0;
    return s->preput.failed ? -ENOMEM : 0;
}

static int set_workdir(struct app *app, const char *value)
{
    if (!app->wdir_next)
        return 0;
    app->wdir_next = false;
    free(app->workdir);
    app->workdir = strdup(value);
    return app->workdir ? 0 : -ENOMEM;
}

static int end_app(struct fbr_pmi1_spawn *s)
{
    struct app *app = &s->apps[s->napps - 1];
    char end = 0;

    if (!app->argv.n || !*app->argv.at[0] || !app->count || s->total < 1 || s->total > APPS_MAX ||
        s->so_far != (long)s->napps || s->so_far > s->total || *s->key)
        return -EPROTO;
    s->views[s->napps - 1] = (struct fbr_bridge_app){
        .argv = (const char *const *)app->argv.at, .workdir = app->workdir, .count = app->count};
    s->between = true;
    if (s->so_far < s->total)
        return 0;
    fbr_put(&s->preput, &end, 1);
    return s->preput.failed ? -ENOMEM : 1;
}

static int set_field(struct fbr_pmi1_spawn *s, struct app *app, const char *key, const char *value)
{
    long n = fbr_pmi1_number(value, -1);

    if (!strcmp(key, "nprocs") || !strcmp(key, "totspawns") || !strcmp(key, "spawnssofar")) {
        if (n < 1 || n > COUNT_MAX)
            return -EPROTO;
        if (*key == 'n')
            app->count = (uint32_t)n;
        else
            *(*key == 't' ? &s->total : &s->so_far) = n;
        return 0;
    }
    if (!strcmp(key, "execname"))
        return add_arg(app, 0, value);
    if (!strncmp(key, "arg", 3) && fbr_pmi1_number(key + 3, -1) >= 0)
        return add_arg(app, (size_t)fbr_pmi1_number(key + 3, -1), value);
    if (!strncmp(key, "preput_key_", 11)) {
        if (!fbr_pmi2_is_key(value) || strchr(value, '='))
            return -EPROTO;
        memcpy(s->key, value, strlen(value) + 1);
        return 0;
    }
    if (!strncmp(key, "preput_val_", 11))
        return add_preput(s, value);
    if (!strncmp(key, "info_key_", 9)) {
        app->wdir_next = !strcmp(value, "wdir");
        return 0;
    }
    if (!strncmp(key, "info_val_", 9))
        return set_workdir(app, value);
    /* argcnt, preput_num and info_num repeat what the lines show; unknown keys are ignored */
    return 0;
}

int fbr_pmi1_spawn_line(struct fbr_pmi1_spawn *s, const char *line)
{
    const char *equals = strchr(line, '=');
    char key[48];

    s->bytes += strlen(line) + 32;
    if (s->bytes > FBR_PMI1_SPAWN_MAX)
        return -E2BIG;
    if (s->between) {
        if (strcmp(line, "mcmd=spawn") != 0 || s->napps >= APPS_MAX)
            return -EPROTO;
        s->napps++;
        s->between = false;
        return 0;
    }
    if (!strcmp(line, "endcmd"))
        return end_app(s);
    if (!equals || (size_t)(equals - line) >= sizeof(key))
        return -EPROTO;
    memcpy(key, line, (size_t)(equals - line));
    key[equals - line] = 0;
    return set_field(s, &s->apps[s->napps - 1], key, equals + 1);
}

const struct fbr_bridge_app *fbr_pmi1_spawn_apps(const struct fbr_pmi1_spawn *s)
{
    return s->views;
}

size_t fbr_pmi1_spawn_count(const struct fbr_pmi1_spawn *s)
{
    return s->napps;
}

const char *fbr_pmi1_spawn_preput(const struct fbr_pmi1_spawn *s)
{
    return (const char *)s->preput.data;
}
