/* settings.c - reads the files of the command backend.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/command/settings.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/config_value.h"
#include "runtime/base/fds.h"

#define UNSAID (~0u)
#define STARTS 64
/* sshd refuses more connections that are logging in (MaxStartups 10:30:100) */
#define SSH_STARTS 10

/* ---- Keys of the file ---- */

/* Adds the words: a line of a file is short, so a key that is given again continues its words. */
static int take_words(struct fbr_args *t, bool is_template, const char *value, const char *where,
                      struct fbr_error *err)
{
    if (fbr_args_split(t, value, err) < 0 || (is_template && fbr_template_check(t, err) < 0))
        return fbr_wrap(err, "%s", where);
    return 0;
}

static int take_string(char **out, const char *value, const char *where, struct fbr_error *err)
{
    free(*out);
    *out = strdup(value);
    return *out ? 0 : fbr_fail(err, -ENOMEM, "%s: out of memory", where);
}

static int take_kind(struct fbr_command_settings *s, const char *value, const char *where,
                     struct fbr_error *err)
{
    s->detached = strcmp(value, "detached") == 0;
    if (!s->detached && strcmp(value, "attached") != 0)
        return fbr_fail(err, -EINVAL, "%s: kind must be attached or detached, not '%.64s'", where,
                        value);
    return 0;
}

int fbr_command_state(const struct fbr_command_settings *s, const char *word)
{
    for (int state = 0; state < JOB_STATES; state++)
        for (size_t i = 0; i < s->states[state].n; i++)
            if (strcmp(s->states[state].at[i], word) == 0)
                return state;
    return -ENOENT;
}

/* Keys whose value is a number, with its bounds. */
static const struct {
    const char *name;
    size_t at; /* in the settings: int or unsigned */
    long low, high;
    const char *what;
} numbers[] = {
    {"unknown", offsetof(struct fbr_command_settings, unknown), 0, 255, "an exit code (0 to 255)"},
    {"signals", offsetof(struct fbr_command_settings, signals), 0, 255, "an exit code (0 to 255)"},
    {"starts", offsetof(struct fbr_command_settings, starts), 0, 1000000,
     "a number of starts (0: any, to 1000000)"},
    {"poll_ms", offsetof(struct fbr_command_settings, poll_ms), 50, 3600000,
     "a number of milliseconds (50 to 3600000)"},
};

/* Keys whose value is a template, words for a state (struct fbr_args), or a text (char *). */
static const struct {
    const char *name;
    size_t at;
    enum { TEMPLATE, WORDS, TEXT } kind;
} texts[] = {
    {"start", offsetof(struct fbr_command_settings, start), TEMPLATE},
    {"list", offsetof(struct fbr_command_settings, list), TEMPLATE},
    {"status", offsetof(struct fbr_command_settings, status), TEMPLATE},
    {"cancel", offsetof(struct fbr_command_settings, cancel), TEMPLATE},
    {"logs", offsetof(struct fbr_command_settings, logs), TEMPLATE},
    {"pending", offsetof(struct fbr_command_settings, states[JOB_PENDING]), WORDS},
    {"running", offsetof(struct fbr_command_settings, states[JOB_RUNNING]), WORDS},
    {"done", offsetof(struct fbr_command_settings, states[JOB_DONE]), WORDS},
    {"failed", offsetof(struct fbr_command_settings, states[JOB_FAILED]), WORDS},
    {"killed", offsetof(struct fbr_command_settings, states[JOB_KILLED]), WORDS},
    {"lost", offsetof(struct fbr_command_settings, states[JOB_LOST]), WORDS},
    {"id", offsetof(struct fbr_command_settings, id), TEXT},
    {"ticket_dir", offsetof(struct fbr_command_settings, ticket_dir), TEXT},
};
#define TEXTS (sizeof(texts) / sizeof(texts[0]))

static int take_number(struct fbr_command_settings *s, size_t i, const char *value,
                       const char *where, struct fbr_error *err)
{
    int64_t n;

    if (!fbr_number(value, numbers[i].low, numbers[i].high, &n))
        return fbr_fail(err, -EINVAL, "%s: '%.64s' is not %s", where, value, numbers[i].what);
    *(int *)(void *)((char *)s + numbers[i].at) = (int)n;
    return 0;
}

static int on_pair(void *user, const char *key, const char *value, const char *where,
                   struct fbr_error *err)
{
    struct fbr_command_settings *s = user;

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (strcmp(key, numbers[i].name) == 0)
            return take_number(s, i, value, where, err);
    for (size_t i = 0; i < TEXTS; i++)
        if (strcmp(key, texts[i].name) == 0) {
            void *at = (char *)s + texts[i].at;

            return texts[i].kind == TEXT
                       ? take_string(at, value, where, err)
                       : take_words(at, texts[i].kind == TEMPLATE, value, where, err);
        }
    if (strcmp(key, "kind") == 0)
        return take_kind(s, value, where, err);
    if (strcmp(key, "hosts") == 0)
        return fbr_hosts_parse(&s->hosts, where, value, err);
    return fbr_fail(err, -EINVAL,
                    "%s: unknown key '%.64s'; the keys are kind, start, starts, hosts, unknown, "
                    "signals, list, status, cancel, logs, id, ticket_dir, poll_ms, pending, "
                    "running, done, failed, killed, lost",
                    where, key);
}

/* ---- Hosts ---- */

static int hosts_of_file(struct fbr_hosts *h, const char *path, struct fbr_error *err)
{
    struct fbr_error why = {0, ""};
    size_t len;
    char *text = fbr_fds_slurp(path, &len, &why);
    int rc;

    if (!text)
        rc = fbr_fail(err, -EINVAL, "command_hosts: %s", why.text);
    else if (strlen(text) != len)
        rc = fbr_fail(err, -EINVAL, "command_hosts: %s is not text", path);
    else
        rc = fbr_hosts_parse(h, path, text, err);
    free(text);
    return rc;
}

static int load_hosts(struct fbr_command_settings *s, const struct fbr_config *config,
                      struct fbr_error *err)
{
    const char *hosts = fbr_config_str(config, "command_hosts");

    if (hosts[0]) /* they replace the hosts of the file */
        fbr_hosts_fini(&s->hosts);
    if (hosts[0] &&
        (hosts[0] == '/' || strncmp(hosts, "./", 2) == 0 || strncmp(hosts, "../", 3) == 0))
        return hosts_of_file(&s->hosts, hosts, err);
    return fbr_hosts_parse(&s->hosts, fbr_config_origin(config, "command_hosts"), hosts, err);
}

/* ---- All of it ---- */

/* Checks that every required key is set. */
static int check(struct fbr_command_settings *s, struct fbr_error *err)
{
    size_t known = 0;

    for (int i = 0; i < JOB_STATES; i++)
        known += s->states[i].n;
    if (s->start.n == 0)
        return fbr_fail(err, -EINVAL,
                        "no command that starts a job: set command_start (\"ssh {host}\"), or "
                        "command_file to a "
                        "file that has start = ...");
    if (fbr_template_complete(&s->start) < 0)
        return fbr_fail(err, -ENOMEM, "out of memory");
    if (s->hosts.n == 0 && fbr_template_has(&s->start, "{host}"))
        return fbr_fail(err, -EINVAL,
                        "%s: the command has a {host}, and there are no hosts: set command_hosts",
                        s->origin);
    if (s->detached && (s->status.n == 0 || s->cancel.n == 0 || !s->ticket_dir || !known))
        return fbr_fail(err, -EINVAL,
                        "%s: kind = detached needs status, cancel, ticket_dir, and the words for "
                        "states (done = "
                        "..., failed = ...)",
                        s->origin);
    return 0;
}

/* A job may run in another folder than this program, which may go to another one, too. */
static int make_absolute(char **dir, struct fbr_error *err)
{
    char here[PATH_MAX], *whole;

    if (!*dir || (*dir)[0] == '/')
        return 0;
    if (!getcwd(here, sizeof(here)))
        return fbr_fail(err, -errno, "ticket_dir %.200s: the current folder is not known: %s", *dir,
                        fbr_strerror(errno));
    if (asprintf(&whole, "%s/%s", here, *dir) < 0)
        return fbr_fail(err, -ENOMEM, "out of memory");
    free(*dir);
    *dir = whole;
    return 0;
}

static int load(struct fbr_command_settings *s, const struct fbr_config *config,
                struct fbr_error *err)
{
    const char *file = fbr_config_str(config, "command_file"),
               *start = fbr_config_str(config, "command_start");
    const char *program = fbr_config_str(config, "command_program");
    int rc;

    snprintf(s->origin, sizeof(s->origin), "%.200s",
             start[0] ? fbr_config_origin(config, "command_start") : file);
    if (file[0] && (rc = fbr_config_scan(file, on_pair, s, err)) < 0)
        return rc;
    if (start[0]) { /* code and environment win over the file */
        fbr_args_fini(&s->start);
        rc = take_words(&s->start, true, start, s->origin, err);
        if (rc < 0)
            return rc;
    }
    if ((rc = load_hosts(s, config, err)) < 0 || (rc = check(s, err)) < 0 ||
        (rc = make_absolute(&s->ticket_dir, err)) < 0)
        return rc;
    if (!program[0])
        return 0;
    s->program = strdup(program);
    return s->program ? 0 : fbr_fail(err, -ENOMEM, "out of memory");
}

int fbr_command_settings_load(struct fbr_command_settings *s, const struct fbr_config *config,
                              struct fbr_error *err)
{
    bool is_ssh;
    int rc;

    *s = (struct fbr_command_settings){.unknown = -1, .starts = UNSAID, .poll_ms = 1000};
    rc = load(s, config, err);
    if (rc < 0) {
        fbr_command_settings_fini(s);
        return rc;
    }
    is_ssh = strcmp(basename(s->start.at[0]), "ssh") == 0;
    if (s->unknown < 0 && is_ssh)
        /* ssh exits with 255 when ssh itself fails, and when a signal ended the job */
        s->unknown = 255;
    if (s->starts == UNSAID)
        s->starts = is_ssh ? SSH_STARTS : STARTS;
    return 0;
}

void fbr_command_settings_fini(struct fbr_command_settings *s)
{
    for (size_t i = 0; i < TEXTS; i++) {
        void *at = (char *)s + texts[i].at;

        if (texts[i].kind == TEXT) {
            free(*(char **)at);
            *(char **)at = NULL;
        } else {
            fbr_args_fini(at);
        }
    }
    fbr_hosts_fini(&s->hosts);
    free(s->program);
    s->program = NULL;
}
