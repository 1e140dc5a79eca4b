/* tree_fuzz.c - a directory from a hostile end: whatever is sent, nothing is made outside of the new directory, and
 * nothing stays of it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/inspect/tree.h"

static char base[64];

static void remove_base(void)
{
    rmdir(base);
}

static void check_links(const uint8_t *data, size_t size)
{
    struct fbr_cur c = fbr_cur(data, size);
    struct fbr_msg_item e;

    if (!fbr_msg_get_item(&c, &e))
        return;
    if (fbr_tree_is_name(e.name) && (strchr(e.name, '/') || !strcmp(e.name, "..") || !e.name[0]))
        abort();
    if (fbr_tree_stays(e.path, 0) && (e.path[0] == '/' || strstr(e.path, "..") == e.path) &&
        (!e.path[2] || e.path[2] == '/'))
        abort();
}

static size_t count_base(void)
{
    DIR *d = opendir(base);
    struct dirent *e;
    size_t n = 0;

    while (d && (e = readdir(d)))
        n += fbr_tree_is_name(e->d_name);
    if (!d || closedir(d) < 0)
        abort();
    return n;
}

static void check_directory(const uint8_t *data, size_t size)
{
    struct fbr_tree t;
    int ends[2];

    if (size > 65536 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return;
    if (send(ends[0], data, size, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size) {
        shutdown(ends[0], SHUT_WR);
        if (fbr_tree_begin(&t, base, "it", FBR_MSG_IS_TREE, NULL) < 0)
            abort();
        fbr_tree_recv(&t, ends[1], NULL);
        if (count_base() > 1)
            abort();
        fbr_tree_drop(&t);
        if (count_base() != 0)
            abort();
    }
    close(ends[0]);
    close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!base[0]) {
        snprintf(base, sizeof(base), "/tmp/fiber-tree-fuzz-XXXXXX");
        if (!mkdtemp(base))
            abort();
        atexit(remove_base);
    }
    check_links(data, size);
    check_directory(data, size);
    return 0;
}
