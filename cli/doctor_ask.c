/* doctor_ask.c - asks other programs who they are, and does not wait long for the answer.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "cli/doctor.h"
#include "runtime/base/spawn.h"
#include "runtime/base/subprocess.h"

#define PATIENCE_MS 5000
#define OUTPUT_MAX (16u << 20)

int doctor_which(const char *name, char *path, size_t size)
{
    return fbr_spawn_find(name, path, size, NULL);
}

int doctor_ask_all(const char *const *argv, char *text, size_t size)
{
    char path[PATH_MAX];
    struct fbr_subprocess p = {.file = path,
                               .argv = (char *const *)argv,
                               .in = -1,
                               .errors = -1,
                               .limit_ms = PATIENCE_MS,
                               .max = OUTPUT_MAX};
    int rc = doctor_which(argv[0], path, sizeof(path)), code = 0;
    struct fbr_buf out;

    fbr_buf_init(&out);
    if (rc == 0)
        rc = fbr_subprocess_run(&p, &out, &code, NULL);
    snprintf(text, size, "%.*s", (int)out.len, out.len ? (const char *)out.data : "");
    fbr_buf_fini(&out);
    return rc == 0 && code != 0 && !text[0] ? -EIO : rc;
}

int doctor_ask(const char *const *argv, char *line, size_t size)
{
    int rc = doctor_ask_all(argv, line, size);

    line[strcspn(line, "\n")] = '\0';
    return rc;
}
