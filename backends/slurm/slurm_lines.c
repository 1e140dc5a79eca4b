/* slurm_lines.c - separates Slurm's own lines from a job's standard error.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/slurm/slurm_lines.h"

#include <string.h>

static void pass(struct fbr_slurm_lines *l, const char *data, size_t len)
{
    if (len)
        l->bytes(l->user, data, len);
}

/* Handles a line that began like a line of Slurm; the last line may have no newline. */
static void on_line(struct fbr_slurm_lines *l, bool newline)
{
    l->line[l->len] = '\0';
    if (strlen(l->line) == l->len && fbr_slurm_srun_line(&l->said, l->line)) {
        if (l->line_of_slurm)
            l->line_of_slurm(l->user, l->line);
    } else {
        if (newline)
            l->line[l->len++] = '\n';
        pass(l, l->line, l->len);
    }
    l->len = 0;
}

/* Passes on bytes up to the end of this line, and of further lines that cannot be Slurm's; returns
 * their number. */
static size_t others(struct fbr_slurm_lines *l, const char *data, size_t len)
{
    size_t at = 0;

    while (at < len && l->inside) {
        const char *newline = memchr(data + at, '\n', len - at);

        l->inside = !newline;
        at = newline ? (size_t)(newline - data) + 1 : len;
        if (at < len && !fbr_slurm_srun_maybe(data + at, len - at))
            l->inside = true;
    }
    return at;
}

void fbr_slurm_lines_add(struct fbr_slurm_lines *l, const char *data, size_t len)
{
    while (len > 0) {
        if (l->inside) {
            size_t n = others(l, data, len);

            pass(l, data, n);
            data += n;
            len -= n;
            continue;
        }
        len--;
        if (*data == '\n') {
            data++;
            on_line(l, true);
            continue;
        }
        l->line[l->len++] = *data++;
        if (l->len < FBR_SLURM_LINE - 2 && fbr_slurm_srun_maybe(l->line, l->len))
            continue;
        l->inside = true;
        pass(l, l->line, l->len);
        l->len = 0;
    }
}

void fbr_slurm_lines_end(struct fbr_slurm_lines *l)
{
    if (l->len)
        on_line(l, false);
}
