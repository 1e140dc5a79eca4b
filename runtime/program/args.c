/* args.c - splits a line into the words of a command, and joins them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/program/args.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLANKS " \t\r\n"

int fbr_args_add(struct fbr_args *w, const char *word, size_t len)
{
    char *copy = malloc(len + 1);

    if (!copy || !fbr_grow(&w->at, w->n + 1, sizeof(*w->at))) { /* the NULL is an element, too */
        free(copy);
        w->failed = true;
        return -ENOMEM;
    }
    memcpy(copy, word, len);
    copy[len] = '\0';
    w->at[w->n++] = copy;
    return 0;
}

int fbr_args_addf(struct fbr_args *w, const char *fmt, ...)
{
    char *text;
    va_list ap;
    int n, rc;

    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    w->failed |= n < 0;
    if (n < 0)
        return -ENOMEM;
    rc = fbr_args_add(w, text, (size_t)n);
    free(text);
    return rc;
}

int fbr_args_add_all(struct fbr_args *w, char *const *list)
{
    for (; list && *list; list++)
        if (fbr_args_add(w, *list, strlen(*list)) < 0)
            return -ENOMEM;
    return 0;
}

/* env takes a path such as lr=0.1/train for a variable, so a shell starts such a program. */
int fbr_args_add_program(struct fbr_args *w, const char *file)
{
    static char *shell[] = {"sh", "-c", "exec \"$0\" \"$@\"", NULL};

    if (strchr(file, '=') && fbr_args_add_all(w, shell) < 0)
        return -ENOMEM;
    return fbr_args_add(w, file, strlen(file));
}

char **fbr_args_take(struct fbr_args *w)
{
    char **list;

    if (w->failed) {
        fbr_args_fini(w);
        return NULL;
    }
    list = w->at ? w->at : calloc(1, sizeof(*list));
    *w = (struct fbr_args){0};
    return list;
}

void fbr_args_fini(struct fbr_args *w)
{
    for (size_t i = 0; i < w->n; i++)
        free(w->at[i]);
    free(w->at);
    *w = (struct fbr_args){0};
}

int fbr_args_split(struct fbr_args *w, const char *text, struct fbr_error *err)
{
    char *word = malloc(strlen(text) + 1);
    int rc = word ? 0 : fbr_fail(err, -ENOMEM, "out of memory");
    const char *at = text;

    w->failed |= !word;
    while (rc == 0 && *(at += strspn(at, BLANKS))) {
        char quote = 0;
        size_t n = 0;

        for (; *at && (quote || !strchr(BLANKS, *at)); at++) {
            if (*at == quote)
                quote = 0;
            else if (!quote && (*at == '\'' || *at == '"'))
                quote = *at;
            else if (*at == '\\' && at[1] && (!quote || (quote == '"' && strchr("$`\"\\", at[1]))))
                word[n++] = *++at;
            else
                word[n++] = *at;
        }
        if (quote)
            rc = fbr_fail(err, -EINVAL, "a quote %c is not closed: %.200s", quote, text);
        else if (fbr_args_add(w, word, n) < 0)
            rc = fbr_fail(err, -ENOMEM, "out of memory");
    }
    free(word);
    return rc;
}

void fbr_args_quote(struct fbr_buf *b, const char *word)
{
    if (*word &&
        word[strspn(word,
                    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/.,:=+@%-")] ==
            0) {
        fbr_put(b, word, strlen(word));
        return;
    }
    fbr_put_u8(b, '\'');
    for (; *word; word++)
        fbr_put(b, *word == '\'' ? "'\\''" : word, *word == '\'' ? 4 : 1);
    fbr_put_u8(b, '\'');
}

void fbr_args_line(const struct fbr_args *w, struct fbr_buf *line)
{
    for (size_t i = 0; i < w->n; i++) {
        if (i)
            fbr_put_u8(line, ' ');
        fbr_args_quote(line, w->at[i]);
    }
}
