/* pmi_rank.c - a rank that speaks PMI-1 and notes when, for ring_bench.c: `pmi_rank FILE fences COUNT`,
 * which is COUNT barriers in a row and the times before and after each.
 *
 * It writes the lines of the protocol itself: between the agent and the rank there is no library
 * then, and no thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../rank_times.h"

/* Sends a line, and waits for the answer that begins like this. */
static void ask(int fd, const char *line, const char *answer)
{
    char text[1024];
    size_t len = 0;

    if (write(fd, line, strlen(line)) < 0) {
        perror("PMI_FD");
        exit(1);
    }
    do {
        ssize_t n = read(fd, text + len, sizeof(text) - 1 - len);

        if (n <= 0) {
            fprintf(stderr, "PMI: no answer to %s", line);
            exit(1);
        }
        len += (size_t)n;
    } while (text[len - 1] != '\n');
    text[len] = '\0';
    if (strncmp(text, answer, strlen(answer)) != 0) {
        fprintf(stderr, "PMI: %s was answered by %s", line, text);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    const char *fd_text = getenv("PMI_FD"), *rank = getenv("PMI_RANK");
    int count = argc > 3 ? atoi(argv[3]) : 0, fd = fd_text ? atoi(fd_text) : -1;
    struct rank_times *row;

    if (argc != 4 || strcmp(argv[2], "fences") != 0 || count > RANK_ROUNDS || !rank || fd < 0) {
        fprintf(stderr, "usage: pmi_rank FILE fences COUNT, as a rank\n");
        return 2;
    }
    row = rank_times_map(argv[1]) + atoi(rank);
    ask(fd, "cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=response_to_init");
    ask(fd, "cmd=barrier_in\n", "cmd=barrier_out"); /* all are there */
    for (int i = 0; i < count; i++) {
        row->in[i] = bench_now();
        ask(fd, "cmd=barrier_in\n", "cmd=barrier_out");
        row->out[i] = bench_now();
    }
    ask(fd, "cmd=finalize\n", "cmd=finalize_ack");
    return 0;
}
