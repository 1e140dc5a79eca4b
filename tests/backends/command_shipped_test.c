/* command_shipped_test.c - the templates of the command backend that are shipped: each file of
 * backends/command/templates, and each that its README.md shows, is taken, and gives the command that a job is started
 * by.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/command/settings.h"

static char folder[600];

static void load(struct fbr_command_settings *s, const char *key, const char *value)
{
    struct fbr_config *c = fbr_config_new();
    struct fbr_error err = {0, ""};

    assert_non_null(c);
    assert_int_equal(fbr_config_set(c, "command_hosts", "h1 h2", "test", &err), 0);
    assert_int_equal(fbr_config_set(c, key, value, "test", &err), 0);
    if (fbr_command_settings_load(s, c, &err) < 0)
        fail_msg("%s: %s", value, err.text);
    fbr_config_free(c);
}

/* The words with a blank after each. */
static void filled(const struct fbr_args *t, char *text, size_t size)
{
    static const char *const ids[] = {"7", "8", NULL};
    static char *argv[] = {"it's", NULL};
    const struct fbr_fill f = {.host = "h1",
                               .name = "worker-1",
                               .run = "beef",
                               .id = "7",
                               .workdir = "/data",
                               .label = "fiber:beef:h:1:a.2:worker-1",
                               .ticket = "fd:0",
                               .program = "/bin/prog",
                               .argv = argv,
                               .ids = ids};
    struct fbr_args w = {0};

    text[0] = '\0';
    assert_int_equal(fbr_template_fill(t, &f, &w, NULL), 0);
    for (size_t i = 0; i < w.n; i++)
        snprintf(text + strlen(text), size - strlen(text), "%s ", w.at[i]);
    fbr_args_fini(&w);
    assert_null(strchr(text, '{'));
}

static void starts_with(const struct fbr_command_settings *s, const char *word)
{
    char text[2000];

    filled(&s->start, text, sizeof(text));
    if (strncmp(text, word, strlen(word)) != 0 || !strstr(text, "FIBER_TICKET=fd:0") ||
        !strstr(text, "/bin/prog"))
        fail_msg("'%s' does not begin with '%s', or starts nothing", text, word);
    assert_int_equal(s->detached, s->status.n > 0);
    if (!s->detached)
        return;
    filled(&s->status, text, sizeof(text));
    assert_true(strstr(text, "7,8") || strstr(text, "7 8"));
    filled(&s->cancel, text, sizeof(text));
    assert_non_null(strstr(text, "7"));
    filled(&s->start, text, sizeof(text)); /* a list finds what the start has labelled */
    assert_int_equal(s->list.n > 0, strstr(text, "fiber:beef:") != NULL);
    assert_true(fbr_command_state(s, "RUNNING") == JOB_RUNNING);
    assert_non_null(s->id);
}

static void files_are_taken(void **state)
{
    static const struct {
        const char *file, *word;
    } known[] = {{"ssh.ini", "ssh "}, {"slurm.ini", "srun "}, {"slurm-batch.ini", "sbatch "}};
    DIR *d = opendir(folder);
    struct dirent *e;
    size_t n = 0;

    assert_non_null(d);
    while ((e = readdir(d))) {
        const char *dot = strrchr(e->d_name, '.'), *word = NULL;
        struct fbr_command_settings s;
        char path[1000];

        if (!dot || strcmp(dot, ".ini") != 0)
            continue;
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
            if (strcmp(known[i].file, e->d_name) == 0)
                word = known[i].word;
        if (!word)
            fail_msg("%s: this test does not know it", e->d_name);
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        load(&s, "command_file", path);
        starts_with(&s, word);
        fbr_command_settings_fini(&s);
        n++;
    }
    closedir(d);
    assert_int_equal(n, sizeof(known) / sizeof(known[0]));
}

/* Its text, for free(). */
static char *readme(void)
{
    char path[700], *text = calloc(1, 1 << 16);
    FILE *f;

    snprintf(path, sizeof(path), "%s/README.md", folder);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_true(fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return text;
}

/* "| PBS Pro, inside a job | `pbs_tmrsh {host} {shell_command}` | documented |" */
static void lines_of_the_table_are_taken(void **state)
{
    static const char *const managers[] = {"ip netns ", "docker ", "bsub ", "pbs_tmrsh ", "nomad "};
    char *text = readme(), *rest = NULL;
    size_t n = 0;

    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *second = line[0] == '|' ? strchr(line + 1, '|') : NULL, *end;
        struct fbr_command_settings s;

        if (strncmp(line, "Keys of a file", 14) == 0)
            break;
        if (!second || strncmp(second, "| `", 3) != 0)
            continue;
        second += 3;
        end = strchr(second, '`');
        assert_non_null(end);
        *end = '\0';
        load(&s, "command_start", second);
        assert_true(n < sizeof(managers) / sizeof(managers[0]));
        starts_with(&s, managers[n++]);
        fbr_command_settings_fini(&s);
    }
    free(text);
    assert_int_equal(n, sizeof(managers) / sizeof(managers[0]));
}

/* The lines of the chapter that are indented. */
static void the_file_for_peloton_is_taken(void **state)
{
    char *text = readme(), *rest = NULL, path[] = "/tmp/command_shipped_test.XXXXXX";
    struct fbr_command_settings s;
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");

    assert_non_null(f);
    assert_non_null(strstr(text, "## Peloton"));
    for (char *line = strtok_r(strstr(text, "## Peloton"), "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest))
        if (strncmp(line, "    ", 4) == 0)
            fprintf(f, "%s\n", line + 4);
    fclose(f);
    load(&s, "command_file", path);
    unlink(path);
    assert_true(s.detached);
    starts_with(&s, "./peloton-submit ");
    assert_true(fbr_command_state(&s, "KILLED") == JOB_KILLED);
    fbr_command_settings_fini(&s);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_taken),
        cmocka_unit_test(lines_of_the_table_are_taken),
        cmocka_unit_test(the_file_for_peloton_is_taken),
    };
    const char *source = getenv("TEST_SOURCE_DIR");

    if (!source) {
        fprintf(stderr, "skipped: TEST_SOURCE_DIR does not say where the source is\n");
        return 77;
    }
    snprintf(folder, sizeof(folder), "%.500s/backends/command/templates", source);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
