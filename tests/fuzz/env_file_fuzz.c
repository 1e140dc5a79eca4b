/* env_file_fuzz.c - files of variables: each name is one, and what is wrong ends in a sentence.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>

#include "cli/text_file.c"

static int check(void *user, const char *name, const char *value)
{
    const size_t *size = user;

    if (!name[0] || strpbrk(name, "= \t\n") || strlen(name) > *size ||
        (value && (strlen(value) > *size || strchr(value, '\n'))))
        abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fbr_error err = {0, ""};
    char *text = malloc(size + 1);

    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    if (env_file_parse("fuzz", text, size, check, &size, &err) < 0 && !err.text[0])
        abort();
    free(text);
    return 0;
}
