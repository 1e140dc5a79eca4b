/* config_value.h - how configuration values are written: the types behind config.h.
 *
 * For config.c alone. Pure; any thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_CONFIG_VALUE_H
#define FBR_CONFIG_VALUE_H

#include "runtime/base/config.h"

/* The number that stands for `text` as a value of k: bool 0 or 1, int, ms, bytes, index of the
 * enum's word, length of a string. -EINVAL with a sentence that begins with `origin` if it has the
 * wrong type or is out of bounds. */
int fbr_value_parse(const struct fbr_config_key *k, const char *text, int64_t *out,
                    const char *origin, struct fbr_error *err);

/* How many characters are to be inserted, removed or replaced to make a of b, whatever their case;
 * SIZE_MAX for words of more than 64 characters. */
size_t fbr_word_distance(const char *a, size_t alen, const char *b, size_t blen);

#endif
