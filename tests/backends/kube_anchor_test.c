/* kube_anchor_test.c - notes of the first Secrets of runs: they are found by server and namespace, and nothing else
 * that may lie there is taken for one.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/kubernetes/anchor.h"

static char base[64], notes[96];

static int set_up(void **state)
{
    (void)state;
    strcpy(base, "/tmp/fiber-anchor-XXXXXX");
    if (!mkdtemp(base))
        return -1;
    snprintf(notes, sizeof(notes), "%s/fiber/kubernetes", base);
    return setenv("XDG_RUNTIME_DIR", base, 1);
}

static int tear_down(void **state)
{
    char path[96];

    (void)state;
    rmdir(notes);
    snprintf(path, sizeof(path), "%s/fiber", base);
    rmdir(path);
    return rmdir(base);
}

static struct fbr_kube_anchor anchor(const char *name, const char *space)
{
    struct fbr_kube_anchor a = {
        .run = "1f2e", .server = "https://10.98.0.2:6443", .master = "here:1:0123456789abcdef.1"};

    snprintf(a.name, sizeof(a.name), "%s", name);
    snprintf(a.space, sizeof(a.space), "%s", space);
    return a;
}

struct found {
    int n;
    struct fbr_kube_anchor last;
};

static void on_found(void *user, const struct fbr_kube_anchor *a)
{
    struct found *f = user;

    f->n++;
    f->last = *a;
}

static struct found look(const char *server, const char *space)
{
    struct found f = {0};

    fbr_kube_anchor_each(server, space, on_found, &f);
    return f;
}

static void a_note_is_found_until_it_is_forgotten(void **state)
{
    struct fbr_kube_anchor one = anchor("fiber-1f2e-t0", "team"),
                           two = anchor("fiber-3a-t0", "other");
    struct found f = look(one.server, "team");

    (void)state;
    assert_int_equal(f.n, 0);
    assert_int_equal(fbr_kube_anchor_note(&one), 0);
    assert_int_equal(fbr_kube_anchor_note(&one), 0); /* again: it is one */
    assert_int_equal(fbr_kube_anchor_note(&two), 0);
    f = look(one.server, "team");
    assert_int_equal(f.n, 1);
    assert_string_equal(f.last.name, one.name);
    assert_string_equal(f.last.run, one.run);
    assert_string_equal(f.last.master, one.master);
    assert_true(f.last.since_ms > 0);
    assert_int_equal(look("https://elsewhere:6443", "team").n, 0);
    fbr_kube_anchor_forget(one.name);
    fbr_kube_anchor_forget(one.name);
    assert_int_equal(look(one.server, "team").n, 0);
    assert_int_equal(look(one.server, "other").n, 1);
    fbr_kube_anchor_forget(two.name);
}

static void write_note(const char *name, const char *text)
{
    char path[256];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", notes, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void what_is_no_note_is_passed_over(void **state)
{
    static const char *const texts[] = {"", "s\n", "s\nn\nr\nm", "s\n\nr\nm\n",
                                        "s\nn\nr\nm\nmore\n"};
    struct fbr_kube_anchor a = anchor("fiber-1f2e-t0", "n");
    char path[256];

    (void)state;
    assert_int_equal(fbr_kube_anchor_note(&a), 0);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        write_note(a.name, texts[i]);
        assert_int_equal(look("s", "n").n, 0);
    }
    write_note(a.name, "s\nn\nr\nm\n");
    assert_int_equal(look("s", "n").n, 1);
    write_note("other", "s\nn\nr\nm\n"); /* no name of ours */
    assert_int_equal(look("s", "n").n, 1);
    snprintf(path, sizeof(path), "%s/other", notes);
    assert_int_equal(unlink(path), 0);
    fbr_kube_anchor_forget(a.name);
}

static void a_directory_that_others_may_write_is_not_used(void **state)
{
    struct fbr_kube_anchor a = anchor("fiber-1f2e-t0", "n");

    (void)state;
    assert_int_equal(fbr_kube_anchor_note(&a), 0);
    assert_int_equal(chmod(notes, 0777), 0);
    assert_int_equal(fbr_kube_anchor_note(&a), -EPERM);
    assert_int_equal(look(a.server, "n").n, 0);
    assert_int_equal(chmod(notes, 0700), 0);
    assert_int_equal(look(a.server, "n").n, 1);
    fbr_kube_anchor_forget(a.name);
    snprintf(a.name, sizeof(a.name), "../x"); /* that is not a name */
    assert_int_equal(fbr_kube_anchor_note(&a), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_note_is_found_until_it_is_forgotten, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_note_is_passed_over, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_directory_that_others_may_write_is_not_used, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
