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

void fbr_entry_put_root(struct fbr_buf *b, const char *root)
{
    fbr_put_str(b, root);
}

static int read_file(const char *path, struct fbr_buf *b, struct fbr_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    ssize_t n = 1;
    void *at;

    if (fd < 0)
        return fbr_fail(err, -errno, FBR_ENTRY_ENV "=%s: %s; is the launcher gone?", path,
                        fbr_strerror(errno));
    if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 077)) {
        close(fd);
        return fbr_fail(
            err, -EACCES,
            FBR_ENTRY_ENV "=%s: must be a file of this user that no other user can access", path);
    }
    while (n > 0 && (at = fbr_buf_reserve(b, 65536))) {
        n = read(fd, at, 65536);
        b->len += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    return b->failed ? fbr_fail(err, -ENOMEM, "out of memory")
           : n < 0   ? fbr_fail(err, -EIO, "cannot read %s", path)
                     : 0;
}

int fbr_entry_run(char root[FBR_DIR_MAX], struct fbr_error *err)
{
    const char *path = getenv(FBR_ENTRY_ENV);
    struct fbr_fnref ref;
    struct fbr_buf b;
    struct fbr_cur c;
    const void *arg;
    void (*fn)(void);
    size_t len;
    int rc;

    if (!path || !path[0])
        return 0;
    fbr_buf_init(&b);
    rc = read_file(path, &b, err);
    unsetenv(FBR_ENTRY_ENV);
    if (rc < 0)
        goto fail;
    c = fbr_cur(b.data, b.len);
    fbr_get_str(&c, root, FBR_DIR_MAX);
    fbr_fnref_get(&c, &ref);
    arg = fbr_get_bytes(&c, &len);
    rc = fbr_cur_ok(&c) ? fbr_fnref_resolve(&ref, &fn, err)
                        : fbr_fail(err, -EBADMSG, "%s is damaged", path);
    if (rc < 0)
        goto fail;
    memmove(b.data, arg, len); /* where it is aligned */
    rc = ((fiber_process_fn)fn)(b.data, len);
    fbr_buf_fini(&b);
    exit(rc & 255);
fail:
    fbr_buf_fini(&b);
    return rc;
}
