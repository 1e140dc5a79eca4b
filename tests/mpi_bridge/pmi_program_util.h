/* pmi_program_util.h - for tests of the bridge of PMI: a program that is compiled for them, and
 * rings of it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/bridge_tables.h"
#include "tests/support/bridge_host.h"
#include "tests/support/run.h"
#include "tests/support/sync.h"

static char dir[64], program[80]; /* "": its compiler, or its library, is missing */

/* tests/mpi_bridge/<name>.c, unless `needed` is not there. */
static int compile_program(const char *compiler, const char *name, const char *library,
                           const char *needed)
{
    char source[512];
    const char *argv[] = {compiler, "-w", source, "-o", program, library, NULL};

    temp_dir_make(dir);
    if (access(compiler, X_OK) < 0 || access(needed, R_OK) < 0)
        return 0;
    snprintf(source, sizeof(source), "%s/tests/mpi_bridge/%s.c", getenv("TEST_SOURCE_DIR"), name);
    snprintf(program, sizeof(program), "%s/%s", dir, name);
    return run_shown(argv);
}

static int forget_program(void **state)
{
    temp_dir_remove(dir);
    return 0;
}

static void need_program(const char *missing)
{
    if (!*program) {
        print_message("%s is missing\n", missing);
        skip();
    }
}

/* A job of it with these ranks, each told `what`; answers its id. */
static uint32_t start_program(struct bridge_host *h, const uint32_t *per_agent, const char *what,
                              char *const *env)
{
    const char *const argv[] = {program, what, NULL};
    uint32_t id;

    host_use(h, &fbr_bridge_pmi1);
    id = host_job(h, per_agent);
    host_start_all(h, id, argv, env);
    return id;
}
