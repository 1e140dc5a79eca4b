/* crypto_lazy_test.c - the functions of the module of OpenSSL, as the shared library calls them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/net/crypto_lazy.c"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/sync.h"

static void *load(void *path)
{
    return dlopen(path, RTLD_NOW);
}

/* The loader reads a library under its lock, here from a pipe, until we close that. */
static void test_a_library_that_loads_slowly_holds_no_connection_up(void **state)
{
    static const uint8_t psk[FBR_KEY_SIZE];
    char dir[64], path[128];
    struct fbr_tls *t;
    struct fbr_buf out = {0};
    pthread_t loader;
    void *library;
    int fd;

    temp_dir_make(dir);
    snprintf(path, sizeof(path), "%s/library.so", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(fbr_tls_client(&t, "name", psk, NULL), 0);
    assert_int_equal(pthread_create(&loader, NULL, load, path), 0);
    fd = open(path, O_WRONLY);
    assert_true(fd >= 0);

    assert_int_equal(fbr_tls_step(t, NULL), 0);
    assert_int_equal(fbr_tls_pending(t, &out), 0);
    assert_true(out.len > 0);
    assert_false(fbr_tls_ready(t));
    fbr_tls_free(t);

    close(fd);
    assert_int_equal(pthread_join(loader, &library), 0);
    assert_null(library);
    fbr_buf_fini(&out);
    temp_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_library_that_loads_slowly_holds_no_connection_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
