/* config_set.c - writes one setting into the user's file.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/config_set.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/text_file.h"
#include "runtime/base/config.h"
#include "runtime/base/fds.h"
#include "runtime/base/atomic_file.h"
#include "runtime/proc/rundir.h"

/* ---- The text ---- */

/* Counts the blanks at the beginning of a line of n bytes, at most n - 1. */
static size_t skip_blanks(const char *line, size_t n)
{
    size_t i = 0;

    while (i + 1 < n && (line[i] == ' ' || line[i] == '\t'))
        i++;
    return i;
}

static bool is_setting(const char *line, size_t n, const char *key)
{
    size_t len = strlen(key), at = skip_blanks(line, n);

    if (n < at + len + 1 || memcmp(line + at, key, len) != 0)
        return false;
    at += len;
    at += skip_blanks(line + at, n - at);
    return line[at] == '=' || line[at] == ':';
}

static void put_setting(struct fbr_buf *b, const char *key, const char *value)
{
    fbr_putf(b, "%s = %s\n", key, value);
}

char *config_set_text(const char *text, size_t len, const char *key, const char *value)
{
    const char *end = len ? text + len : text, *next;
    bool put = false, in_section = false;
    struct fbr_buf b = {0};

    for (const char *line = text; line < end; line = next) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t n = (size_t)((stop ? stop : end) - line);
        bool section = n && line[skip_blanks(line, n)] == '[',
             same = !in_section && is_setting(line, n, key);

        next = stop ? stop + 1 : end;
        in_section |= section;
        if (!put && (same || section)) {
            put_setting(&b, key, value);
            put = true;
        }
        if (!same) {
            fbr_put(&b, line, n);
            fbr_put(&b, "\n", 1);
        }
    }
    if (!put)
        put_setting(&b, key, value);
    return fbr_buf_text(&b);
}

/* ---- The file ---- */

/* Refuses a value that would change when the file is read: a value with a line break or a comment
 * in it, or with blanks at its ends. */
static int check(const char *key, const char *value, const char *text, struct fbr_error *err)
{
    struct fbr_config *given = fbr_config_new(), *back = fbr_config_new();
    int rc = -ENOMEM;

    if (given && back && (rc = fbr_config_set(given, key, value, "fiber config set", err)) == 0 &&
        (strchr(value, '\n') ||
         ((rc = fbr_config_parse(back, "fiber.conf", text, strlen(text), err)) == 0 &&
          strcmp(fbr_config_str(back, key), fbr_config_str(given, key)) != 0)))
        rc = fbr_fail(err, -EINVAL,
                      "%s: a file cannot hold a value with a line break, with \" ;\" or \" #\", or "
                      "with blanks at its ends: set it in the environment instead",
                      key);
    fbr_config_free(given);
    fbr_config_free(back);
    return rc == -ENOMEM ? fbr_fail(err, rc, "out of memory") : rc;
}

/* Makes the file, or replaces it as a whole; it keeps its mode. */
static int replace(const char *path, const char *text, struct fbr_error *err)
{
    struct fbr_atomic f;
    struct stat old;
    int rc = fbr_rundir_parents(path, 0700);

    if (rc < 0)
        return fbr_fail(err, rc, "cannot make the folder of %s: %s", path, fbr_strerror(rc));
    if (fbr_atomic_begin(&f, path, "", err) < 0)
        return fbr_wrap(err, "cannot write");
    rc = fbr_fds_write(f.fd, text, strlen(text));
    if (rc < 0 || fsync(f.fd) < 0) {
        rc = rc < 0 ? rc : -errno;
        fbr_atomic_drop(&f);
        return fbr_fail(err, rc, "cannot write %s: %s", path, fbr_strerror(rc));
    }
    if (fbr_atomic_commit(&f, stat(path, &old) == 0 ? old.st_mode : 0600, err) < 0)
        return fbr_wrap(err, "cannot write");
    return 0;
}

int config_set(const char *key, const char *value, char *path, size_t size, struct fbr_error *err)
{
    char *old = NULL, *text = NULL;
    size_t len = 0;
    int rc = fbr_config_user_file(path, size);

    if (rc < 0)
        return fbr_fail(err, rc, "cannot write settings: neither HOME nor XDG_CONFIG_HOME is set");
    if (access(path, F_OK) == 0 && (rc = text_file_read(path, &old, &len, err)) < 0)
        return rc;
    text = config_set_text(old, len, key, value);
    free(old);
    if (!text)
        return fbr_fail(err, -ENOMEM, "out of memory");
    rc = check(key, value, text, err) < 0 ? err->code : replace(path, text, err);
    free(text);
    return rc;
}
