/* entry.c - runs the function that FIBER_WORK names.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/proc/entry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/fds.h"
#include "runtime/proc/fnref.h"

int fbr_entry_put(struct fbr_buf *b, fiber_process_fn fn, const void *arg, size_t len,
                  struct fbr_error *err)
{
    struct fbr_fnref ref;
    int rc = fbr_fnref_make(&ref, (void (*)(void))fn, err);

    if (rc < 0)
        return rc;
    fbr_fnref_put(b, &ref);
    fbr_put_bytes(b, arg, len);
    return b->failed ? fbr_fail(err, -ENOMEM, "out of memory") : 0;
}

static int read_file(const char *path, char **data, size_t *len, struct fbr_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), rc;
    struct stat st;

    if (fd < 0)
        return fbr_fail(err, -errno, FBR_ENTRY_ENV "=%s: %s; is the launcher gone?", path,
                        fbr_strerror(errno));
    if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 077)) {
        close(fd);
        return fbr_fail(
            err, -EACCES,
            FBR_ENTRY_ENV "=%s: must be a file of this user that no other user can access", path);
    }
    rc = fbr_fds_read_all(fd, (size_t)st.st_size, data, len);
    return rc < 0 ? fbr_fail(err, rc, "cannot read %s: %s", path, fbr_strerror(rc)) : 0;
}

int fbr_entry_run(char root[FBR_DIR_MAX], struct fbr_error *err)
{
    const char *path = getenv(FBR_ENTRY_ENV);
    struct fbr_fnref ref;
    struct fbr_cur c;
    char *data;
    const void *arg;
    void (*fn)(void);
    size_t len;
    int rc;

    if (!path || !path[0])
        return 0;
    rc = read_file(path, &data, &len, err);
    unsetenv(FBR_ENTRY_ENV);
    if (rc < 0)
        return rc;
    c = fbr_cur(data, len);
    fbr_get_str(&c, root, FBR_DIR_MAX);
    fbr_fnref_get(&c, &ref);
    arg = fbr_get_bytes(&c, &len);
    rc = fbr_cur_ok(&c) ? fbr_fnref_resolve(&ref, &fn, err)
                        : fbr_fail(err, -EBADMSG, "%s is damaged", path);
    if (rc < 0)
        goto fail;
    memmove(data, arg, len); /* where it is aligned */
    rc = ((fiber_process_fn)fn)(data, len);
    free(data);
    exit(rc & 255);
fail:
    free(data);
    return rc;
}
