/* program_control.c - what `fiber ps`, `top` and `kill` may ask of the processes and managers that
 * a program has started outside of its pools and rings; and their output, for `fiber logs`.
 *
 * A process takes the place that a rank has in a ring; the process's name is where the rank's
 * bootstrap is.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/environ.h"
#include "runtime/inspect/own_run.h"
#include "runtime/proc/ticket.h"

struct fbr_program {
    struct fbr_own_run *run;
    int started; /* number of processes, with those that have ended */
};

static void control_facts(void *user, struct fbr_run_facts *f)
{
    struct fbr_runtime *rt = user;
    struct fbr_pending jobs = {0};

    memset(f, 0, sizeof(*f));
    for (struct fiber_process *p = NULL; (p = fbr_process_next_own(rt, p));) {
        f->agents++;
        f->running += fbr_process_has_joined(p);
        fbr_pending_add(&jobs, fbr_process_pending(p), 0);
    }
    f->agents_joined = f->running;
    f->size = rt->program->started;
    f->ended = f->size - f->agents;
    fbr_pending_format(&jobs, f->waiting, sizeof(f->waiting));
}

static int control_stats(void *user, struct fbr_run_rank *out, int max)
{
    int n = 0;

    for (struct fiber_process *p = NULL; (p = fbr_process_next_own(user, p)); n++) {
        if (n >= max)
            continue;
        fbr_own_run_put(p, &out[n]);
        out[n].stats.rank = fbr_process_number(p);
        out[n].stats.state = fbr_process_has_joined(p);
        out[n].started_ms = fbr_wall_ms() - (int64_t)(fbr_now_ms() - fbr_process_since_ms(p));
        snprintf(out[n].stats.how, sizeof(out[n].stats.how), "%.31s", fiber_process_name(p));
    }
    return n;
}

static void control_look(void *user)
{
    for (struct fiber_process *p = NULL; (p = fbr_process_next_own(user, p));)
        fbr_process_look(p);
}

static int control_signal(void *user, int number, int sig)
{
    int rc = -ESRCH;

    for (struct fiber_process *p = NULL; (p = fbr_process_next_own(user, p));)
        if (number < 0 || fbr_process_number(p) == number)
            rc = fiber_process_signal(p, sig);
    return rc;
}

static struct fiber_process *control_host(void *user, int number, struct fbr_error *err)
{
    struct fiber_process *found = NULL;
    int n = 0;

    for (struct fiber_process *p = NULL; (p = fbr_process_next_own(user, p)); n++)
        if (number < 0 || fbr_process_number(p) == number)
            found = p;
    if (number < 0 && n > 1) {
        fbr_fail(err, -EINVAL, "it has %d processes: name one as RUN/NUMBER, see `fiber top`", n);
        return NULL;
    }
    if (!found && number < 0)
        fbr_fail(err, -ESRCH, "it has no processes now");
    else if (!found)
        fbr_fail(err, -ESRCH, "it has no process %d now; see `fiber top`", number);
    return found;
}

void fbr_program_started(struct fbr_runtime *rt)
{
    static const struct fbr_run_control_ops ops = {.facts = control_facts,
                                                   .stats = control_stats,
                                                   .look = control_look,
                                                   .signal = control_signal,
                                                   .stop = fbr_own_run_stop,
                                                   .host = control_host};

    if (!rt->program) {
        if (fbr_getenv("FIBER_RANK")) /* the ring of this rank shows it */
            return;
        rt->program = calloc(1, sizeof(*rt->program));
        if (!rt->program)
            return;
        rt->program->run = fbr_own_run_new(rt, FBR_RUN_PROGRAM, "", "", &ops, rt);
    }
    rt->program->started++;
    fbr_own_run_wake(rt->program->run);
}

/* A mark before its first output has the name of the process, unless that ends in its number. */
void fbr_program_output(struct fbr_runtime *rt, struct fiber_process *p, int stream,
                        const void *data, size_t len)
{
    struct fbr_own_run *run = rt->program ? rt->program->run : NULL;
    const char *name = fiber_process_name(p), *dash = strrchr(name, '-');
    int number = fbr_process_number(p);
    char mark[FBR_NAME_MAX + 16];

    if (!fbr_process_has_printed(p) && (!dash || atoi(dash + 1) != number)) {
        snprintf(mark, sizeof(mark), "--- %s ---\n", name);
        fbr_own_run_keep(run, number, FBR_RECORD_MARK, mark, strlen(mark));
    }
    fbr_own_run_keep(run, number, stream == 2 ? FBR_RECORD_ERR : FBR_RECORD_OUT, data, len);
}

static int end(void *arg)
{
    struct fbr_spool **spool = arg;
    struct fbr_runtime *rt = fbr_rt_any();

    if (rt->program)
        *spool = fbr_own_run_end(rt->program->run);
    free(rt->program);
    rt->program = NULL;
    return 0;
}

void fbr_program_close(struct fbr_runtime *rt)
{
    struct fbr_spool *spool = NULL;

    fbr_loop_call(rt->loop, end, &spool);
    fbr_spool_close(spool);
}
