/* config_value.h - a setting, its type, and the text form of its values.
 *
 * Pure; any thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "runtime/base/error.h"

enum fbr_config_type {
    FBR_CONFIG_BOOL,
    FBR_CONFIG_INT,
    FBR_CONFIG_MS,
    FBR_CONFIG_SIZE,
    FBR_CONFIG_ENUM,
    FBR_CONFIG_STR
};

struct fbr_config_key {
    const char *name, *env;
    enum fbr_config_type type;
    const char *fallback; /* the default, as it would be written in a file */
    int64_t min, max;     /* bounds of the value (ms, bytes), or of the length of a string */
    const char *words;    /* the words of an enum, separated by single spaces */
    const char *help;     /* one line */
};

/* Stores the number that `text` stands for as a value of k: bool 0 or 1, int, ms, bytes, the index
 * of an enum's word, the length of a string. -EINVAL, with a sentence that begins with `origin`,
 * and with the key's name unless that is NULL: the value has the wrong type or is out of bounds. */
int fbr_value_parse(const struct fbr_config_key *k, const char *text, int64_t *out,
                    const char *origin, struct fbr_error *err);

/* Stores the number that all of the text is: digits, also after a '-'. False: it is not a number
 * from `min` to `max`, and *out does not change. */
static inline bool fbr_number(const char *text, int64_t min, int64_t max, int64_t *out)
{
    int64_t n;
    char *end;

    if (!isdigit((unsigned char)text[*text == '-']))
        return false;
    errno = 0;
    n = strtoll(text, &end, 10);
    if (*end || errno || n < min || n > max)
        return false;
    *out = n;
    return true;
}

/* Returns the index of a word in a list of words that single blanks separate; -1: it has no such
 * word. */
int fbr_word_index(const char *words, const char *word);
/* Cuts the next word off a text with blanks between its words; "\\ " is a blank in a word. NULL at
 * the end. */
char *fbr_value_word(char **text);

/* Returns how many characters must be inserted, removed, replaced, or swapped with a neighbour, to
 * turn a into b; letter case does not count. SIZE_MAX: a word has more than 64 characters. */
size_t fbr_word_distance(const char *a, size_t alen, const char *b, size_t blen);
