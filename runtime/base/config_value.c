/* config_value.c - the types of configuration values: turns text into a number, or into an error
 * with a sentence.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/config_value.h"

#include <stdio.h>
#include <string.h>

#define MAX_WORD 64 /* longest word that is compared for a suggestion */

/* Units in order of growing scale, so that the last one that divides a number is the largest. */
struct unit {
    const char *name;
    int64_t scale;
};
static const struct unit durations[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {NULL, 0}};
static const struct unit sizes[] = {
    {"", 1},         {"k", 1000},       {"K", 1000},     {"Ki", 1 << 10},      {"M", 1000000},
    {"Mi", 1 << 20}, {"G", 1000000000}, {"Gi", 1 << 30}, {"T", 1000000000000}, {"Ti", 1LL << 40},
    {NULL, 0},
};

/* Parses a decimal number with a unit. Stores a whole number of the smallest unit. */
static int scaled_parse(const char *s, const struct unit *unit, int64_t *out)
{
    int64_t whole = 0, fraction = 0, one = 1;
    const char *start = s;

    for (; isdigit((unsigned char)*s); s++)
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, *s - '0', &whole))
            return -ERANGE;
    if (s != start && *s == '.')
        for (s++; isdigit((unsigned char)*s) && one < 1000000; s++, one *= 10)
            fraction = fraction * 10 + (*s - '0');
    if (s == start)
        return -EINVAL;
    while (*s == ' ')
        s++;
    while (unit->name && strcmp(s, unit->name))
        unit++;
    if (!unit->name || fraction * unit->scale % one)
        return -EINVAL;
    if (__builtin_mul_overflow(whole, unit->scale, &whole) ||
        __builtin_add_overflow(whole, fraction * unit->scale / one, &whole))
        return -ERANGE;
    *out = whole;
    return 0;
}

static int int_parse(const char *s, int64_t *out)
{
    char *end;

    if (!isdigit((unsigned char)s[*s == '-']))
        return -EINVAL;
    errno = 0;
    *out = strtoll(s, &end, 10);
    return *end ? -EINVAL : -errno;
}

static int bool_parse(const char *s, int64_t *out)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (!strcasecmp(s, words[i])) {
            *out = i % 2;
            return 0;
        }
    return -EINVAL;
}

int fbr_word_index(const char *words, const char *word)
{
    size_t len = strlen(word);

    for (int i = 0; words && *words; i++) {
        size_t n = strcspn(words, " ");

        if (n == len && !strncmp(words, word, n))
            return i;
        words += n + (words[n] == ' ');
    }
    return -1;
}

static int text_parse(const struct fbr_config_key *k, const char *text, int64_t *out)
{
    switch (k->type) {
    case FBR_CONFIG_BOOL:
        return bool_parse(text, out);
    case FBR_CONFIG_INT:
        return int_parse(text, out);
    case FBR_CONFIG_MS:
        return scaled_parse(text, durations, out);
    case FBR_CONFIG_SIZE:
        return scaled_parse(text, sizes, out);
    case FBR_CONFIG_ENUM:
        *out = fbr_word_index(k->words, text);
        return *out < 0 ? -EINVAL : 0;
    case FBR_CONFIG_STR:
        *out = (int64_t)strlen(text);
        return 0;
    }
    return -EINVAL;
}

/* Formats a bound in the largest unit that divides it. */
static void bound_format(const struct fbr_config_key *k, int64_t v, char out[32])
{
    static const struct unit plain[] = {{"", 1}, {NULL, 0}};
    const struct unit *u = k->type == FBR_CONFIG_MS     ? durations
                           : k->type == FBR_CONFIG_SIZE ? sizes
                                                        : plain;
    const struct unit *best = u;

    for (; u->name; u++)
        if (v && v % u->scale == 0 && u->scale > best->scale)
            best = u;
    snprintf(out, 32, "%lld%s", (long long)(v / best->scale), best->name);
}

static int text_refuse(const struct fbr_config_key *k, const char *text, int rc, const char *origin,
                       struct fbr_error *err)
{
    const char *colon = k->name ? ": " : "", *name = k->name ? k->name : "";
    static const char *const wanted[] = {
        [FBR_CONFIG_BOOL] = "true or false",
        [FBR_CONFIG_INT] = "a whole number",
        [FBR_CONFIG_MS] = "a duration: a number with a unit, ms, s, m or h, such as 500ms or 5s",
        [FBR_CONFIG_SIZE] = "a size: bytes, or a number with K, M, G, Ki, Mi or Gi, such as 512Mi",
    };
    char min[32], max[32];

    if (k->type == FBR_CONFIG_ENUM)
        return fbr_fail(err, -EINVAL, "%s%s%s is \"%.64s\", but must be one of: %s", origin, colon,
                        name, text, k->words);
    if (rc == -EINVAL)
        return fbr_fail(err, -EINVAL, "%s%s%s is \"%.64s\", which is not %s", origin, colon, name,
                        text, wanted[k->type]);
    bound_format(k, k->min, min);
    bound_format(k, k->max, max);
    if (k->type == FBR_CONFIG_STR)
        return fbr_fail(err, -EINVAL, "%s%s%s must have %s to %s characters", origin, colon, name,
                        min, max);
    return fbr_fail(err, -EINVAL, "%s%s%s is %.64s, but must be from %s to %s", origin, colon, name,
                    text, min, max);
}

int fbr_value_parse(const struct fbr_config_key *k, const char *text, int64_t *out,
                    const char *origin, struct fbr_error *err)
{
    int rc = text_parse(k, text, out);

    if (!rc && k->max > k->min && (*out < k->min || *out > k->max))
        rc = -ERANGE;
    return rc ? text_refuse(k, text, rc, origin, err) : 0;
}

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* The optimal string alignment distance, with three rows of the matrix. */
size_t fbr_word_distance(const char *a, size_t alen, const char *b, size_t blen)
{
    size_t rows[3][MAX_WORD + 1];

    if (alen > MAX_WORD || blen > MAX_WORD)
        return SIZE_MAX;
    for (size_t j = 0; j <= blen; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= alen; i++) {
        size_t *row = rows[i % 3];
        const size_t *last = rows[(i + 2) % 3], *second_last = rows[(i + 1) % 3];

        row[0] = i;
        for (size_t j = 1; j <= blen; j++) {
            row[j] = last[j - 1] + !same_letter(a[i - 1], b[j - 1]);
            if (row[j] > last[j] + 1)
                row[j] = last[j] + 1;
            if (row[j] > row[j - 1] + 1)
                row[j] = row[j - 1] + 1;
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1]) && row[j] > second_last[j - 2] + 1)
                row[j] = second_last[j - 2] + 1;
        }
    }
    return rows[alen % 3][blen];
}

char *fbr_value_word(char **text)
{
    char *at = *text + strspn(*text, " "), *word = at, *to = at;

    while (*at && *at != ' ') {
        at += at[0] == '\\' && at[1];
        *to++ = *at++;
    }
    *text = at + (*at != '\0');
    *to = '\0';
    return word < to ? word : NULL;
}
