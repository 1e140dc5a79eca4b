/* lines.c - what ranks print, and what comes out: `lines emit COUNT`, and `lines count RANKS COUNT
 * -- LAUNCHER...`.
 *
 * emit prints COUNT lines of 100 bytes: "rank R line N" and a filling that both of them give. count
 * runs the launcher, reads its standard output, and checks each line; in front of it may stand any
 * tag that ends with "> ", "] " or ": ". A line that is not wholly one that was emitted is torn. It
 * prints one JSON object: seconds, bytes, lines, torn.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#define LINE 100
#define NUMBER 12 /* where it begins, for ranks of one digit */

/* The filling is a rank's own, so that halves of two ranks' lines do not make a whole one. */
static void make_line(char *line, unsigned rank, unsigned long n)
{
    int at = snprintf(line, LINE + 1, "rank %u line %09lu ", rank, n);

    for (; at < LINE - 1; at++)
        line[at] = (char)('a' + ((unsigned)at * (rank + 3) + rank) % 26);
    line[LINE - 1] = '\n';
    line[LINE] = '\0';
}

static int emit(unsigned long count)
{
    static const char *const names[] = {"FIBER_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    const char *rank = NULL;
    char line[LINE + 1], *at;

    for (int i = 0; i < 4 && !rank; i++)
        rank = getenv(names[i]);
    if (rank && atoi(rank) > 9)
        return 2;
    make_line(line, rank ? (unsigned)atoi(rank) : 0, 0);
    at = line + NUMBER;
    for (unsigned long n = 0; n < count; n++) {
        unsigned long left = n;

        for (int digit = 8; digit >= 0; digit--, left /= 10)
            at[digit] = (char)('0' + left % 10);
        if (fwrite(line, 1, LINE, stdout) != LINE)
            return 1;
    }
    return 0;
}

/* Whether [at, end) is a line that was emitted, behind a tag. The reader must not be what is measured: nine digits are
 * looked at, the rest is compared with what that rank prints. */
static int whole(const char *at, const char *end)
{
    static char lines[10][LINE + 1];
    char *expected;

    if (end - at < LINE - 1)
        return 0;
    at = end - (LINE - 1);
    if (at[5] < '0' || at[5] > '9')
        return 0;
    expected = lines[at[5] - '0'];
    if (!expected[0])
        make_line(expected, (unsigned)(at[5] - '0'), 0);
    for (int i = NUMBER; i < NUMBER + 9; i++)
        if (at[i] < '0' || at[i] > '9')
            return 0;
    return memcmp(at, expected, NUMBER) == 0 &&
           memcmp(at + NUMBER + 9, expected + NUMBER + 9, LINE - 1 - NUMBER - 9) == 0;
}

static int count(int ranks, unsigned long each, char **argv)
{
    size_t cap = 1 << 20, len = 0, bytes = 0;
    unsigned long lines = 0, torn = 0;
    char *buf = bench_alloc(cap, 1);
    double start = bench_now();
    int fds[2], status;
    ssize_t n;
    pid_t pid;

    if (pipe(fds) < 0) {
        perror("pipe");
        return 1;
    }
    pid = fork();
    if (pid == 0) {
        dup2(fds[1], 1);
        close(fds[0]);
        close(fds[1]);
        execvp(argv[0], argv);
        perror(argv[0]);
        _exit(127);
    }
    close(fds[1]);
    while ((n = read(fds[0], buf + len, cap - len)) > 0) {
        char *at = buf, *end = buf + len + n, *nl;

        bytes += (size_t)n;
        while ((nl = memchr(at, '\n', (size_t)(end - at)))) {
            lines++;
            torn += !whole(at, nl);
            at = nl + 1;
        }
        len = (size_t)(end - at);
        memmove(buf, at, len);
    }
    waitpid(pid, &status, 0);
    printf("{\"seconds\": %.6f, \"bytes\": %zu, \"lines\": %lu, \"torn\": %lu, \"missing\": %ld}\n",
           bench_now() - start, bytes, lines, torn,
           (long)(each * (unsigned long)ranks) - (long)(lines - torn));
    return status ? 1 : 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "emit") == 0)
        return emit(strtoul(argv[2], NULL, 10));
    if (argc > 5 && strcmp(argv[1], "count") == 0)
        return count(atoi(argv[2]), strtoul(argv[3], NULL, 10), argv + 5);
    fprintf(stderr, "usage: lines emit COUNT | lines count RANKS COUNT -- LAUNCHER...\n");
    return 2;
}
