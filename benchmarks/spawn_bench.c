/* spawn_bench.c - start and end of processes: `spawn_bench fiber|self|true AT_ONCE ROUNDS`.
 *
 *     fiber  fiber_process_start() of a function that returns 0, then fiber_process_join()
 *     self   posix_spawn() of this same program, which returns before fiber_init(), then waitpid(): it has the same
 *            libraries to load, so the difference is what Fiber adds (ticket, connection, authentication, report)
 *     true   posix_spawn() of /bin/true, which links libc only
 *
 * A round starts AT_ONCE processes, then waits for all of them. Output: one JSON object,
 * milliseconds of a round.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <spawn.h>
#include <sys/wait.h>

#include "fiber.h"
#include "bench.h"

#define AT_ONCE_MAX 4096

extern char **environ;

static int return_zero(const void *arg, size_t len)
{
    return 0;
}

static void round_fiber(int n)
{
    static struct fiber_process *processes[AT_ONCE_MAX];
    int i, code = -1;

    for (i = 0; i < n; i++)
        bench_check(fiber_process_start(&processes[i], return_zero, NULL, 0, NULL),
                    "fiber_process_start");
    for (i = 0; i < n; i++) {
        bench_check(fiber_process_join(processes[i], 60000), "fiber_process_join");
        bench_check(fiber_process_exitcode(processes[i], &code), "fiber_process_exitcode");
        if (code != 0) {
            fprintf(stderr, "%s\n", fiber_process_report(processes[i]));
            exit(1);
        }
        fiber_process_close(processes[i]);
    }
}

static void round_posix(int n, const char *path, char *const *argv)
{
    static pid_t pids[AT_ONCE_MAX];
    int i, status, code;

    for (i = 0; i < n; i++) {
        code = posix_spawn(&pids[i], path, NULL, NULL, argv, environ);
        if (code != 0) {
            fprintf(stderr, "%s: %s\n", path, strerror(code));
            exit(1);
        }
    }
    for (i = 0; i < n; i++)
        if (waitpid(pids[i], &status, 0) < 0 || status != 0) {
            fprintf(stderr, "%s did not end with 0\n", path);
            exit(1);
        }
}

int main(int argc, char **argv)
{
    char *self_argv[] = {(char *)"spawn_bench", (char *)"--exit", NULL},
         *true_argv[] = {(char *)"true", NULL};
    const char *kind;
    int at_once, rounds, i;
    double *ms, start, median;

    if (argc == 2 && strcmp(argv[1], "--exit") == 0)
        return 0;
    kind = argc > 1 ? argv[1] : "fiber";
    /* In a child of Fiber its arguments are Fiber's affair: only the master that posix_spawns skips
     * fiber_init(). */
    if (strcmp(kind, "self") != 0 && strcmp(kind, "true") != 0)
        bench_check(fiber_init(&argc, &argv), "fiber_init");
    at_once = (int)bench_number(argc, argv, 2, 1);
    rounds = (int)bench_number(argc, argv, 3, 30);
    if (at_once > AT_ONCE_MAX)
        at_once = AT_ONCE_MAX;
    ms = bench_alloc((size_t)rounds + 1, sizeof(*ms));
    for (i = 0; i <= rounds; i++) { /* the first one warms up and does not count */
        start = bench_now();
        if (strcmp(kind, "self") == 0)
            round_posix(at_once, "/proc/self/exe", self_argv);
        else if (strcmp(kind, "true") == 0)
            round_posix(at_once, "/bin/true", true_argv);
        else
            round_fiber(at_once);
        ms[i] = (bench_now() - start) * 1e3;
    }
    median = bench_quantile(ms + 1, (size_t)rounds, 0.5);
    printf("{\"bench\": \"spawn\", \"kind\": \"%s\", \"at_once\": %d, \"rounds\": %d, "
           "\"median_ms\": %.4f, "
           "\"min_ms\": %.4f, \"max_ms\": %.4f}\n",
           kind, at_once, rounds, median, ms[1], ms[rounds]);
    free(ms);
    return 0;
}
