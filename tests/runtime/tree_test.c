/* tree_test.c - directories through a visitor, both ways: what comes, what is left out, what stays when it breaks off.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/tree.h"
#include "runtime/visitor.h"

static char dir[64];

static const char *in_dir(const char *name)
{
    static char paths[8][PATH_MAX];
    static int at;

    at = (at + 1) % 8;
    snprintf(paths[at], PATH_MAX, "%s/%s", dir, name);
    return paths[at];
}

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/fiber-tree-test-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    char command[256];

    (void)state;
    snprintf(command, sizeof(command), "chmod -R u+rwx %s && rm -r %s", dir, dir);
    return system(command);
}

static void make_file(const char *name, const char *text, mode_t mode)
{
    int fd = open(in_dir(name), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void check_file(const char *name, const char *text, mode_t mode)
{
    char got[256] = "";
    struct stat st;
    int fd = open(in_dir(name), O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 07777, mode);
    assert_int_equal(read(fd, got, sizeof(got) - 1), strlen(text));
    assert_string_equal(got, text);
    close(fd);
}

static void check_link(const char *name, const char *target)
{
    char got[256] = "";

    assert_true(readlink(in_dir(name), got, sizeof(got) - 1) > 0);
    assert_string_equal(got, target);
}

static bool is_there(const char *name)
{
    struct stat st;

    return lstat(in_dir(name), &st) == 0;
}

/* How many things are in our directory. */
static int count(void)
{
    char command[256];
    FILE *f;
    int n = -1;

    snprintf(command, sizeof(command), "ls -A %s | wc -l", dir);
    f = popen(command, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &n), 1);
    pclose(f);
    return n;
}

/* A directory with all sorts of things in it. */
static void make_sorts(const char *name)
{
    char path[64];

    assert_int_equal(mkdir(in_dir(name), 0755), 0);
    snprintf(path, sizeof(path), "%s/a", name);
    make_file(path, "hello", 0640);
    snprintf(path, sizeof(path), "%s/sub", name);
    assert_int_equal(mkdir(in_dir(path), 0755), 0);
    snprintf(path, sizeof(path), "%s/sub/empty", name);
    make_file(path, "", 0400);
    snprintf(path, sizeof(path), "%s/sub/up", name);
    assert_int_equal(symlink("../a", in_dir(path)), 0);
    snprintf(path, sizeof(path), "%s/sub/out", name);
    assert_int_equal(symlink("../../x", in_dir(path)), 0);
    snprintf(path, sizeof(path), "%s/root", name);
    assert_int_equal(symlink("/etc/passwd", in_dir(path)), 0);
    snprintf(path, sizeof(path), "%s/fifo", name);
    assert_int_equal(mkfifo(in_dir(path), 0600), 0);
    snprintf(path, sizeof(path), "%s/.fiber-cp-abcdef", name); /* another one's, unfinished */
    assert_int_equal(mkdir(in_dir(path), 0700), 0);
    snprintf(path, sizeof(path), "%s/sub", name);
    assert_int_equal(chmod(in_dir(path), 0555), 0);
}

static void check_sorts(const char *name)
{
    char path[64];
    struct stat st;

    snprintf(path, sizeof(path), "%s/a", name);
    check_file(path, "hello", 0640);
    snprintf(path, sizeof(path), "%s/sub/empty", name);
    check_file(path, "", 0400);
    snprintf(path, sizeof(path), "%s/sub", name);
    assert_int_equal(stat(in_dir(path), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0555);
    snprintf(path, sizeof(path), "%s/sub/up", name);
    check_link(path, "../a");
    for (int i = 0; i < 4; i++) {
        static const char *const not_there[] = {"sub/out", "root", "fifo", ".fiber-cp-abcdef"};

        snprintf(path, sizeof(path), "%s/%s", name, not_there[i]);
        assert_false(is_there(path));
    }
}

/* ---- A visitor ---- */

static pthread_t thread;
static int ours;

static void *serve(void *arg)
{
    fbr_visitor_serve((int)(intptr_t)arg);
    return NULL;
}

static void open_visit(void)
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours = ends[0];
    assert_int_equal(pthread_create(&thread, NULL, serve, (void *)(intptr_t)ends[1]), 0);
}

static void close_visit(void)
{
    close(ours);
    pthread_join(thread, NULL);
}

static void ask(enum fbr_copy_op op, uint32_t mode, const char *path, const char *name)
{
    struct fbr_copy_request r = {.op = (uint8_t)op, .mode = mode};
    struct fbr_buf b;

    snprintf(r.path, sizeof(r.path), "%s", path);
    snprintf(r.name, sizeof(r.name), "%s", name);
    fbr_buf_init(&b);
    fbr_copy_put_request(&b, &r);
    assert_int_equal(fbr_copy_send(ours, &b), 0);
    fbr_buf_fini(&b);
}

static struct fbr_copy_answer answered(void)
{
    struct fbr_copy_answer a;

    assert_int_equal(fbr_copy_recv_answer(ours, &a), 0);
    return a;
}

static void say(uint8_t kind, const char *name, const char *target)
{
    struct fbr_tree_entry e = {.kind = kind, .mode = 0644};
    struct fbr_buf b;

    snprintf(e.name, sizeof(e.name), "%s", name);
    snprintf(e.target, sizeof(e.target), "%s", target);
    fbr_buf_init(&b);
    fbr_tree_put(&b, &e);
    assert_int_equal(fbr_copy_send(ours, &b), 0);
    fbr_buf_fini(&b);
}

/* ---- Cases ---- */

static void a_directory_is_put_as_it_is(void **state)
{
    struct fbr_copy_answer a;
    char name[FBR_COPY_NAME];
    unsigned left;
    uint32_t mode;
    int fd;

    (void)state;
    make_sorts("from");
    fd = fbr_tree_open(in_dir("from/sub/.."), &mode, name, NULL);
    assert_true(fd >= 0);
    assert_string_equal(name, "from");
    assert_int_equal(mode, 0755);
    assert_int_equal(mkdir(in_dir("to"), 0700), 0);
    open_visit();
    ask(FBR_COPY_PUT_TREE, mode, in_dir("to"), name);
    assert_int_equal(answered().code, 0);
    assert_int_equal(fbr_tree_send(ours, fd, &left, NULL), 0);
    assert_int_equal(left, 1);
    a = answered();
    assert_int_equal(a.code, 0);
    assert_string_equal(a.text, "left out: 2 links that lead out of it");
    close_visit();
    check_sorts("to/from");
}

static void a_directory_is_got_as_it_is(void **state)
{
    struct fbr_copy_answer a;
    struct fbr_tree t;

    (void)state;
    make_sorts("from");
    open_visit();
    ask(FBR_COPY_GET, FBR_COPY_IS_TREE, in_dir("from"), "");
    a = answered();
    assert_int_equal(a.code, 0);
    assert_true(a.mode & FBR_COPY_IS_TREE);
    assert_string_equal(a.text, "from");
    assert_int_equal(fbr_tree_begin(&t, in_dir("to/"), a.text, NULL), 0);
    assert_int_equal(fbr_tree_recv(&t, ours, NULL), 0);
    assert_false(is_there("to")); /* before all is there, nothing is */
    a = answered();
    assert_string_equal(a.text, "left out: 1 that is neither file, directory nor link");
    assert_int_equal(fbr_tree_commit(&t, a.mode | 0750, NULL), 0);
    close_visit();
    check_sorts("to");
    assert_int_equal(count(), 2);
}

static void who_does_not_know_directories_gets_a_sentence(void **state)
{
    struct fbr_copy_answer a;

    (void)state;
    open_visit();
    ask(FBR_COPY_GET, 0, dir, "");
    a = answered();
    assert_int_equal(a.code, -EISDIR);
    close_visit();
}

static void what_is_there_stays(void **state)
{
    struct fbr_error err;
    struct fbr_tree t;

    (void)state;
    make_file("file", "mine", 0600);
    assert_int_equal(mkdir(in_dir("full"), 0700), 0);
    make_file("full/x", "mine", 0600);
    assert_int_equal(symlink("nowhere", in_dir("link")), 0);
    assert_int_equal(fbr_tree_begin(&t, in_dir("file"), "x", &err), -EEXIST);
    assert_int_equal(fbr_tree_begin(&t, dir, "full", &err), -EEXIST);
    assert_int_equal(fbr_tree_begin(&t, in_dir("link"), "x", &err), -EEXIST);
    assert_int_equal(fbr_tree_begin(&t, in_dir("none/x"), "x", &err), -ENOENT);
    assert_int_equal(fbr_tree_begin(&t, dir, "..", &err), 0); /* that is no name */
    assert_non_null(strstr(t.path, "/files"));
    fbr_tree_drop(&t);
    check_file("full/x", "mine", 0600);
    assert_int_equal(count(), 3);
}

static void what_breaks_off_leaves_nothing(void **state)
{
    static const char piece[] = {5, 0, 0, 0, 'h', 'e'};
    int before;

    (void)state;
    before = count();
    open_visit();
    ask(FBR_COPY_PUT_TREE, 0700, in_dir("to"), "from");
    assert_int_equal(answered().code, 0);
    say(FBR_TREE_DIR, "sub", "");
    say(FBR_TREE_FILE, "a", "");
    assert_int_equal(send(ours, piece, sizeof(piece), 0), sizeof(piece));
    close_visit();
    assert_int_equal(count(), before);
    open_visit();
    ask(FBR_COPY_PUT_TREE, 0700, in_dir("to"), "from");
    assert_int_equal(answered().code, 0);
    say(FBR_TREE_DIR, "sub", "");
    say(FBR_TREE_UP, "", "");
    say(FBR_TREE_BROKEN, "", ""); /* it cannot be read there */
    close_visit();
    assert_int_equal(count(), before);
}

static void a_hostile_end_gets_nowhere(void **state)
{
    static const struct {
        uint8_t kind;
        const char *name, *target;
        int second; /* code of the answer when the same comes again */
    } cases[] = {
        {FBR_TREE_DIR, "..", "", 0},   {FBR_TREE_FILE, "../x", "", 0}, {FBR_TREE_DIR, ".", "", 0},
        {FBR_TREE_LINK, "/x", "y", 0}, {FBR_TREE_DIR, "", "", 0},      {9, "x", "", 0},
        {FBR_TREE_LINK, "x", "y", 1}, /* a name that is taken */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fbr_copy_answer a;

        open_visit();
        ask(FBR_COPY_PUT_TREE, 0700, in_dir("to"), "from");
        assert_int_equal(answered().code, 0);
        say(cases[i].kind, cases[i].name, cases[i].target);
        if (cases[i].second)
            say(FBR_TREE_DIR, cases[i].name, "");
        a = answered();
        assert_int_equal(a.code, cases[i].second ? -EEXIST : -EBADMSG);
        close_visit();
        assert_int_equal(count(), 0);
    }
}

static void too_deep_is_told_and_leaves_nothing(void **state)
{
    (void)state;
    open_visit();
    ask(FBR_COPY_PUT_TREE, 0700, in_dir("to"), "from");
    assert_int_equal(answered().code, 0);
    for (int i = 0; i <= FBR_TREE_DEPTH; i++)
        say(FBR_TREE_DIR, "d", "");
    assert_int_equal(answered().code, -ELOOP);
    close_visit();
    assert_int_equal(count(), 0);
}

static void only_links_that_stay_inside_are_made(void **state)
{
    (void)state;
    assert_true(fbr_tree_stays("a", 0));
    assert_true(fbr_tree_stays("./a//b/", 0));
    assert_true(fbr_tree_stays("..a/b..", 0));
    assert_true(fbr_tree_stays("../a", 1));
    assert_true(fbr_tree_stays("./../../a", 2));
    assert_false(fbr_tree_stays("", 5));
    assert_false(fbr_tree_stays("/", 5));
    assert_false(fbr_tree_stays("..", 0));
    assert_false(fbr_tree_stays("../..", 1));
    assert_false(fbr_tree_stays("a/../b", 5)); /* a may be a link that leads up */
    assert_false(fbr_tree_stays("a/..", 5));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_directory_is_put_as_it_is),
        CASE(a_directory_is_got_as_it_is),
        CASE(who_does_not_know_directories_gets_a_sentence),
        CASE(what_is_there_stays),
        CASE(what_breaks_off_leaves_nothing),
        CASE(a_hostile_end_gets_nowhere),
        CASE(too_deep_is_told_and_leaves_nothing),
        CASE(only_links_that_stay_inside_are_made),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
