/* doctor.c - `fiber doctor`: reports what works here and what does not, with the remedy.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/option.h"
#include "cli/screen.h"
#include "runtime/program/spawn.h"
#include "runtime/program/subprocess.h"
#include "runtime/base/printable.h"
#include "runtime/proc/backend.h"

#define PATIENCE_MS 5000
#define OUTPUT_MAX (16u << 20)

enum { DOCTOR_BACKEND, DOCTOR_JSON, DOCTOR_OPTIONS };

struct doctor {
    bool is_json, colour;
    struct fbr_json json;
    int bad;
};

static const char *const states[] = {
    [DOCTOR_GOOD] = "ok", [DOCTOR_ABSENT] = "absent", [DOCTOR_BAD] = "bad"};

/* Prints the remedy, which may have several lines (a manifest, for instance). */
static void print_mend(const char *mend)
{
    const char *arrow = "->";

    for (; *mend; arrow = "  ") {
        int n = (int)strcspn(mend, "\n");

        printf("%30s %s %.*s\n", "", arrow, n, mend);
        mend += n + (mend[n] == '\n');
    }
}

void doctor_report(struct doctor *d, const char *name, enum doctor_state state, const char *mend,
                   const char *fmt, ...)
{
    static const char *const colours[] = {
        [DOCTOR_GOOD] = "\033[32m", [DOCTOR_ABSENT] = "\033[2m", [DOCTOR_BAD] = "\033[31m"};
    char raw[1024], found[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(raw, sizeof(raw), fmt, ap);
    va_end(ap);
    fbr_printable_plain(found, sizeof(found), raw);
    d->bad += state == DOCTOR_BAD;
    if (d->is_json) {
        fbr_json_object(&d->json);
        fbr_json_str(&d->json, "check", name);
        fbr_json_str(&d->json, "state", states[state]);
        fbr_json_str(&d->json, "found", found);
        fbr_json_str(&d->json, "mend", mend);
        fbr_json_end_object(&d->json);
        return;
    }
    printf("%s%-7s%s %-22s %s\n", d->colour ? colours[state] : "", states[state],
           d->colour ? "\033[0m" : "", name, found);
    if (state != DOCTOR_GOOD && mend[0])
        print_mend(mend);
    cli_flush();
}

/* ---- Other programs, run with a time limit ---- */

int doctor_ask_all(const char *const *argv, char *text, size_t size)
{
    char path[PATH_MAX];
    struct fbr_subprocess p = {.file = path,
                               .argv = (char *const *)argv,
                               .in = -1,
                               .errors = -1,
                               .limit_ms = PATIENCE_MS,
                               .max = OUTPUT_MAX};
    int rc = fbr_spawn_find(argv[0], path, sizeof(path), NULL), code = 0;
    struct fbr_buf out = {0};

    text[0] = '\0';
    if (rc < 0)
        return rc;
    rc = fbr_subprocess_run(&p, &out, &code, NULL);
    snprintf(text, size, "%.*s", (int)out.len, out.len ? (const char *)out.data : "");
    fbr_buf_fini(&out);
    return rc == 0 && code != 0 && !text[0] ? -EIO : rc;
}

int doctor_ask(const char *const *argv, char *line, size_t size)
{
    int rc = doctor_ask_all(argv, line, size);

    line[strcspn(line, "\n")] = '\0';
    return rc;
}

/* ---- The command ---- */

static int run_doctor(const struct cli_args *args)
{
    const char *no_colour = getenv("NO_COLOR"), *only = args->values[DOCTOR_BACKEND].text;
    struct doctor d;

    memset(&d, 0, sizeof(d));
    d.is_json = args->values[DOCTOR_JSON].number > 0;
    d.colour = cli_is_screen(STDOUT_FILENO) && !(no_colour && *no_colour);
    fbr_json_array(&d.json, NULL);
    doctor_place(&d);
    if (!only || !strcmp(only, FBR_BACKEND_LOCAL)) {
        doctor_machine(&d);
        doctor_bootstraps(&d);
    }
    doctor_backends(&d, only);
    fbr_json_end_array(&d.json);
    if (d.is_json && cli_print_json(stdout, &d.json))
        d.bad = 1;
    fbr_buf_fini(&d.json.text);
    return d.bad ? 1 : 0;
}

static const struct cli_option options[DOCTOR_OPTIONS] = {
    [DOCTOR_BACKEND] = {"backend", 'b', CLI_WORD, "B", .words = fbr_backend_names,
                        .help = "checks only what this backend needs, and reports as bad what is "
                                "absent"},
    [DOCTOR_JSON] = {"json", 0, CLI_FLAG, .help = "as a JSON array"},
};

const struct cli_command cli_doctor = {
    .name = "doctor",
    .operands = "",
    .about = "Checks what works here, and how to repair what does not",
    .text =
        "absent means that something optional is missing; bad means that something does not work, "
        "or works slowly. doctor changes nothing.\n\n"
        "A backend is opened as a run opens it: where it is, who you are there, what you may do, "
        "whether it has the image and GPUs, and at which address its jobs reach this host. Each "
        "backend may take ten seconds.",
    .examples = "fiber doctor\teverything\n"
                "fiber doctor --backend docker\twhether containers can start, and if not, why\n"
                "fiber doctor --json\tfor programs",
    .exit = "0\tnothing is bad\n1\tsomething is bad",
    .options = options,
    .count = DOCTOR_OPTIONS,
    .run = run_doctor,
};
