/* template.c - commands with placeholders, and lists of hosts.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/command/template.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/buf.h"

#define BLANKS " \t\r\n"

/* ---- Placeholders ---- */

enum placeholder {
    P_HOST,
    P_NAME,
    P_RUN,
    P_ID,
    P_WORKDIR,
    P_PROGRAM,
    P_LABEL,
    P_ARGV,
    P_COMMAND,
    P_SHELL,
    P_IDS,
    PLACES
};

static const char *const places[PLACES] = {"{host}",    "{name}",          "{run}",   "{id}",
                                           "{workdir}", "{program}",       "{label}", "{argv}",
                                           "{command}", "{shell_command}", "{ids}"};

/* Returns the placeholder that begins here, or PLACES. */
static enum placeholder place_at(const char *text)
{
    size_t i = 0;

    while (i < PLACES && strncmp(text, places[i], strlen(places[i])) != 0)
        i++;
    return (enum placeholder)i;
}

static bool whole_word_only(enum placeholder p)
{
    return p == P_ARGV || p == P_COMMAND;
}

int fbr_template_check(const struct fbr_args *t, struct fbr_error *err)
{
    for (size_t i = 0; i < t->n; i++)
        for (const char *at = t->at[i]; *at; at++) {
            enum placeholder p;

            if (*at != '{')
                continue;
            if (at[1] == '{') {
                at++;
                continue;
            }
            p = place_at(at);
            if (p == PLACES)
                return fbr_fail(
                    err, -EINVAL,
                    "unknown placeholder in '%.100s'; use {host} {name} {run} {id} {workdir} "
                    "{program} {label} {argv} {command} {shell_command} {ids}, and {{ is a brace",
                    t->at[i]);
            if (whole_word_only(p) && strcmp(t->at[i], places[p]) != 0)
                return fbr_fail(
                    err, -EINVAL,
                    "%s stands for several words, and must be a word of its own: '%.100s'",
                    places[p], t->at[i]);
            at += strlen(places[p]) - 1;
        }
    return 0;
}

bool fbr_template_has(const struct fbr_args *t, const char *placeholder)
{
    for (size_t i = 0; i < t->n; i++)
        for (const char *at = t->at[i]; (at = strchr(at, '{')); at++) {
            if (at[1] == '{')
                at++;
            else if (strncmp(at, placeholder, strlen(placeholder)) == 0)
                return true;
        }
    return false;
}

int fbr_template_complete(struct fbr_args *t)
{
    const char *base = t->n ? basename(t->at[0]) : "";
    enum placeholder p = P_COMMAND;

    if (fbr_template_has(t, "{command}") || fbr_template_has(t, "{shell_command}") ||
        fbr_template_has(t, "{program}"))
        return 0;
    if (strcmp(base, "ssh") == 0 || strcmp(base, "rsh") == 0)
        p = P_SHELL;
    return fbr_args_add(t, places[p], strlen(places[p]));
}

/* True for NAME=VALUE. Without this check env would take the text for an option or for the
 * program. */
static bool is_setting(const char *text)
{
    return (isalpha((unsigned char)*text) || *text == '_') && strchr(text, '=') &&
           strncmp(text, "FIBER_TICKET=", 13) != 0;
}

static void command_words(const struct fbr_fill *f, struct fbr_args *w)
{
    fbr_args_addf(w, "env");
    if (f->workdir && f->workdir[0]) {
        fbr_args_addf(w, "-C");
        fbr_args_addf(w, "%s", f->workdir);
    }
    if (f->ticket)
        fbr_args_addf(w, "FIBER_TICKET=%s", f->ticket);
    for (size_t i = 0; f->env && f->env[i]; i++)
        if (is_setting(f->env[i]))
            fbr_args_addf(w, "%s", f->env[i]);
    fbr_args_add_program(w, f->program ? f->program : "");
    fbr_args_add_all(w, f->argv);
}

static void put_shell(struct fbr_buf *b, const struct fbr_fill *f)
{
    struct fbr_args w = {0};

    command_words(f, &w);
    b->failed |= w.failed;
    fbr_args_line(&w, b);
    fbr_args_fini(&w);
}

static void put_text(struct fbr_buf *b, enum placeholder p, const struct fbr_fill *f)
{
    const char *const texts[] = {f->host, f->name, f->run, f->id, f->workdir, f->program, f->label};

    if (p == P_SHELL) {
        put_shell(b, f);
    } else if (p == P_IDS) {
        for (size_t i = 0; f->ids && f->ids[i]; i++) {
            fbr_put(b, ",", i > 0);
            fbr_put(b, f->ids[i], strlen(f->ids[i]));
        }
    } else if ((size_t)p < sizeof(texts) / sizeof(texts[0]) && texts[p]) {
        fbr_put(b, texts[p], strlen(texts[p]));
    }
}

static void fill_word(const char *word, const struct fbr_fill *f, struct fbr_args *out)
{
    struct fbr_buf b = {0};

    for (const char *at = word; *at; at++) {
        enum placeholder p = *at == '{' ? place_at(at) : PLACES;

        if (p != PLACES) {
            put_text(&b, p, f);
            at += strlen(places[p]) - 1;
        } else {
            fbr_put(&b, at, 1);
            at += at[0] == '{' && at[1] == '{';
        }
    }
    out->failed |= b.failed;
    fbr_args_add(out, b.len ? (const char *)b.data : "", b.len);
    fbr_buf_fini(&b);
}

int fbr_template_fill(const struct fbr_args *t, const struct fbr_fill *f, struct fbr_args *out,
                      struct fbr_error *err)
{
    for (size_t i = 0; i < t->n; i++) {
        const char *word = t->at[i];

        if (strcmp(word, places[P_COMMAND]) == 0)
            command_words(f, out);
        else if (strcmp(word, places[P_ARGV]) == 0)
            fbr_args_add_all(out, f->argv);
        else if (strcmp(word, places[P_IDS]) == 0)
            fbr_args_add_all(out, (char *const *)(uintptr_t)f->ids);
        else
            fill_word(word, f, out);
    }
    if (!out->failed)
        return 0;
    fbr_args_fini(out);
    return fbr_fail(err, -ENOMEM, "out of memory");
}

/* ---- Labels ---- */

#define LABEL "fiber:"

void fbr_label(char out[FBR_LABEL_MAX], const char *run, const char *master, const char *name)
{
    int n = snprintf(out, FBR_LABEL_MAX, LABEL "%.32s:%.63s:", run, master);

    for (; *name && n < FBR_LABEL_MAX - 1; name++)
        out[n++] = isalnum((unsigned char)*name) || strchr("._-", *name) ? *name : '_';
    out[n] = '\0';
}

/* Ends the text at the next colon and returns the text after it. */
static char *next_part(char *at)
{
    char *colon = at ? strchr(at, ':') : NULL;

    if (colon)
        *colon++ = '\0';
    return colon;
}

bool fbr_label_line(char *line, struct fbr_labelled *job)
{
    char *id = line + strspn(line, BLANKS "|"), *label = strstr(line, LABEL), *run, *host, *at;

    if (!label || label == id)
        return false;
    run = label + strlen(LABEL);
    host = next_part(run);
    at = host; /* HOST:PID:MARK.START:NAME */
    for (int colons = 0; at && colons < 2; colons++)
        at = (at = strchr(at, ':')) ? at + 1 : NULL;
    at = next_part(at);
    if (!at || !*run || strspn(run, "0123456789abcdef") != strlen(run))
        return false;
    at[strcspn(at, BLANKS "|")] = '\0';
    id[strcspn(id, BLANKS "|")] = '\0';
    *job = (struct fbr_labelled){.id = id, .run = run, .master = host, .name = at};
    return id[0] && id[0] != '-';
}

/* ---- Hosts ---- */

static int bad_host(const char *origin, int line, const char *word, size_t len,
                    struct fbr_error *err)
{
    return fbr_fail(err, -EINVAL,
                    "%s:%d: '%.*s' is not a host: write NAME, NAME:SLOTS or [ADDRESS]:SLOTS",
                    origin, line, (int)(len < 100 ? len : 100), word);
}

/* Returns 0 if the text is not a number of slots. */
static unsigned read_slots(const char *text, size_t len)
{
    char digits[7];

    if (len == 0 || len >= sizeof(digits))
        return 0;
    snprintf(digits, sizeof(digits), "%.*s", (int)len, text);
    return digits[strspn(digits, "0123456789")] ? 0 : (unsigned)strtoul(digits, NULL, 10);
}

static int add_host(struct fbr_hosts *h, const char *name, size_t len, unsigned slots,
                    struct fbr_error *err)
{
    char *copy = strndup(name, len);

    if (!copy || !fbr_grow(&h->at, h->n, sizeof(*h->at))) {
        free(copy);
        return fbr_fail(err, -ENOMEM, "out of memory");
    }
    h->at[h->n++] = (struct fbr_host){.name = copy, .slots = slots};
    return 0;
}

/* A host must not look like an option to the command that gets it. */
static bool is_name(const char *name, size_t len)
{
    if (len == 0 || len > 255 || name[0] == '-')
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isgraph((unsigned char)name[i]) || strchr("\"'\\$`;&|<>()", name[i]))
            return false;
    return true;
}

int fbr_host_split(const char *word, size_t len, const char **name, size_t *n, unsigned *slots)
{
    const char *rest = NULL;

    *name = word;
    *n = len;
    *slots = 0;
    if (len && word[0] == '[') { /* an IPv6 address, perhaps with a number after it */
        const char *end = memchr(word, ']', len);

        if (!end)
            return -EINVAL;
        *name = word + 1;
        *n = (size_t)(end - *name);
        rest = end + 1 < word + len ? end + 1 : NULL;
    } else {
        const char *colon = memchr(word, ':', len);

        if (colon && !memchr(colon + 1, ':', (size_t)(word + len - colon - 1))) {
            *n = (size_t)(colon - word);
            rest = colon;
        }
    }
    if (rest) {
        *slots = *rest == ':' ? read_slots(rest + 1, (size_t)(word + len - rest - 1)) : 0;
        if (!*slots)
            return -EINVAL;
    }
    return is_name(*name, *n) ? 0 : -EINVAL;
}

static int take_host(struct fbr_hosts *h, const char *origin, int line, const char *word,
                     size_t len, struct fbr_error *err)
{
    const char *name;
    unsigned slots;
    size_t n;

    if (len > 6 && strncmp(word, "slots=", 6) == 0) {
        slots = read_slots(word + 6, len - 6);
        if (!slots || !h->n)
            return bad_host(origin, line, word, len, err);
        h->at[h->n - 1].slots = slots;
        return 0;
    }
    return fbr_host_split(word, len, &name, &n, &slots) < 0 ? bad_host(origin, line, word, len, err)
                                                            : add_host(h, name, n, slots, err);
}

int fbr_hosts_parse(struct fbr_hosts *h, const char *origin, const char *text,
                    struct fbr_error *err)
{
    int line = 1, rc;

    while (*text) {
        size_t n = strcspn(text, BLANKS ",#");

        if (n) {
            rc = take_host(h, origin, line, text, n, err);
            if (rc < 0)
                return rc;
            text += n;
        } else if (*text == '#') {
            text += strcspn(text, "\n");
        } else {
            line += *text++ == '\n';
        }
    }
    return 0;
}

struct fbr_host *fbr_hosts_pick(struct fbr_hosts *h)
{
    for (int full = 0; full < 2; full++)
        for (size_t i = 0; i < h->n; i++) {
            size_t k = (h->next + i) % h->n;

            if (full || !h->at[k].slots || h->at[k].used < h->at[k].slots) {
                h->next = k + 1;
                return &h->at[k];
            }
        }
    return NULL;
}

void fbr_hosts_fini(struct fbr_hosts *h)
{
    for (size_t i = 0; i < h->n; i++)
        free(h->at[i].name);
    free(h->at);
    *h = (struct fbr_hosts){0};
}
