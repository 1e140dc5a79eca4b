/* slurm_state_fuzz.c - what Slurm's commands say, when it is not they who say it: no text is an
 * end of a job unless its state is one that we know, and a job's own lines pass whole.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/slurm/slurm_lines.h"
#include "backends/slurm/slurm_args.h"

static void require(int holds)
{
    if (!holds)
        abort();
}

static void try_job(const struct fbr_slurm_job *job)
{
    char text[FBR_SLURM_TEXT];
    struct fbr_slurm_end end;

    fbr_slurm_waits(job, text, sizeof(text));
    require(text[0] || !job->reason[0]);
    if (fbr_slurm_phase(job->state) == FBR_SLURM_ENDED) {
        fbr_slurm_end(job, 0, 0, &end);
        require(end.code == FBR_EXIT_UNKNOWN || (end.code >= -127 && end.code <= 255));
    }
}

static void try_lines(const char *text)
{
    char *copy = strdup(text), *rest = NULL, line[64], id[FBR_SLURM_ID];
    struct fbr_slurm_job job;

    for (char *at = copy ? strtok_r(copy, "\n", &rest) : NULL; at;
         at = strtok_r(NULL, "\n", &rest)) {
        char *again = strdup(at);

        if (fbr_slurm_squeue_line(at, &job))
            try_job(&job);
        if (again && fbr_slurm_sacct_line(again, &job))
            try_job(&job);
        free(again);
    }
    free(copy);
    if (fbr_slurm_id(text, id))
        require(id[0] >= '0' && id[0] <= '9' && strlen(id) < sizeof(id));
    fbr_slurm_refusal(text, line, sizeof(line));
    require(!strchr(line, '\n'));
}

static size_t passed;

static void count(void *user, const void *data, size_t len)
{
    require(data != NULL && len > 0);
    passed += len;
}

static size_t taken;

static void count_line(void *user, const char *line)
{
    taken += strlen(line);
}

/* Every byte is passed on, or in a line that was Slurm's. */
static void try_stderr(const uint8_t *data, size_t size, size_t step)
{
    struct fbr_slurm_lines l = {.bytes = count, .line_of_slurm = count_line};
    struct fbr_slurm_end end;

    passed = taken = 0;
    for (size_t at = 0; at < size; at += step)
        fbr_slurm_lines_add(&l, (const char *)data + at, size - at < step ? size - at : step);
    fbr_slurm_lines_end(&l);
    require(passed + taken <= size && (taken || passed == size));
    fbr_slurm_step_end(&l.said, 1, 0, 0, &end);
    require(end.code != 0);
}

static void try_lists(const char *text)
{
    struct fbr_args w = {0};
    unsigned counts[8];

    fbr_slurm_hosts(text, 64, &w);
    require(w.n <= 64);
    for (size_t i = 0; i < w.n; i++)
        require(w.at[i][0] && w.at[i][0] != '-');
    fbr_args_fini(&w);
    fbr_slurm_counts(text, counts, 8);
}

static void try_room(char *text)
{
    const struct fbr_slurm_allocation a = {text, text, text, text, text, text, text};
    struct fbr_capacity room = {0};

    if (fbr_slurm_room_of(&a, &room) < 0)
        return;
    for (unsigned i = 0; i < room.hosts; i++) {
        require(room.slots[i] > 0);
        free(room.names[i]);
    }
    free(room.names);
    free(room.slots);
    room = (struct fbr_capacity){0};
    fbr_slurm_sizes(text, text[0] == '+', &room);
    require(!room.hosts == !room.cpus);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    try_lines(text);
    try_stderr(data, size, size ? size : 1);
    try_stderr(data, size, 3);
    try_lists(text);
    try_room(text);
    free(text);
    return 0;
}
