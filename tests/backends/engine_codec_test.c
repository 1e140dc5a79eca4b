/* engine_codec_test.c - texts of the Docker engine: names, bodies, tickets, frames, lines, versions.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "backends/docker/engine_codec.h"

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static char *const argv[] = {"./train", "--rate", "0.1", "", NULL};
static char *const added[] = {"A=b c", "E=", NULL};
static const struct fbr_job plain = {.name = "worker 17/\xc3\xa9",
                                     .run_uid = "1a2b3c4d5e6f",
                                     .file = "./train",
                                     .argv = argv,
                                     .added_env = added,
                                     .process = 17};

static struct json_t *body_of(const struct fbr_job *job, const struct fbr_docker_wishes *w)
{
    struct json_t *b = fbr_docker_body(job, w, "app:1", NULL, "/srv");

    assert_non_null(b);
    return b;
}

static void assert_list(const struct json_t *list, const char *expected)
{
    char text[256] = "";

    for (size_t i = 0; i < fbr_json_count(list); i++) {
        char *item = fbr_json_print(fbr_json_item(list, i), NULL);

        strcat(strcat(text, item), " ");
        free(item);
    }
    assert_string_equal(text, expected);
}

/* ---- Bodies ---- */

static void test_a_name_is_one_that_engines_take(void **state)
{
    struct fbr_job job = plain;
    char name[FBR_DOCKER_NAME_MAX], again[FBR_DOCKER_NAME_MAX], long_name[300];

    fbr_docker_name(&job, name);
    assert_string_equal(name, "fiber-1a2b3c4d-17-worker_17___");
    fbr_docker_name(&job, again);
    assert_string_equal(name, again);
    job.process = 18;
    fbr_docker_name(&job, again);
    assert_string_not_equal(name, again);
    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    job.name = long_name;
    fbr_docker_name(&job, name);
    assert_true(strlen(name) < FBR_DOCKER_NAME_MAX);
    job.name = "";
    fbr_docker_name(&job, name);
    assert_string_equal(name, "fiber-1a2b3c4d-18-");
}

static void test_a_body_drops_what_is_not_asked_for(void **state)
{
    const struct fbr_docker_wishes none = {.caps = "none"};
    struct json_t *b = body_of(&plain, &none), *h = fbr_json_at(b, "HostConfig", NULL);

    assert_string_equal(fbr_json_text(b, "Image", NULL), "app:1");
    assert_list(fbr_json_at(b, "Entrypoint", NULL), "\"./train\" ");
    assert_list(fbr_json_at(b, "Cmd", NULL), "\"--rate\" \"0.1\" \"\" ");
    assert_list(fbr_json_at(b, "Env", NULL), "\"A=b c\" \"E=\" ");
    assert_string_equal(fbr_json_text(b, "WorkingDir", NULL), "/srv");
    assert_string_equal(fbr_json_text(b, "Labels", "fiber.run", NULL), "1a2b3c4d5e6f");
    assert_string_equal(fbr_json_text(b, "Labels", "fiber.job", NULL), "worker 17/\xc3\xa9");
    assert_list(fbr_json_at(h, "CapDrop", NULL), "\"ALL\" ");
    assert_list(fbr_json_at(h, "SecurityOpt", NULL), "\"no-new-privileges\" ");
    assert_true(fbr_json_bool(h, "AutoRemove", NULL));
    assert_true(fbr_json_bool(h, "Init", NULL));
    for (const char *const *key =
             (const char *const[]){"CapAdd", "Binds", "NetworkMode", "NanoCpus", "Memory",
                                   "DeviceRequests", "ShmSize", "PidsLimit", "GroupAdd", NULL};
         *key; key++)
        assert_null(fbr_json_at(h, *key, NULL));
    assert_null(fbr_json_at(b, "User", NULL));
    fbr_json_free(b);
}

static void test_a_body_has_what_is_asked_for(void **state)
{
    const struct fbr_docker_wishes w = {.network = "net",
                                        .user = "1000:100",
                                        .mounts = "/a:/a:ro,z  /b:/c /d\\ e:/f",
                                        .caps = "SYS_PTRACE,NET_RAW IPC_LOCK",
                                        .groups = "7 44 ",
                                        .shm = 1 << 30,
                                        .pids = 4096,
                                        .master = "host:1"};
    struct fbr_job job = plain;
    struct json_t *b, *h;

    job.cpus = 1.5;
    job.memory = 1 << 20;
    job.gpus = 2;
    job.ticket = "t";
    job.ticket_len = 1;
    b = fbr_docker_body(&job, &w, "app:1", "/opt/me", NULL);
    h = fbr_json_at(b, "HostConfig", NULL);
    assert_list(fbr_json_at(b, "Entrypoint", NULL), "\"/opt/me\" ");
    assert_list(fbr_json_at(b, "Env", NULL),
                "\"A=b c\" \"E=\" \"FIBER_TICKET=file:/.fiber/ticket\" ");
    assert_list(fbr_json_at(h, "CapAdd", NULL), "\"SYS_PTRACE\" \"NET_RAW\" \"IPC_LOCK\" ");
    assert_list(fbr_json_at(h, "Binds", NULL), "\"/a:/a:ro,z\" \"/b:/c\" \"/d e:/f\" ");
    assert_list(fbr_json_at(h, "DeviceRequests", NULL),
                "{\"Count\":2,\"Capabilities\":[[\"gpu\"]]} ");
    assert_string_equal(fbr_json_text(h, "NetworkMode", NULL), "net");
    assert_string_equal(fbr_json_text(b, "User", NULL), "1000:100");
    assert_string_equal(fbr_json_text(b, "Labels", "fiber.master", NULL), "host:1");
    assert_int_equal(fbr_json_int(h, 0, "NanoCpus", NULL), 1500000000);
    assert_int_equal(fbr_json_int(h, 0, "Memory", NULL), 1 << 20);
    assert_int_equal(fbr_json_int(h, 0, "MemorySwap", NULL), 1 << 20);
    assert_int_equal(fbr_json_int(h, 0, "ShmSize", NULL), 1 << 30);
    assert_int_equal(fbr_json_int(h, 0, "PidsLimit", NULL), 4096);
    assert_list(fbr_json_at(h, "GroupAdd", NULL), "\"7\" \"44\" ");
    assert_null(fbr_json_at(b, "WorkingDir", NULL));
    fbr_json_free(b);
}

static void test_the_overlay_has_the_last_word(void **state)
{
    static const char text[] =
        "{\"HostConfig\":{\"CpusetCpus\":\"0\",\"Init\":null},\"User\":\"5\"}";
    struct json_t *over = fbr_json_parse(text, strlen(text), NULL), *b;
    const struct fbr_docker_wishes w = {.user = "1", .overlay = over};

    b = body_of(&plain, &w);
    assert_string_equal(fbr_json_text(b, "User", NULL), "5");
    assert_string_equal(fbr_json_text(b, "HostConfig", "CpusetCpus", NULL), "0");
    assert_null(fbr_json_at(b, "HostConfig", "Init", NULL));
    assert_true(fbr_json_bool(b, "HostConfig", "AutoRemove", NULL));
    fbr_json_free(b);
    fbr_json_free(over);
}

static void test_variables_of_the_overlay_are_added(void **state)
{
    static const char text[] = "{\"Env\":[\"NCCL_DEBUG=INFO\",\"A=mine\",\"E2=\"]}";
    struct json_t *over = fbr_json_parse(text, strlen(text), NULL), *b;
    const struct fbr_docker_wishes w = {.overlay = over};
    struct fbr_job job = plain;

    job.ticket = "t";
    job.ticket_len = 1;
    b = body_of(&job, &w);
    assert_list(fbr_json_at(b, "Env", NULL), "\"NCCL_DEBUG=INFO\" \"A=mine\" \"E2=\" \"E=\" "
                                             "\"FIBER_TICKET=file:/.fiber/ticket\" ");
    fbr_json_free(b);
    fbr_json_free(over);
}

static void test_what_json_cannot_carry_is_refused(void **state)
{
    char *const words[] = {"./train", "ok", "\xff", NULL};
    char *const variables[] = {"A=b", "B=\xc3", NULL};
    struct fbr_error err = {0, ""};
    struct fbr_job job = plain;

    assert_true(fbr_docker_is_text(&job, &err));
    job.argv = words;
    assert_false(fbr_docker_is_text(&job, &err));
    assert_int_equal(err.code, -EILSEQ);
    assert_non_null(strstr(err.text, "argument 2"));
    job = plain;
    job.added_env = variables;
    assert_false(fbr_docker_is_text(&job, &err));
    assert_non_null(strstr(err.text, "variable B"));
    job = plain;
    job.file = "./tr\xc3\xa4in";
    assert_true(fbr_docker_is_text(&job, &err));
    job.file = "./tr\xe4in";
    assert_false(fbr_docker_is_text(&job, &err));
    assert_non_null(strstr(err.text, "the path of the program of "));
    job.own_program = 1; /* the archive with it needs no path */
    assert_true(fbr_docker_is_text(&job, &err));
    job.workdir = "/w\xe4"; /* the engine would make the folder "/w?" */
    assert_false(fbr_docker_is_text(&job, &err));
    assert_non_null(strstr(err.text, "the working directory of "));
}

static void test_a_ticket_is_an_archive(void **state)
{
    struct fbr_buf tar = {0};
    char ticket[700];

    memset(ticket, 'k', sizeof(ticket));
    fbr_docker_ticket(ticket, sizeof(ticket), NULL, &tar);
    assert_false(tar.failed);
    assert_int_equal(tar.len, 512 + 512 + 1024 + 1024);
    assert_string_equal((char *)tar.data, ".fiber/");
    assert_string_equal((char *)tar.data + 512, ".fiber/ticket");
    assert_string_equal((char *)tar.data + 512 + 124, "00000001274");
    assert_memory_equal(tar.data + 1024, ticket, sizeof(ticket));
    for (unsigned head = 0; head < 1024; head += 512) { /* as tar counts */
        unsigned sum = 8 * ' ';

        for (unsigned i = 0; i < 512; i++)
            sum += i >= 148 && i < 156 ? 0 : tar.data[head + i];
        assert_int_equal(strtoul((char *)tar.data + head + 148, NULL, 8), sum);
    }
    fbr_buf_fini(&tar);
}

/* ---- Streams ---- */

struct heard {
    char text[3][64];
};

static void hear(void *user, int stream, const void *data, size_t len)
{
    struct heard *h = user;

    assert_in_range(stream, 1, 2);
    strncat(h->text[stream], data, len);
}

static void test_frames_come_in_any_pieces(void **state)
{
    static const char wire[] =
        "\1\0\0\0\0\0\0\5hello\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\3err\0\0\0\0\0\0\0\1!";

    for (size_t step = 1; step < sizeof(wire); step++) {
        struct fbr_docker_frames f = {0};
        struct heard h = {0};

        for (size_t at = 0; at < sizeof(wire) - 1; at += step) {
            size_t n = sizeof(wire) - 1 - at < step ? sizeof(wire) - 1 - at : step;

            assert_true(fbr_docker_frames(&f, wire + at, n, hear, &h));
        }
        assert_string_equal(h.text[1], "hello!");
        assert_string_equal(h.text[2], "err");
    }
}

static void test_what_is_no_frame_is_told(void **state)
{
    struct fbr_docker_frames f = {0};
    struct heard h = {0};

    assert_false(fbr_docker_frames(&f, "plain text here", 15, hear, &h));
    assert_string_equal(h.text[1], "");
}

struct lines_seen {
    int n, sum;
};

static void on_line(void *user, const struct json_t *j)
{
    struct lines_seen *seen = user;

    seen->n++;
    seen->sum += (int)fbr_json_int(j, 0, "n", NULL);
}

static void test_lines_come_in_any_pieces(void **state)
{
    static const char wire[] = "{\"n\":1}\n\r\n{\"n\":20}\r\nnot json\n{\"n\":300}\n{\"n\":4000}";

    for (size_t step = 1; step < sizeof(wire); step++) {
        struct fbr_json_lines l = {0};
        struct lines_seen seen = {0};

        for (size_t at = 0; at < sizeof(wire) - 1; at += step) {
            size_t n = sizeof(wire) - 1 - at < step ? sizeof(wire) - 1 - at : step;

            fbr_json_lines(&l, wire + at, n, on_line, &seen);
        }
        assert_int_equal(seen.n, 3);
        assert_int_equal(seen.sum, 321);
        fbr_buf_fini(&l.line);
    }
}

static void test_a_line_that_is_too_long_is_skipped(void **state)
{
    struct fbr_json_lines l = {0};
    struct lines_seen seen = {0};
    char *much = malloc(FBR_JSON_LINE_MAX);

    memset(much, ' ', FBR_JSON_LINE_MAX);
    fbr_json_lines(&l, much, FBR_JSON_LINE_MAX, on_line, &seen);
    fbr_json_lines(&l, "{\"n\":1}\n{\"n\":2}\n", 16, on_line, &seen);
    assert_true(l.lost);
    assert_int_equal(seen.sum, 2);
    fbr_buf_fini(&l.line);
    free(much);
}

/* ---- Small ones ---- */

static void test_codes(void **state)
{
    assert_int_equal(fbr_docker_code(0), 0);
    assert_int_equal(fbr_docker_code(7), 7);
    assert_int_equal(fbr_docker_code(128), 128);
    assert_int_equal(fbr_docker_code(137), -9);
    assert_int_equal(fbr_docker_code(143), -15);
    assert_int_equal(fbr_docker_code(255), 255);
}

static void test_versions(void **state)
{
    static const struct {
        const char *min, *max, *use;
    } cases[] = {
        {"1.12", "1.41", "1.41"}, {"1.24", "1.50", "1.44"}, {"1.44", "1.52", "1.44"},
        {"1.46", "1.60", "1.46"}, {"", "1.40", "1.40"},     {"1.12", "1.39", NULL},
        {"", "", NULL},           {"1.50", "1.45", NULL},   {"x", "2.0", NULL},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fbr_error err = {0, ""};
        char use[16] = "";
        int rc = fbr_docker_version(cases[i].min, cases[i].max, use, &err);

        assert_int_equal(rc, cases[i].use ? 0 : -EPROTONOSUPPORT);
        assert_string_equal(use, cases[i].use ? cases[i].use : "");
        assert_int_equal(err.text[0] != '\0', rc < 0);
    }
}

static void test_the_container_that_we_are_in(void **state)
{
    char id[65] = "";

    assert_true(fbr_docker_own_id("1 0 0:1 / / rw - overlay overlay rw\n"
                                  "9 1 8:1 /docker/containers/" ID "/hostname /etc/hostname rw,"
                                  "relatime - ext4 /dev/sda1 rw\n",
                                  id));
    assert_string_equal(id, ID);
    assert_true(fbr_docker_own_id("9 1 0:2 /containers/overlay-containers/" ID
                                  "/userdata/hosts /etc/hosts rw - tmpfs tmpfs rw",
                                  id)); /* Podman's */
    /* On the host: what the engine has mounted for others. */
    assert_false(fbr_docker_own_id(
        "9 1 0:50 / /var/lib/docker/containers/" ID "/mounts/shm rw - tmpfs shm rw\n", id));
    assert_false(fbr_docker_own_id("9 1 8:1 /docker/containers/abc/hostname /etc/hostname rw", id));
    assert_false(fbr_docker_own_id("", id));
    assert_false(fbr_docker_own_id("\n\n", id));
}

static void test_images_have_a_tag(void **state)
{
    static const char *const cases[][3] = {
        {"app", "app", "latest"},
        {"app:1", "app", "1"},
        {"host:5000/a/app", "host:5000/a/app", "latest"},
        {"host:5000/a/app:2", "host:5000/a/app", "2"},
        {"app@sha256:12ab", "app@sha256:12ab", ""},
        {"", "", "latest"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char repo[64], tag[64];

        fbr_docker_split_image(cases[i][0], repo, tag, sizeof(repo));
        assert_string_equal(repo, cases[i][1]);
        assert_string_equal(tag, cases[i][2]);
    }
}

/* ---- How far a pull is ---- */

static const char *pull_says(struct fbr_docker_pull *p, const char *line)
{
    struct json_t *j = fbr_json_parse(line, strlen(line), NULL);
    static char text[100];

    assert_non_null(j);
    fbr_docker_pull_add(p, j);
    fbr_json_free(j);
    fbr_docker_pull_format(p, text, sizeof(text));
    return text;
}

#define PROGRESS(id, status, now, all)                                                    \
    "{\"status\":\"" status "\",\"progressDetail\":{\"current\":" #now ",\"total\":" #all \
    "},\"id\":\"" id "\"}"
#define STATUS(id, status) "{\"status\":\"" status "\",\"progressDetail\":{},\"id\":\"" id "\"}"

static void test_a_pull_is_told_in_bytes_of_all_layers(void **state)
{
    struct fbr_docker_pull p = {.count = 0};

    assert_string_equal(pull_says(&p, STATUS("12", "Pulling from library/debian")),
                        "Pulling from library/debian");
    assert_string_equal(pull_says(&p, STATUS("aaa", "Pulling fs layer")), "Pulling fs layer");
    pull_says(&p, STATUS("bbb", "Pulling fs layer"));
    pull_says(&p, STATUS("ccc", "Already exists"));
    assert_string_equal(pull_says(&p, PROGRESS("aaa", "Downloading", 1500000, 20000000)),
                        "pulled 1.5 of 20.0 MB, and 1 layer more");
    assert_string_equal(pull_says(&p, PROGRESS("bbb", "Downloading", 500000, 4000000)),
                        "pulled 2.0 of 24.0 MB");
    pull_says(&p, STATUS("bbb", "Verifying Checksum"));
    assert_string_equal(pull_says(&p, STATUS("bbb", "Download complete")), "pulled 5.5 of 24.0 MB");
    assert_string_equal(pull_says(&p, STATUS("aaa", "Download complete")),
                        "unpacked 0.0 of 24.0 MB");
    assert_string_equal(pull_says(&p, PROGRESS("aaa", "Extracting", 10000000, 20000000)),
                        "unpacked 10.0 of 24.0 MB");
    pull_says(&p, STATUS("aaa", "Pull complete"));
    assert_string_equal(pull_says(&p, STATUS("bbb", "Pull complete")), "unpacked 24.0 of 24.0 MB");
}

static void test_numbers_of_a_pull_that_cannot_be(void **state)
{
    struct fbr_docker_pull p = {.count = 0};
    char line[200];

    assert_string_equal(pull_says(&p, PROGRESS("a", "Downloading", -5, -7)), "Downloading");
    assert_string_equal(pull_says(&p, PROGRESS("a", "Downloading", 5, 9223372036854775807)),
                        "Downloading");
    assert_string_equal(pull_says(&p, PROGRESS("a", "Downloading", 9000000, 1000000)),
                        "unpacked 0.0 of 1.0 MB");
    for (int i = 0; i < 3 * FBR_DOCKER_LAYERS; i++) {
        snprintf(line, sizeof(line), STATUS("l%d", "Waiting"), i);
        pull_says(&p, line);
    }
    assert_int_equal(p.count, FBR_DOCKER_LAYERS);
    assert_string_equal(pull_says(&p, "{}"), "pulled 1.0 of 1.0 MB, and 127 layers more");
}

static void test_a_ticket_is_for_its_owner_where_that_is_known(void **state)
{
    static const struct {
        const char *user;
        bool made, known;
        unsigned uid, gid;
    } cases[] = {
        {"", true, true, 0, 0},
        {"", false, false, 0, 0},
        {"1000", false, true, 1000, 0},
        {"4321:56", true, true, 4321, 56},
        {"user", false, false, 0, 0},
        {"5:staff", true, false, 0, 0},
        {"4000000000", true, false, 0, 0},
    };
    struct fbr_docker_user owner;
    struct fbr_buf tar = {0};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool known = fbr_docker_owner(cases[i].user, cases[i].made, &owner);

        assert_int_equal(known, cases[i].known);
        fbr_buf_clear(&tar);
        fbr_docker_ticket("t", 1, known ? &owner : NULL, &tar);
        assert_string_equal((char *)tar.data + 100, known ? "0000700" : "0000777");
        assert_string_equal((char *)tar.data + 612, known ? "0000400" : "0000444");
        assert_int_equal(strtoul((char *)tar.data + 620, NULL, 8), known ? cases[i].uid : 0);
        assert_int_equal(strtoul((char *)tar.data + 628, NULL, 8), known ? cases[i].gid : 0);
    }
    fbr_buf_fini(&tar);
}

/* ---- Without memory ---- */

static long allowed, held; /* allocations of JSON that succeed; those that were not given back */

static void *take_memory(size_t n)
{
    if (allowed-- <= 0)
        return NULL;
    held++;
    return malloc(n);
}

static void give_back(void *memory)
{
    held -= memory != NULL;
    free(memory);
}

static void test_what_fails_without_memory_keeps_none(void **state)
{
    const struct fbr_docker_wishes w = {.caps = "SYS_PTRACE",
                                        .mounts = "/a:/a /b:/b",
                                        .network = "n",
                                        .groups = "4 20",
                                        .user = "1:1",
                                        .master = "m",
                                        .shm = 1,
                                        .pids = 1};
    struct fbr_job job = plain;
    struct json_t *b = NULL;
    char *text = NULL;

    job.ticket = "t";
    job.cpus = 1;
    job.memory = 1;
    job.gpus = 1;
    json_set_alloc_funcs(take_memory, give_back);
    for (long n = 0; !b; n++) {
        assert_in_range(n, 0, 10000);
        allowed = n;
        b = fbr_docker_body(&job, &w, "app:1", NULL, "/srv");
        assert_true(b || held == 0);
    }
    fbr_json_free(b);
    for (long n = 0; !text; n++) {
        assert_in_range(n, 0, 10000);
        allowed = 10000;
        b = body_of(&job, &w);
        allowed = n;
        text = fbr_docker_bundled(b);
        fbr_json_free(b);
        assert_int_equal(held, text != NULL);
    }
    give_back(text);
    json_set_alloc_funcs(malloc, free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_name_is_one_that_engines_take),
        cmocka_unit_test(test_a_body_drops_what_is_not_asked_for),
        cmocka_unit_test(test_a_body_has_what_is_asked_for),
        cmocka_unit_test(test_the_overlay_has_the_last_word),
        cmocka_unit_test(test_variables_of_the_overlay_are_added),
        cmocka_unit_test(test_what_json_cannot_carry_is_refused),
        cmocka_unit_test(test_a_ticket_is_an_archive),
        cmocka_unit_test(test_a_ticket_is_for_its_owner_where_that_is_known),
        cmocka_unit_test(test_frames_come_in_any_pieces),
        cmocka_unit_test(test_what_is_no_frame_is_told),
        cmocka_unit_test(test_lines_come_in_any_pieces),
        cmocka_unit_test(test_a_line_that_is_too_long_is_skipped),
        cmocka_unit_test(test_a_pull_is_told_in_bytes_of_all_layers),
        cmocka_unit_test(test_numbers_of_a_pull_that_cannot_be),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_the_container_that_we_are_in),
        cmocka_unit_test(test_images_have_a_tag),
        cmocka_unit_test(test_what_fails_without_memory_keeps_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
