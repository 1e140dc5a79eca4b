/* env_file_fuzz.c - files of variables: each name is one, and what is wrong ends in a sentence.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>

#include "cli/text_file.c"
#include "cli/run_env.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fbr_error err = {0, ""};
    char *text = malloc(size + 1);
    struct fbr_env env = {0};

    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    if (text_file_lines("fuzz", text, size, run_env_line, &env, &err) < 0 && !err.text[0])
        abort();
    for (size_t i = 0; i < env.count; i++) {
        size_t len = strcspn(env.list[i], "=");

        if (!len || !env.list[i][len] || strcspn(env.list[i], " \t\n") < len)
            abort();
    }
    fbr_env_fini(&env);
    free(text);
    return 0;
}
