/* rundir_test.c - the directory of a run: made, shared with children, removed, and swept only when
 * its master is dead.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/proc/rundir.h"
#include "tests/support/files.h"
#include "tests/support/sync.h"

static char base[64];

static int set_up(void **state)
{
    temp_dir_make(base);
    return 0;
}

static int tear_down(void **state)
{
    temp_dir_remove(base);
    return 0;
}

static void put_file(const char *dir, const char *name)
{
    file_make(path_in(dir, name), "", 0, 0600);
}

static void create(struct fbr_rundir *d)
{
    struct fbr_error err = {0, ""};

    if (fbr_rundir_create(d, base, &err) < 0)
        fail_msg("%s", err.text);
}

static void shm_name(const char *root, char out[128])
{
    snprintf(out, 128, "/dev/shm/%s", strrchr(root, '/') + 1);
}

/* A process that has what make() gave it, tells its name and waits to be killed. */
static pid_t start_with(int (*make)(struct fbr_rundir *d), char root[FBR_DIR_MAX])
{
    struct gate told;
    pid_t pid;

    gate_open(&told);
    pid = fork();
    if (pid == 0) {
        struct fbr_rundir d;

        if (make(&d) < 0 || fbr_rundir_shm(&d, NULL) < 0)
            _exit(1);
        gate_notify(told.path, d.root, sizeof(d.root));
        for (;;)
            pause();
    }
    assert_int_equal(gate_wait(&told, root, FBR_DIR_MAX), 0);
    gate_close(&told);
    return pid;
}

static int be_master(struct fbr_rundir *d)
{
    return fbr_rundir_create(d, base, NULL);
}

/* One whose directories have something in them. */
static pid_t start_master(char root[FBR_DIR_MAX])
{
    pid_t pid = start_with(be_master, root);
    char shm[128];

    shm_name(root, shm);
    put_file(root, "c");
    put_file(shm, "segment");
    return pid;
}

static void kill_master(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* ---- Tests ---- */

static void test_made_private_and_removed_whole(void **state)
{
    struct fbr_rundir d, child;
    struct stat st;

    create(&d);
    assert_true(d.master);
    assert_int_equal(stat(d.root, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_string_equal(d.own, d.root);
    assert_int_equal(fbr_rundir_join(&child, d.root, base, NULL), 0);
    assert_false(child.master);
    assert_string_equal(child.root, d.root);
    assert_string_equal(child.shm, d.shm);
    assert_string_equal(child.own, ""); /* a child that needs none makes none */
    assert_int_equal(fbr_rundir_own(&child, NULL), 0);
    assert_int_equal(fbr_rundir_own(&child, NULL), 0);
    assert_memory_equal(child.own, d.root, strlen(d.root));
    assert_int_equal(dir_count(d.root, ""), 2); /* the lock and the child's */
    put_file(child.own, "c");
    fbr_rundir_remove(&child);
    assert_int_equal(dir_count(d.root, ""), 1);
    put_file(d.root, "d");
    assert_int_equal(mkdir(d.shm, 0700), 0);
    put_file(d.shm, "segment");
    fbr_rundir_remove(&d);
    assert_int_equal(dir_count(base, ""), 0);
    assert_int_equal(stat(d.shm, &st), -1);
    fbr_rundir_remove(&d);
}

static void test_without_its_masters_directory_a_child_makes_its_own(void **state)
{
    struct fbr_rundir d;

    assert_int_equal(fbr_rundir_join(&d, "", base, NULL), 0);
    assert_true(d.master);
    fbr_rundir_remove(&d);
    assert_int_equal(fbr_rundir_join(&d, "/nowhere/fiber-1-abcdef", base, NULL), 0);
    assert_true(d.master);
    fbr_rundir_remove(&d);
}

/* A process of a run elsewhere; tells where it is, and leaves when it is told to. */
static pid_t start_sharer(const char *run, struct gate *leave, char root[FBR_DIR_MAX])
{
    struct gate told;
    pid_t pid;

    gate_open(&told);
    pid = fork();
    if (pid == 0) {
        struct fbr_rundir d;
        char byte;

        if (fbr_rundir_share(&d, run, base, NULL) < 0 || fbr_rundir_own(&d, NULL) < 0)
            _exit(1);
        if (mkdir(d.shm, 0700) == 0)
            put_file(d.shm, "segment");
        gate_notify(told.path, d.root, sizeof(d.root));
        if (leave)
            gate_wait(leave, &byte, 1);
        fbr_rundir_remove(&d);
        _exit(0);
    }
    if (root)
        assert_int_equal(gate_wait(&told, root, FBR_DIR_MAX), 0);
    gate_close(&told);
    return pid;
}

static void leave(struct gate *gate, pid_t pid)
{
    int status;

    gate_notify(gate->path, "x", 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_processes_of_a_run_elsewhere_share_one_and_the_last_removes_it(void **state)
{
    char root[3][FBR_DIR_MAX], shm[128];
    struct gate gates[3];
    struct fbr_rundir d;
    struct stat st;
    pid_t pids[3];

    for (int i = 0; i < 3; i++) {
        gate_open(&gates[i]);
        pids[i] = start_sharer(i < 2 ? "run-a" : "run-b", &gates[i], root[i]);
    }
    assert_string_equal(root[0], root[1]);
    assert_string_not_equal(root[0], root[2]);
    shm_name(root[0], shm);
    leave(&gates[0], pids[0]);
    create(&d); /* sweeps nothing of the living */
    assert_int_equal(dir_count(root[1], ""), 2);
    assert_int_equal(stat(shm, &st), 0);
    leave(&gates[1], pids[1]);
    assert_int_equal(stat(root[1], &st), -1);
    assert_int_equal(stat(shm, &st), -1);
    kill_master(pids[2]); /* the next run sweeps what it left */
    fbr_rundir_remove(&d);
    create(&d);
    assert_int_equal(stat(root[2], &st), -1);
    fbr_rundir_remove(&d);
    assert_int_equal(dir_count(base, ""), 0);
    for (int i = 0; i < 3; i++)
        gate_close(&gates[i]);
}

static void test_processes_come_and_go_all_the_time(void **state)
{
    pid_t pids[64];
    int status;

    for (int i = 0; i < 64; i++)
        pids[i] = start_sharer("run", NULL, NULL);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(dir_count(base, ""), 0);
}

/* A child of a process that shares a directory, after the death of that process. */
static pid_t start_orphan(const char *root)
{
    pid_t pid = fork();

    if (pid == 0) {
        for (int i = 0; i < 20000; i++)
            fbr_rundir_wreck_dead(root, true);
        _exit(0);
    }
    return pid;
}

static void test_orphans_do_not_take_a_shared_one_from_those_who_come(void **state)
{
    char root[FBR_DIR_MAX];
    struct fbr_rundir d;
    struct gate gate;
    pid_t pids[72];
    int status;

    gate_open(&gate);
    pids[0] = start_sharer("run", &gate, root);
    assert_int_equal(fbr_rundir_join(&d, root, base, NULL), 0);
    assert_true(d.joined_shared);
    for (int i = 1; i < 8; i++)
        pids[i] = start_orphan(root);
    leave(&gate, pids[0]);
    for (int i = 8; i < 72; i++)
        pids[i] = start_sharer("run", NULL, NULL);
    for (int i = 1; i < 72; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(dir_count(base, ""), 0);
    gate_close(&gate);
}

static void test_the_next_run_sweeps_what_a_dead_one_left(void **state)
{
    char root[FBR_DIR_MAX], shm[128];
    pid_t pid = start_master(root);
    struct fbr_rundir d;

    shm_name(root, shm);
    create(&d);
    assert_int_equal(access(root, F_OK), 0); /* it lives */
    assert_false(fbr_rundir_wreck_dead(root, false));
    fbr_rundir_remove(&d);
    assert_int_equal(access(shm, F_OK), 0);
    kill_master(pid); /* from now on anybody who starts a run removes the segments */
    create(&d);
    assert_int_equal(access(root, F_OK), -1);
    assert_int_equal(access(shm, F_OK), -1);
    fbr_rundir_remove(&d);
    assert_int_equal(dir_count(base, ""), 0);
}

static void test_a_dead_run_is_swept_where_directories_pass_their_group_on(void **state)
{
    char root[FBR_DIR_MAX];
    struct fbr_rundir d;
    struct stat st;

    assert_int_equal(chmod(base, 02700), 0);
    kill_master(start_master(root));
    assert_int_equal(stat(root, &st), 0);
    assert_int_equal(st.st_mode & 07777, 02700);
    create(&d);
    assert_int_equal(access(root, F_OK), -1);
    fbr_rundir_remove(&d);
    kill_master(start_master(root)); /* its children remove it, too */
    assert_true(fbr_rundir_wreck_dead(root, false));
}

static void test_a_process_that_the_master_forked_does_not_keep_it_alive(void **state)
{
    struct gate told;
    char root[FBR_DIR_MAX];
    pid_t pid, forked;

    gate_open(&told);
    pid = fork();
    if (pid == 0) {
        struct fbr_rundir d;

        if (fbr_rundir_create(&d, base, NULL) < 0)
            _exit(1);
        forked = fork();
        if (forked > 0) {
            gate_notify(told.path, d.root, sizeof(d.root));
            gate_notify(told.path, &forked, sizeof(forked));
        }
        for (;;)
            pause();
    }
    assert_int_equal(gate_wait(&told, root, sizeof(root)), 0);
    assert_int_equal(gate_wait(&told, &forked, sizeof(forked)), 0);
    assert_false(fbr_rundir_wreck_dead(root, false));
    kill_master(pid);
    assert_true(fbr_rundir_wreck_dead(root, false));
    assert_int_equal(access(root, F_OK), -1);
    kill(forked, SIGKILL);
    gate_close(&told);
}

static void test_what_is_made_while_others_remove_a_dead_run_goes_too(void **state)
{
    char root[FBR_DIR_MAX], lock[FBR_DIR_MAX + 8];
    struct fbr_rundir child;

    kill_master(start_master(root));
    assert_int_equal(fbr_rundir_join(&child, root, base, NULL), 0);
    snprintf(lock, sizeof(lock), "%s/lock", root);
    assert_int_equal(unlink(lock), 0); /* by another child, which comes no further */
    assert_int_equal(fbr_rundir_own(&child, NULL), 0);
    assert_true(fbr_rundir_wreck_dead(root, false));
    assert_int_equal(access(root, F_OK), -1);
}

static void make(const char *name, mode_t mode, const char *file)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", base, name);
    assert_int_equal(mkdir(path, mode), 0);
    if (file)
        put_file(path, file);
}

static void test_nothing_else_is_swept(void **state)
{
    static const char *const others[] = {"fiber-notes",    "fiber-12-abcdefg", "fiber-12-abcde",
                                         "fiber--abcdef",  "fiber-x1-abcdef",  "fiber-12",
                                         "other-12-abcdef"};
    struct fbr_rundir d;
    char path[128];

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        make(others[i], 0700, "lock");
    make("fiber-13-abcdef", 0755, "lock"); /* not private: not ours */
    make("fiber-14-abcdef", 0700, NULL);   /* just being made */
    snprintf(path, sizeof(path), "%s/fiber-15-abcdef", base);
    assert_int_equal(symlink("/etc", path), 0);
    make("fiber-16-abcdef", 0700, "lock"); /* this one it is */
    create(&d);
    assert_int_equal(dir_count(base, ""), sizeof(others) / sizeof(others[0]) + 3 + 1);
    snprintf(path, sizeof(path), "%s/fiber-16-abcdef", base);
    assert_int_equal(access(path, F_OK), -1);
    fbr_rundir_remove(&d);
}

static void test_one_that_was_never_finished_is_swept_when_it_is_old(void **state)
{
    struct timeval old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    struct fbr_rundir d;
    char path[128];

    make("fiber-2147483647-abcdef", 0700, "new");
    snprintf(path, sizeof(path), "%s/fiber-2147483647-abcdef", base);
    assert_int_equal(utimes(path, old), 0);
    create(&d);
    assert_int_equal(access(path, F_OK), -1);
    fbr_rundir_remove(&d);
}

static void make_old(const char *path)
{
    struct timeval old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};

    assert_int_equal(utimes(path, old), 0);
}

static int be_one_of_several(struct fbr_rundir *d)
{
    return fbr_rundir_share(d, "0123456789abcdef0123456789abcdef", base, NULL);
}

static void test_a_live_run_whose_lock_was_cleaned_away_is_left_alone(void **state)
{
    static int (*const makes[])(struct fbr_rundir *) = {be_master, be_one_of_several};

    for (size_t i = 0; i < sizeof(makes) / sizeof(makes[0]); i++) {
        char root[FBR_DIR_MAX], path[FBR_DIR_MAX + 8];
        struct fbr_rundir other;
        pid_t pid = start_with(makes[i], root);

        snprintf(path, sizeof(path), "%s/lock", root);
        assert_int_equal(unlink(path), 0);
        make_old(root);
        create(&other);
        fbr_rundir_remove(&other);
        assert_int_equal(access(root, F_OK), 0);
        kill_master(pid);
        create(&other);
        fbr_rundir_remove(&other);
        assert_int_equal(access(root, F_OK), -1);
    }
}

static void test_what_cleaners_go_by_is_kept(void **state)
{
    struct fbr_rundir d;
    struct stat st;
    char path[FBR_DIR_MAX + 16];

    create(&d);
    assert_true(fbr_rundir_is_held(d.root)); /* at which systemd-tmpfiles stops */
    put_file(d.root, "topology.xml");
    snprintf(path, sizeof(path), "%s/topology.xml", d.root);
    make_old(path);
    make_old(d.root);
    fbr_rundir_keep(&d);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_mtime > 1000000000 && st.st_atime > 1000000000);
    assert_int_equal(stat(d.root, &st), 0);
    assert_true(st.st_mtime > 1000000000);
    snprintf(path, sizeof(path), "%s/lock", d.root);
    assert_int_equal(unlink(path), 0);
    fbr_rundir_keep(&d);
    assert_int_equal(access(path, F_OK), 0);
    fbr_rundir_remove(&d);
}

/* The attempt before has made the file, and could not name it. */
static void test_a_lock_is_made_again_after_a_failed_attempt(void **state)
{
    struct fbr_rundir d;

    create(&d);
    assert_int_equal(unlink(path_in(d.root, "lock")), 0);
    put_file(d.root, "new");
    fbr_rundir_keep(&d);
    assert_int_equal(access(path_in(d.root, "lock"), F_OK), 0);
    fbr_rundir_remove(&d);
}

/* A cleaner removes the lock file of a run elsewhere again and again, while another run sweeps. */
static void test_no_sweep_is_faster_than_a_lock_that_is_made_again(void **state)
{
    pid_t self = getpid(), pid;
    char path[FBR_DIR_MAX + 8];
    struct fbr_rundir d;
    bool there = true;

    assert_int_equal(be_one_of_several(&d), 0);
    snprintf(path, sizeof(path), "%s/lock", d.root);
    put_file(d.root, "socket");
    pid = fork();
    if (pid == 0) {
        while (getppid() == self)
            fbr_rundir_sweep(base, NULL, NULL);
        _exit(0);
    }
    for (int i = 0; i < 3000 && there; i++) {
        unlink(path);
        fbr_rundir_keep(&d);
        there = access(path_in(d.root, "socket"), F_OK) == 0;
    }
    kill_master(pid);
    assert_true(there);
    fbr_rundir_remove(&d);
}

static void *create_and_remove(void *arg)
{
    for (int i = 0; i < 30; i++) {
        struct fbr_rundir d;

        if (fbr_rundir_create(&d, base, NULL) < 0 || access(d.root, F_OK) < 0)
            _exit(1);
        fbr_rundir_remove(&d);
    }
    return arg;
}

/* They sweep while others are just making theirs. */
static void test_many_masters_start_at_once(void **state)
{
    pid_t pids[16];
    int status;

    for (int i = 0; i < 16; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            create_and_remove(NULL);
            _exit(0);
        }
    }
    for (int i = 0; i < 16; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(dir_count(base, ""), 0);
}

static void test_several_may_remove_it_at_once(void **state)
{
    char root[FBR_DIR_MAX], path[160];
    pid_t pids[8];

    kill_master(start_master(root));
    for (int i = 0; i < 300; i++) {
        snprintf(path, sizeof(path), "%s/d%d", root, i);
        assert_int_equal(mkdir(path, 0700), 0);
        put_file(path, "c");
    }
    for (int i = 0; i < 8; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            fbr_rundir_wreck(root);
            _exit(0);
        }
    }
    for (int i = 0; i < 8; i++)
        assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
    assert_int_equal(access(root, F_OK), -1);
}

static void test_bases_that_cannot_be_used(void **state)
{
    struct fbr_error err = {0, ""};
    struct fbr_rundir d;
    char longer[128];

    assert_true(fbr_rundir_create(&d, "/nowhere", &err) < 0);
    assert_non_null(strstr(err.text, "run_dir"));
    assert_true(fbr_rundir_create(&d, "relative", &err) < 0);
    assert_non_null(strstr(err.text, "absolute"));
    memset(longer, 'x', sizeof(longer));
    longer[0] = '/';
    longer[sizeof(longer) - 1] = '\0';
    assert_int_equal(fbr_rundir_create(&d, longer, &err), -ENAMETOOLONG);
}

static unsigned dead_found;

static bool count_dead(void *user, const char *root)
{
    dead_found += strstr(root, "/fiber-7-abcdef") != NULL;
    return user != NULL;
}

static void test_who_sweeps_may_only_look(void **state)
{
    char dead[128];

    snprintf(dead, sizeof(dead), "%s/fiber-7-abcdef", base);
    assert_int_equal(mkdir(dead, 0700), 0);
    put_file(dead, "lock");
    dead_found = 0;
    fbr_rundir_sweep(base, count_dead, NULL);
    assert_int_equal(dead_found, 1);
    assert_int_equal(access(dead, F_OK), 0);
    fbr_rundir_sweep(base, count_dead, base);
    assert_int_equal(dead_found, 2);
    assert_int_equal(access(dead, F_OK), -1);
}

static bool count_this(void *user, const char *root)
{
    dead_found += strcmp(root, user) == 0;
    return false;
}

/* Somebody, or something that cleans up, has removed the directory of a run. */
static void test_segments_of_a_dead_run_are_swept_without_its_directory(void **state)
{
    char root[FBR_DIR_MAX], shm[128];
    struct fbr_rundir d;
    pid_t master;

    master = start_master(root);
    shm_name(root, shm);
    fbr_rundir_remove_tree(root);
    create(&d);
    fbr_rundir_remove(&d);
    assert_int_equal(access(shm, F_OK), 0); /* it lives */
    kill_master(master);
    dead_found = 0;
    fbr_rundir_sweep("/no/such/base", count_this, shm);
    assert_int_equal(dead_found, 0); /* those of another base are told of there */
    create(&d);
    fbr_rundir_remove(&d);
    assert_int_equal(access(shm, F_OK), -1);
}

/* Of a run whose master is elsewhere. */
static int be_client(struct fbr_rundir *d)
{
    return fbr_rundir_share(d, "a run of somebody", base, NULL);
}

static void test_segments_of_a_run_elsewhere_stay_until_its_last_process_is_dead(void **state)
{
    char root[FBR_DIR_MAX], shm[128];
    struct fbr_rundir d;
    pid_t clients[2];

    for (int i = 0; i < 2; i++)
        clients[i] = start_with(be_client, root);
    shm_name(root, shm);
    put_file(shm, "segment");
    fbr_rundir_remove_tree(root);
    for (int i = 0; i < 2; i++) {
        create(&d);
        fbr_rundir_remove(&d);
        assert_int_equal(access(shm, F_OK), 0);
        kill_master(clients[i]);
    }
    create(&d);
    fbr_rundir_remove(&d);
    assert_int_equal(access(shm, F_OK), -1);
}

static void test_segments_of_which_nobody_can_tell_whose_they_are_stay(void **state)
{
    static const char *const texts[] = {"otherhost:7:0123456789abcdef.7 /no/such/dir", "nonsense",
                                        ""};
    char shm[64], path[80];
    struct fbr_rundir d;

    snprintf(shm, sizeof(shm), "/dev/shm/fiber-%d-XXXXXX", (int)getpid());
    assert_non_null(mkdtemp(shm));
    snprintf(path, sizeof(path), "%s/run", shm);
    for (int i = 0; i < 3; i++) {
        FILE *f = fopen(path, "w");

        assert_non_null(f);
        fputs(texts[i], f);
        fclose(f);
        create(&d);
        fbr_rundir_remove(&d);
        assert_int_equal(access(path, F_OK), 0);
    }
    fbr_rundir_remove_tree(shm);
}

/* What a copy of a dead run's would be, were it read. */
static void save_text_of_a_dead_run(const char *path)
{
    char root[FBR_DIR_MAX], shm[128], from[140], text[256];
    pid_t master = start_master(root);
    FILE *f;

    shm_name(root, shm);
    snprintf(from, sizeof(from), "%s/run", shm);
    f = fopen(from, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof(text), f));
    fclose(f);
    kill_master(master);
    fbr_rundir_remove_tree(root);
    fbr_rundir_remove_tree(shm);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

enum { FIFO, HUGE_FILE, UNREADABLE, LINK, DIRECTORY, OTHER_OWNER, KINDS };

static void put_instead(const char *path, int kind, const char *target)
{
    int fd;

    if (kind == FIFO)
        assert_int_equal(mkfifo(path, 0600), 0);
    else if (kind == LINK)
        assert_int_equal(symlink(target, path), 0);
    else if (kind == DIRECTORY)
        assert_int_equal(mkdir(path, 0700), 0);
    else {
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, kind == UNREADABLE ? 0 : 0600);
        assert_true(fd >= 0);
        if (kind == HUGE_FILE)
            assert_int_equal(ftruncate(fd, (off_t)1 << 30), 0);
        if (kind == OTHER_OWNER && geteuid() == 0)
            assert_int_equal(fchown(fd, 1, 1), 0);
        close(fd);
    }
}

static void test_garbage_in_place_of_the_file_that_says_whose_segments_stops_nobody(void **state)
{
    struct timeval old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    char target[128], shm[64], path[80];
    struct fbr_rundir d;

    snprintf(target, sizeof(target), "%s/text", base);
    save_text_of_a_dead_run(target);
    for (int kind = 0; kind < KINDS; kind++) {
        snprintf(shm, sizeof(shm), "/dev/shm/fiber-99999999-XXXXXX"); /* nobody has that number */
        assert_non_null(mkdtemp(shm));
        snprintf(path, sizeof(path), "%s/run", shm);
        put_instead(path, kind, target);
        create(&d);
        fbr_rundir_remove(&d);
        assert_int_equal(access(shm, F_OK), 0); /* it may be just being made */
        assert_int_equal(utimes(shm, old), 0);
        create(&d);
        fbr_rundir_remove(&d);
        if (kind == FIFO || kind == HUGE_FILE)
            assert_int_equal(access(shm, F_OK), -1);
        else if (kind == LINK || kind == DIRECTORY) /* not by us */
            assert_int_equal(access(shm, F_OK), 0);
        assert_int_equal(access(target, F_OK), 0);
        fbr_rundir_remove_tree(shm);
    }
}

static void test_segments_whose_name_has_a_number_of_no_process_are_swept_when_old(void **state)
{
    static const char *const names[] = {"/dev/shm/fiber-4294967295-XXXXXX",
                                        "/dev/shm/fiber-99999999999999999999-XXXXXX"};
    struct timeval old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    struct fbr_rundir d;
    char shm[64];

    for (int i = 0; i < 2; i++) {
        snprintf(shm, sizeof(shm), "%s", names[i]);
        assert_non_null(mkdtemp(shm));
        assert_int_equal(utimes(shm, old), 0);
        create(&d);
        fbr_rundir_remove(&d);
        assert_int_equal(access(shm, F_OK), -1);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_made_private_and_removed_whole),
        TEST(test_without_its_masters_directory_a_child_makes_its_own),
        TEST(test_processes_of_a_run_elsewhere_share_one_and_the_last_removes_it),
        TEST(test_processes_come_and_go_all_the_time),
        TEST(test_orphans_do_not_take_a_shared_one_from_those_who_come),
        TEST(test_the_next_run_sweeps_what_a_dead_one_left),
        TEST(test_a_dead_run_is_swept_where_directories_pass_their_group_on),
        TEST(test_a_process_that_the_master_forked_does_not_keep_it_alive),
        TEST(test_what_is_made_while_others_remove_a_dead_run_goes_too),
        TEST(test_nothing_else_is_swept),
        TEST(test_one_that_was_never_finished_is_swept_when_it_is_old),
        TEST(test_a_live_run_whose_lock_was_cleaned_away_is_left_alone),
        TEST(test_what_cleaners_go_by_is_kept),
        TEST(test_a_lock_is_made_again_after_a_failed_attempt),
        TEST(test_no_sweep_is_faster_than_a_lock_that_is_made_again),
        TEST(test_many_masters_start_at_once),
        TEST(test_several_may_remove_it_at_once),
        TEST(test_bases_that_cannot_be_used),
        TEST(test_who_sweeps_may_only_look),
        TEST(test_segments_of_a_dead_run_are_swept_without_its_directory),
        TEST(test_segments_of_a_run_elsewhere_stay_until_its_last_process_is_dead),
        TEST(test_segments_of_which_nobody_can_tell_whose_they_are_stay),
        TEST(test_garbage_in_place_of_the_file_that_says_whose_segments_stops_nobody),
        TEST(test_segments_whose_name_has_a_number_of_no_process_are_swept_when_old),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
