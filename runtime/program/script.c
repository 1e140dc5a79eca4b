/* script.c - parses the command lines of interpreters.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/program/script.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/fds.h"

#define OWN_MAX 4096 /* of our command line */
#define OWN_WORDS 64

/* name, ends, code, module, value, attached, kept */
static const struct fbr_language languages[] = {
    {"python", ".py", "c", "m", "XW", "", "IEsSP"},
    {"perl", ".pl", "eE", "", "I", "MmFixCDl0V", ""},
    {"sh", ".sh", "c", "", "oO", "", ""},
    {"bash", ".sh", "c", "", "oO", "", ""},
    {"dash", ".sh", "c", "", "oO", "", ""},
    {"zsh", ".sh", "c", "", "oO", "", ""},
};

bool fbr_script_is_named(const char *path, const char *name)
{
    const char *at = basename(path);

    if (strncmp(at, name, strlen(name)) != 0)
        return false;
    at += strlen(name);
    at += at[0] == '-' && isdigit((unsigned char)at[1]);
    if (at[0] && !isdigit((unsigned char)at[0]))
        return false;
    at += strspn(at, "0123456789.");
    at += strspn(at, "dmtu"); /* flags of Python's build */
    return at[0] == '\0' || at[0] == '-';
}

const struct fbr_language *fbr_script_language(const char *path)
{
    for (size_t i = 0; i < sizeof(languages) / sizeof(languages[0]); i++)
        if (fbr_script_is_named(path, languages[i].name))
            return &languages[i];
    return NULL;
}

/* ---- The command line ---- */

/* Parses one word of options. Returns how many words it takes; 0: the options have ended. */
static int parse_word(struct fbr_script *s, const struct fbr_language *l, const char *word,
                      const char *next)
{
    for (const char *at = word + 1; *at; at++) {
        size_t n = strlen(s->kept);

        if (strchr(l->code, *at))
            return 0;
        if (strchr(l->module, *at)) {
            s->module = at[1] ? at + 1 : next;
            return 0;
        }
        if (strchr(l->kept, *at) && n + 1 < sizeof(s->kept))
            s->kept[n] = *at;
        if (*at == 'I' && strchr(l->value, *at) && s->nfolders < FBR_SCRIPT_WORDS)
            s->folders[s->nfolders++] = at[1] ? at + 1 : next ? next : ".";
        if (strchr(l->value, *at))
            return at[1] || !next ? 1 : 2;
        if (strchr(l->attached, *at))
            return 1;
    }
    return 1;
}

void fbr_script_parse(struct fbr_script *s, const struct fbr_language *l, const char *const *words)
{
    int i = 1, taken;

    *s = (struct fbr_script){.kept = "-"};
    while (words[i] && words[i][0] == '-' && words[i][1]) {
        bool lonely = strcmp(words[i], "--") == 0;

        if (words[i][1] == '-') { /* Python's only long option with a value takes two words */
            i += words[i + 1] && strcmp(words[i], "--check-hash-based-pycs") == 0 ? 2 : 1;
            if (lonely)
                break;
            continue;
        }
        taken = parse_word(s, l, words[i], words[i + 1]);
        if (taken == 0)
            return;
        i += taken;
    }
    s->path = words[i] && strcmp(words[i], "-") != 0 ? words[i] : NULL;
}

/* ---- Names ---- */

/* Writes the last part of a path, without the end of a script's name. False: it is no name. */
static bool name_of(const char *path, char *out, size_t size)
{
    const char *base = basename(path);
    size_t len = strlen(base);

    for (size_t i = 0; i < sizeof(languages) / sizeof(languages[0]); i++) {
        size_t n = strlen(languages[i].ends);

        if (len > n && strcmp(base + len - n, languages[i].ends) == 0)
            len -= n;
    }
    snprintf(out, size, "%.*s", (int)len, base);
    return strspn(base, ".") < len;
}

bool fbr_script_is_by_env(const char *const *words)
{
    return words[0] && words[1] && strcmp(basename(words[0]), "env") == 0;
}

int fbr_script_first_line(const char *path, char line[FBR_SCRIPT_LINE],
                          const char *words[FBR_SCRIPT_WORDS])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), n = 0;
    ssize_t len = fd < 0 ? -1 : read(fd, line, FBR_SCRIPT_LINE - 1);
    char *rest = NULL, *word;

    fbr_fds_close(fd);
    line[len > 0 ? len : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    if (strncmp(line, "#!", 2) != 0)
        return 0;
    word = strtok_r(line + 2, " \t\r", &rest);
    for (; word && n < FBR_SCRIPT_WORDS - 1; word = strtok_r(NULL, " \t\r", &rest)) {
        words[n] = word;
        words[n + 1] = NULL;
        if (n == 1 && fbr_script_is_by_env(words)) {
            words[n] += strncmp(word, "-S", 2) == 0 ? 2 : 0;
            if (!words[n][0] || words[n][0] == '-' || strchr(words[n], '='))
                continue;
        }
        n++;
    }
    words[n] = NULL;
    return n;
}

void fbr_script_name(const char *const *command, char *out, size_t size)
{
    const struct fbr_language *l = fbr_script_language(command[0]);
    struct fbr_script s = {0};

    if (l)
        fbr_script_parse(&s, l, command);
    if (s.module)
        snprintf(out, size, "%s", s.module);
    else if (!s.path || !name_of(s.path, out, size))
        name_of(command[0], out, size);
}

void fbr_script_own(char *name, size_t size, char *command, size_t command_size)
{
    char line[OWN_MAX];
    ssize_t n = fbr_fds_read_file("/proc/self/cmdline", line, sizeof(line));
    const char *words[OWN_WORDS + 1] = {program_invocation_short_name};
    int count = 0;

    for (char *at = line; at < line + n && count < OWN_WORDS; at += strlen(at) + 1)
        words[count++] = at;
    if (name)
        fbr_script_name(words, name, size);
    for (int i = 0; command && words[i]; i++) {
        int put = snprintf(command, command_size, "%s%s", i ? " " : "", words[i]);

        put = put < (int)command_size ? put : (int)command_size;
        command += put;
        command_size -= (size_t)put;
    }
}
