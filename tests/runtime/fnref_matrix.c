/* fnref_matrix.c - what fnref_matrix_test.sh builds in many ways: a parent that sends references to
 * its child.
 *
 *   program                  makes the references, runs itself twice with them, the second time without ASLR
 *   program make             prints the references, one line of hex each
 *   program call HEX...      resolves and calls them, each with 7; prints "7*7=49" and so on
 *
 * Exit code 0; 1 a wrong answer; the negated errno of the first reference that failed, with its
 * text on stderr. -DFNREF_LIBRARY compiles the shared library's half, -DWITH_LIBRARY the program
 * that links it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

int library_triple(int x);

#ifdef FNREF_LIBRARY
int library_triple(int x)
{
    return 3 * x;
}
#else
#include "runtime/proc/fnref.h"

#define FUNCTIONS 3

int cube(int x);

static int square(int x)
{
    return x * x;
}

int cube(int x)
{
    return x * x * x;
}

#ifndef WITH_LIBRARY
int library_triple(int x)
{
    return 3 * x;
}
#endif

static const int answers[FUNCTIONS] = {49, 343, 21};

static int fail(const struct fbr_error *err)
{
    fprintf(stderr, "%s\n", err->text);
    return -err->code;
}

static int make(char hex[FUNCTIONS][128])
{
    int (*const fns[FUNCTIONS])(int) = {square, cube, library_triple};

    for (int i = 0; i < FUNCTIONS; i++) {
        struct fbr_fnref ref;
        struct fbr_error err;
        struct fbr_buf b = {0};

        if (fbr_fnref_make(&ref, (void (*)(void))fns[i], &err))
            return fail(&err);
        fbr_fnref_put(&b, &ref);
        for (size_t k = 0; k < b.len; k++)
            snprintf(hex[i] + 2 * k, 3, "%02x", b.data[k]);
        fbr_buf_fini(&b);
    }
    return 0;
}

static int call(int n, char **hex)
{
    for (int i = 0; i < n; i++) {
        unsigned char bytes[64];
        size_t len = strlen(hex[i]) / 2;
        struct fbr_fnref ref;
        struct fbr_error err;
        struct fbr_cur c;
        void (*fn)(void);
        int answer;

        for (size_t k = 0; k < len && k < sizeof(bytes); k++) {
            unsigned byte;

            if (sscanf(hex[i] + 2 * k, "%2x", &byte) != 1)
                return 1;
            bytes[k] = (unsigned char)byte;
        }
        c = fbr_cur(bytes, len);
        fbr_fnref_get(&c, &ref);
        if (!fbr_cur_ok(&c))
            return 1;
        if (fbr_fnref_resolve(&ref, &fn, &err))
            return fail(&err);
        answer = ((int (*)(int))fn)(7);
        if (answer != answers[i])
            return 1;
    }
    return n == FUNCTIONS ? 0 : 1;
}

/* Runs this program again; `fixed`: at the addresses of a process without ASLR, where the kernel
 * allows that. */
static int run_child(char hex[FUNCTIONS][128], int fixed)
{
    char *argv[] = {"program", "call", hex[0], hex[1], hex[2], NULL};
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        if (fixed)
            personality(ADDR_NO_RANDOMIZE);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
    char hex[FUNCTIONS][128];
    int rc;

    if (argc > 1 && !strcmp(argv[1], "call"))
        return call(argc - 2, argv + 2);
    rc = make(hex);
    for (int i = 0; i < FUNCTIONS && !rc && argc > 1; i++)
        printf("%s\n", hex[i]);
    if (argc > 1 || rc)
        return rc;
    rc = run_child(hex, 0);
    return rc ? rc : run_child(hex, 1);
}
#endif
