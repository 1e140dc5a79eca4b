/* image_test.c - names of images, and the archive: what is in it, that the same files give the same bytes, and what a
 * writer meets.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>
#include <cmocka.h>

#include "backends/image/image.h"
#include "backends/http/json.h"
#include "tests/support/elf_file.h"
#include "tests/support/sync.h"

static char root[128];

static int make_root(void **state)
{
    char made[64], whole[PATH_MAX];

    temp_dir_make(made);
    if (!realpath(made, whole))
        return -1;
    snprintf(root, sizeof(root), "%.100s", whole);
    return 0;
}

static int remove_root(void **state)
{
    temp_dir_remove(root);
    return 0;
}

static const char *in_root(const char *name)
{
    static char path[16][256];
    static unsigned turn;

    turn = (turn + 1) % 16;
    snprintf(path[turn], sizeof(path[0]), "%s%s", root, name);
    return path[turn];
}

/* One that is there keeps its permissions. */
static void write_text(const char *name, const char *text)
{
    int fd = open(in_root(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

/* ---- Names ---- */

static void test_names_that_are_good(void **state)
{
    static const char *const names[][3] = {
        {"train", "train:latest", "docker.io/library/train:latest"},
        {"train:1", "train:1", "docker.io/library/train:1"},
        {"team/train:A_b.c-9", "team/train:A_b.c-9", "docker.io/team/train:A_b.c-9"},
        {"a__b/c--d.e", "a__b/c--d.e:latest", "docker.io/a__b/c--d.e:latest"},
        {"host:5000/x", "host:5000/x:latest", "host:5000/x:latest"},
        {"ghcr.io/a/b:1", "ghcr.io/a/b:1", "ghcr.io/a/b:1"},
        {"localhost/x:1", "localhost/x:1", "localhost/x:1"},
        {"a.b", "a.b:latest", "docker.io/library/a.b:latest"},
    };
    char tagged[FBR_IMAGE_NAME_MAX], whole[FBR_IMAGE_NAME_MAX];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(fbr_image_name(names[i][0], tagged, whole, NULL), 0);
        assert_string_equal(tagged, names[i][1]);
        assert_string_equal(whole, names[i][2]);
    }
}

static void test_names_that_are_none(void **state)
{
    static const char *const names[] = {
        "",         "Train",  "a b",    "a/",        "/a",   "a//b",  "-a",          "a-",
        "a..b",     "a___b",  "a._b",   "a:",        "a:-b", "a:b:c", "a@sha256:00", "host:/x",
        "a..b.c/x", "a.-b/x", "a-.b/x", "host:1x/x", "a\n",  "é",     "-h.x/a",      "a:b/c",
        ".a",       "a/..",   "../a",
    };
    char tagged[FBR_IMAGE_NAME_MAX], whole[FBR_IMAGE_NAME_MAX], longer[400];
    struct fbr_error err;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        err.text[0] = '\0';
        if (fbr_image_name(names[i], tagged, whole, &err) != -EINVAL ||
            !strstr(err.text, "not a name"))
            fail_msg("\"%s\": %s", names[i], err.text);
    }
    memset(longer, 'a', sizeof(longer));
    longer[256] = '\0';
    assert_int_equal(fbr_image_name(longer, tagged, whole, &err), -EINVAL);
    longer[1] = ':';
    longer[131] = '\0';
    assert_int_equal(fbr_image_name(longer, tagged, whole, &err), -EINVAL);
    longer[130] = '\0';
    assert_int_equal(fbr_image_name(longer, tagged, whole, &err), 0);
}

static void test_the_longest_name_is_whole(void **state)
{
    char tagged[FBR_IMAGE_NAME_MAX], whole[FBR_IMAGE_NAME_MAX], name[400];

    memset(name, 'a', sizeof(name));
    memcpy(name, "h.x/", 4);
    name[255] = ':';
    name[255 + 1 + 128] = '\0';
    assert_int_equal(fbr_image_name(name, tagged, whole, NULL), 0);
    assert_string_equal(tagged, name);
    assert_string_equal(whole, name);
}

/* ---- The archive ---- */

static struct fbr_image *open_image(const struct fbr_image_spec *spec)
{
    struct fbr_error err = {0, ""};
    struct fbr_image *i = NULL;

    if (fbr_image_open(&i, spec, &err) < 0)
        fail_msg("%s", err.text);
    return i;
}

static void write_image(struct fbr_image *i, const char *name)
{
    int fd = open(in_root(name), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    struct fbr_error err = {0, ""};

    assert_true(fd >= 0);
    if (fbr_image_write(i, "team/train:1", fd, &err) < 0)
        fail_msg("%s", err.text);
    close(fd);
}

/* The bytes of a member, NUL-terminated, for free(); NULL: it is not there. */
static char *member(const void *tar, size_t size, const char *name, size_t *len)
{
    struct archive *a = archive_read_new();
    struct archive_entry *e;
    char *data = NULL;

    assert_int_equal(archive_read_support_format_tar(a), ARCHIVE_OK);
    assert_int_equal(archive_read_open_memory(a, tar, size), ARCHIVE_OK);
    while (!data && archive_read_next_header(a, &e) == ARCHIVE_OK) {
        if (strcmp(archive_entry_pathname(e), name) != 0)
            continue;
        *len = (size_t)archive_entry_size(e);
        data = calloc(1, *len + 1);
        assert_int_equal(archive_read_data(a, data, *len), *len);
    }
    archive_read_free(a);
    return data;
}

static char *read_file(const char *name, size_t *len)
{
    int fd = open(in_root(name), O_RDONLY | O_CLOEXEC);
    struct stat st;
    char *data;

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    *len = (size_t)st.st_size;
    data = malloc(*len + 1);
    assert_int_equal(read(fd, data, *len), *len);
    close(fd);
    return data;
}

static struct json_t *document(const char *tar, size_t size, const char *name)
{
    struct fbr_error err = {0, ""};
    struct json_t *j;
    size_t len;
    char *text = member(tar, size, name, &len);

    if (!text)
        fail_msg("%s is not in the archive", name);
    j = fbr_json_parse(text, len, &err);
    if (!j)
        fail_msg("%s: %s", name, err.text);
    free(text);
    return j;
}

/* The text number `at` of a list. */
static const char *text_of(const struct json_t *list, size_t at)
{
    return fbr_json_text(fbr_json_item(list, at), NULL);
}

static void make_program(void)
{
    assert_true(!mkdir(in_root("/lib"), 0700) || errno == EEXIST);
    elf_file_write(in_root("/train"),
                   &(struct elf_file){.runpath = "$ORIGIN/lib", .needed = {"liba.so"}});
    elf_file_write(in_root("/lib/liba.so"), &(struct elf_file){.soname = "liba.so"});
}

static void test_the_documents_agree_with_each_other_and_with_the_layers(void **state)
{
    const char *files[] = {in_root("/train"), NULL}, *env[] = {"A=b=c", NULL};
    struct fbr_image_facts facts;
    struct fbr_image *i;
    struct json_t *docker, *index, *manifest, *config;
    const char *layer_path, *digest;
    char path[256], command[256];
    size_t size, len;
    char *tar;

    snprintf(command, sizeof(command), "%s/train", root);
    make_program();
    i = open_image(&(struct fbr_image_spec){.files = files, .env = env, .workdir = "/a place"});
    write_image(i, "/a.tar");
    fbr_image_facts(i, &facts);
    tar = read_file("/a.tar", &size);
    assert_int_equal(size, facts.archive);

    docker = document(tar, size, "manifest.json");
    assert_string_equal(text_of(fbr_json_at(fbr_json_item(docker, 0), "RepoTags", NULL), 0),
                        "team/train:1");
    index = document(tar, size, "index.json");
    assert_string_equal(fbr_json_text(fbr_json_item(fbr_json_at(index, "manifests", NULL), 0),
                                      "annotations", "io.containerd.image.name", NULL),
                        "docker.io/team/train:1");
    digest = fbr_json_text(fbr_json_item(fbr_json_at(index, "manifests", NULL), 0), "digest", NULL);
    snprintf(path, sizeof(path), "blobs/sha256/%s", digest + strlen("sha256:"));
    manifest = document(tar, size, path);
    assert_string_equal(fbr_json_text(manifest, "config", "digest", NULL), facts.digest);
    snprintf(path, sizeof(path), "blobs/sha256/%s", facts.digest + strlen("sha256:"));
    assert_string_equal(fbr_json_text(fbr_json_item(docker, 0), "Config", NULL), path);
    config = document(tar, size, path);
    assert_string_equal(text_of(fbr_json_at(config, "config", "Cmd", NULL), 0), command);
    snprintf(path, sizeof(path), "PATH=%s:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", root);
    assert_string_equal(text_of(fbr_json_at(config, "config", "Env", NULL), 0), path);
    assert_string_equal(text_of(fbr_json_at(config, "config", "Env", NULL), 1), "A=b=c");
    assert_string_equal(fbr_json_text(config, "config", "WorkingDir", NULL), "/a place");
    assert_string_equal(fbr_json_text(config, "os", NULL), "linux");
    for (size_t k = 0; k < 2; k++) {
        const struct json_t *layer = fbr_json_item(fbr_json_at(manifest, "layers", NULL), k);

        layer_path = text_of(fbr_json_at(fbr_json_item(docker, 0), "Layers", NULL), k);
        digest = text_of(fbr_json_at(config, "rootfs", "diff_ids", NULL), k);
        assert_string_equal(strrchr(layer_path, '/') + 1, digest + strlen("sha256:"));
        assert_string_equal(fbr_json_text(layer, "digest", NULL), digest);
        free(member(tar, size, layer_path, &len));
        assert_int_equal(fbr_json_int(layer, -1, "size", NULL), len);
    }
    fbr_json_free(docker);
    fbr_json_free(index);
    fbr_json_free(manifest);
    fbr_json_free(config);
    free(tar);
    fbr_image_close(i);
}

/* Layer number `at` of an archive. */
static char *layer_of(const char *name, size_t at, size_t *len)
{
    size_t size;
    char *tar = read_file(name, &size), *layer;
    struct json_t *docker = document(tar, size, "manifest.json");

    layer =
        member(tar, size, text_of(fbr_json_at(fbr_json_item(docker, 0), "Layers", NULL), at), len);
    assert_non_null(layer);
    fbr_json_free(docker);
    free(tar);
    return layer;
}

static void test_the_layer_has_the_files_without_owners_and_times(void **state)
{
    const char *files[] = {in_root("/train"), in_root("/d"), NULL};
    struct archive *a = archive_read_new();
    struct archive_entry *e;
    char before[PATH_MAX] = "", path[PATH_MAX];
    struct fbr_image *i;
    size_t len, python = 0, text = 0;
    char *layer;

    make_program();
    assert_int_equal(mkdir(in_root("/d"), 0700), 0);
    write_text("/d/data \xc3\xa9\xff", "some data");
    write_text("/d/m.py", "");
    assert_int_equal(symlink("m.py", in_root("/d/link.py")), 0);
    i = open_image(&(struct fbr_image_spec){.files = files});
    write_image(i, "/a.tar");
    layer = layer_of("/a.tar", 1, &len);
    assert_int_equal(archive_read_support_format_tar(a), ARCHIVE_OK);
    assert_int_equal(archive_read_open_memory(a, layer, len), ARCHIVE_OK);
    while (archive_read_next_header(a, &e) == ARCHIVE_OK) {
        snprintf(path, sizeof(path), "/%s", archive_entry_pathname(e));
        assert_int_equal(archive_entry_uid(e), 0);
        assert_int_equal(archive_entry_gid(e), 0);
        assert_true(strcmp(before, path) < 0);
        snprintf(before, sizeof(before), "%s", path);
        if (strstr(path, ".py") && archive_entry_filetype(e) == AE_IFREG)
            python += archive_entry_mtime(e) != 0; /* what is compiled from it names its time */
        else
            assert_int_equal(archive_entry_mtime(e), 0);
        if (strstr(path, "/data \xc3\xa9\xff")) {
            char data[16] = "";

            assert_int_equal(archive_entry_perm(e), 0644);
            assert_int_equal(archive_read_data(a, data, sizeof(data)), 9);
            assert_string_equal(data, "some data");
            text++;
        }
    }
    assert_int_equal(python, 1);
    assert_int_equal(text, 1);
    archive_read_free(a);
    free(layer);
    fbr_image_close(i);
}

/* So an engine or a registry gets the large layer once. */
static void test_a_program_that_changes_leaves_the_layer_of_the_libraries(void **state)
{
    const char *files[] = {in_root("/train"), NULL};
    char *old[2], *layer, *found;
    size_t len[2], n;
    struct fbr_image *i;

    make_program();
    for (int turn = 0; turn < 2; turn++) {
        i = open_image(&(struct fbr_image_spec){.files = files});
        write_image(i, turn ? "/b.tar" : "/a.tar");
        fbr_image_close(i);
        elf_file_write(in_root("/train"), &(struct elf_file){.runpath = "$ORIGIN/lib:/another",
                                                             .needed = {"liba.so"}});
    }
    for (size_t k = 0; k < 2; k++)
        old[k] = layer_of("/a.tar", k, &len[k]);
    layer = layer_of("/b.tar", 0, &n);
    assert_int_equal(n, len[0]);
    assert_memory_equal(layer, old[0], n);
    free(layer);
    found = member(old[0], len[0], in_root("/lib/liba.so") + 1, &n);
    assert_non_null(found);
    free(found);
    found = member(old[1], len[1], in_root("/train") + 1, &n);
    assert_non_null(found);
    free(found);
    layer = layer_of("/b.tar", 1, &n);
    assert_true(n != len[1] || memcmp(layer, old[1], n) != 0);
    free(layer);
    for (size_t k = 0; k < 2; k++)
        free(old[k]);
}

static void test_the_same_files_give_the_same_bytes_and_id(void **state)
{
    const char *files[] = {in_root("/train"), NULL}, *env[] = {"A=1", NULL};
    const struct fbr_image_spec spec = {.files = files};
    struct fbr_image_facts one, two;
    struct fbr_image *i, *k;
    size_t n, m;
    char *a, *b;

    make_program();
    i = open_image(&spec);
    write_image(i, "/a.tar");
    k = open_image(&spec);
    write_image(k, "/b.tar");
    write_image(k, "/b.tar"); /* and again */
    fbr_image_facts(i, &one);
    fbr_image_facts(k, &two);
    assert_string_equal(one.id, two.id);
    assert_int_equal(strlen(one.id), FBR_IMAGE_ID);
    assert_string_equal(one.digest, two.digest);
    a = read_file("/a.tar", &n);
    b = read_file("/b.tar", &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    free(a);
    free(b);
    fbr_image_close(k);
    k = open_image(&(struct fbr_image_spec){.files = files, .env = env});
    fbr_image_facts(k, &two);
    assert_string_not_equal(one.id, two.id);
    fbr_image_close(k);
    write_text("/lib/liba.so", "another");
    make_program(); /* the same bytes, at another time */
    k = open_image(&spec);
    fbr_image_facts(k, &two);
    assert_string_not_equal(one.id, two.id);
    write_image(k, "/b.tar");
    fbr_image_facts(k, &two);
    assert_string_equal(one.digest, two.digest);
    fbr_image_close(k);
    fbr_image_close(i);
}

static void test_a_file_that_changes_meanwhile_is_told(void **state)
{
    const char *files[] = {in_root("/train"), NULL};
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    struct fbr_error err = {0, ""};
    struct fbr_image *i;

    make_program();
    i = open_image(&(struct fbr_image_spec){.files = files});
    write_text("/lib/liba.so", "another");
    assert_int_equal(fbr_image_write(i, "x", fd, &err), -ESTALE);
    assert_non_null(strstr(err.text, "/lib/liba.so was changed while the image was made"));
    assert_int_equal(unlink(in_root("/lib/liba.so")), 0);
    assert_int_equal(fbr_image_write(i, "x", fd, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/lib/liba.so"));
    close(fd);
    fbr_image_close(i);
}

static void test_a_log_may_grow_meanwhile(void **state)
{
    const char *files[] = {in_root("/train"), NULL}, *more[] = {in_root("/log"), NULL};
    struct archive *a = archive_read_new();
    struct archive_entry *e;
    struct fbr_image *i;
    bool found = false;
    size_t len;
    char *layer;

    make_program();
    write_text("/log", "one");
    i = open_image(&(struct fbr_image_spec){.files = files, .more = more});
    write_text("/log", "one two");
    write_image(i, "/a.tar");
    layer = layer_of("/a.tar", 1, &len);
    assert_int_equal(archive_read_support_format_tar(a), ARCHIVE_OK);
    assert_int_equal(archive_read_open_memory(a, layer, len), ARCHIVE_OK);
    while (!found && archive_read_next_header(a, &e) == ARCHIVE_OK)
        found = strcmp(archive_entry_pathname(e), in_root("/log") + 1) == 0;
    assert_true(found);
    assert_int_equal(archive_entry_size(e), strlen("one two"));
    archive_read_free(a);
    free(layer);
    fbr_image_close(i);
}

static void test_a_reader_that_goes_away_and_a_full_disk_are_errors(void **state)
{
    const char *files[] = {in_root("/train"), NULL};
    struct fbr_error err = {0, ""};
    struct fbr_image *i;
    int ends[2], fd;

    make_program();
    i = open_image(&(struct fbr_image_spec){.files = files});
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    close(ends[0]);
    assert_int_equal(fbr_image_write(i, "x", ends[1], &err), -EPIPE);
    close(ends[1]);
    fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        assert_int_equal(fbr_image_write(i, "x", fd, &err), -ENOSPC);
        close(fd);
    }
    assert_int_equal(fbr_image_write(i, "X", STDOUT_FILENO, &err), -EINVAL);
    fbr_image_close(i);
}

/* ---- This process ---- */

/* As for the loader, an empty word is the working directory, also the last one. Here it is written as '.'. */
static void test_the_library_path_has_absolute_directories(void **state)
{
    static const char *const paths[][2] = {
        {"/a:b", "/a:./b"}, {"/a:", "/a:."}, {":/a;", ".:/a:."}, {"/a", "/a"}, {"", ""}};
    char here[PATH_MAX];

    assert_non_null(getcwd(here, sizeof(here)));
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        const char *want = paths[i][1], *at;
        char *got;

        setenv("LD_LIBRARY_PATH", paths[i][0], 1);
        got = fbr_image_library_path();
        for (at = got ? got : ""; *want; want++) {
            size_t n = *want == '.' ? strlen(here) : 1;

            assert_memory_equal(at, *want == '.' ? here : want, n);
            at += n;
        }
        assert_string_equal(at, "");
        free(got);
    }
    unsetenv("LD_LIBRARY_PATH");
}

static void test_what_cannot_be_planned(void **state)
{
    const char *files[] = {in_root("/train"), NULL}, *none[] = {in_root("/none"), NULL};
    const char *bad[] = {"no value", NULL}, *bytes[] = {"A=\xff", NULL};
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    struct fbr_error err = {0, ""};
    struct fbr_image *i = NULL;

    make_program();
    assert_int_equal(fbr_image_open(&i, &(struct fbr_image_spec){.files = none}, &err), -ENOENT);
    assert_int_equal(fbr_image_open(&i, &(struct fbr_image_spec){.files = files, .env = bad}, &err),
                     -EINVAL);
    assert_int_equal(
        fbr_image_open(&i, &(struct fbr_image_spec){.files = files, .workdir = "here"}, &err),
        -EINVAL);
    assert_null(i);
    i = open_image(&(struct fbr_image_spec){.files = files, .env = bytes});
    assert_int_equal(fbr_image_write(i, "x", fd, &err), -EINVAL);
    assert_non_null(strstr(err.text, "UTF-8"));
    close(fd);
    fbr_image_close(i);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_that_are_good),
        cmocka_unit_test(test_names_that_are_none),
        cmocka_unit_test(test_the_longest_name_is_whole),
        CASE(test_the_documents_agree_with_each_other_and_with_the_layers),
        CASE(test_a_program_that_changes_leaves_the_layer_of_the_libraries),
        CASE(test_the_layer_has_the_files_without_owners_and_times),
        CASE(test_the_same_files_give_the_same_bytes_and_id),
        CASE(test_a_file_that_changes_meanwhile_is_told),
        CASE(test_a_log_may_grow_meanwhile),
        CASE(test_a_reader_that_goes_away_and_a_full_disk_are_errors),
        cmocka_unit_test(test_the_library_path_has_absolute_directories),
        CASE(test_what_cannot_be_planned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
