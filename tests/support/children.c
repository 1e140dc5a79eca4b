/* children.c - processes for tests; see children.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/children.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <utlist.h>

#include "runtime/proc/context.h"
#include "runtime/proc/process_priv.h"

#define CANNOT_START 125
#define ENDED_MS 300000 /* only a failure reaches it; containers on a busy machine take minutes */

void init_fiber(int *argc, char ***argv)
{
    if (fiber_init(argc, argv) == 0)
        return;
    fprintf(stderr, "%s\n", fiber_last_error());
    exit(1);
}

struct fiber_process *begin(fiber_process_fn fn, const void *arg, size_t len,
                            const struct fiber_process_options *o)
{
    struct fiber_process *p;

    if (fiber_process_start(&p, fn, arg, len, o) < 0) {
        fprintf(stderr, "cannot start: %s\n", fiber_last_error());
        abort();
    }
    return p;
}

struct fiber_process *begin_str(fiber_process_fn fn, const char *arg)
{
    return begin(fn, arg, strlen(arg) + 1, NULL);
}

int children_active(struct fiber_process **first)
{
    struct fbr_runtime *rt = fbr_rt_peek();
    struct fiber_process *p;
    int n = 0;

    if (!rt)
        return 0;
    pthread_mutex_lock(&rt->lock);
    DL_FOREACH(rt->processes, p) {
        if (p->state == P_ENDED)
            continue;
        n++;
        if (first)
            *first = p;
    }
    pthread_mutex_unlock(&rt->lock);
    return n;
}

int ended(struct fiber_process *p)
{
    int code, rc = fiber_process_join(p, ENDED_MS);

    if (rc < 0) {
        fprintf(stderr, "%s\n", fiber_last_error());
        abort();
    }
    rc = fiber_process_exitcode(p, &code);
    if (rc == 0 && code == CANNOT_START)
        fprintf(stderr, "%s\n", fiber_process_report(p));
    return rc < 0 ? rc : code;
}

int finish(struct fiber_process *p)
{
    int code = ended(p);

    fiber_process_close(p);
    return code;
}

int has(const char *text, ...)
{
    const char *word;
    int all = 1;
    va_list ap;

    va_start(ap, text);
    while ((word = va_arg(ap, const char *)))
        if (!strstr(text, word)) {
            fprintf(stderr, "\"%s\" is not in: %s\n", word, text);
            all = 0;
        }
    va_end(ap);
    return all;
}

int child_return(const void *arg, size_t len)
{
    return *(const int *)arg;
}

int child_wait(const void *arg, size_t len)
{
    for (;;)
        pause();
}

int child_notify_wait(const void *gate, size_t len)
{
    pid_t me = getpid();

    if (gate_notify(gate, &me, sizeof(me)) < 0)
        return 1;
    return child_wait(gate, len);
}
