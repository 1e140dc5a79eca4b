/* stack_serve.c - reports the stacks of this process and its descendants to an exec client.
 *
 * It first reads the facts, then runs fiber-stack with a time limit. If fiber-stack is missing, or
 * may not trace the processes, the report has only the facts and the reason. The kernel kills
 * fiber-stack when this thread ends.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/base/fds.h"
#include "runtime/program/module.h"
#include "runtime/program/subprocess.h"
#include "runtime/inspect/stack.h"

#define LIMIT_MS 40000 /* less than the time that the client waits for a byte */

/* ---- Why there are no frames ---- */

static int yama_scope(void)
{
    char text[16];

    fbr_fds_read_file("/proc/sys/kernel/yama/ptrace_scope", text, sizeof(text));
    return atoi(text);
}

static bool is_refusal(const char *why)
{
    return strtol(why, NULL, 10) == EPERM || strtol(why, NULL, 10) == EACCES;
}

/* Replaces an errno that fiber-stack has reported by a sentence. */
static void explain(char *why, size_t size)
{
    char *end;
    long code = strtol(why, &end, 10);
    int scope;

    if (end == why || *end)
        return;
    scope = yama_scope();
    if (code == ESRCH)
        snprintf(why, size, "it has ended");
    else if (code != EPERM && code != EACCES)
        snprintf(why, size, "%s", strerror((int)code));
    else if (scope)
        snprintf(why, size,
                 "the kernel lets nobody trace it: kernel.yama.ptrace_scope is %d on its host; set "
                 "it to 0 or 1",
                 scope);
    else
        snprintf(
            why, size,
            "it may not be traced: it belongs to another user, is not dumpable, is traced already, "
            "or its container forbids ptrace (--cap-add SYS_PTRACE, or the seccomp profile)");
}

static void explain_all(struct fbr_stack_process *p)
{
    if (p->nthreads && !p->why[0] && p->threads[0].why[0] >= '0' && p->threads[0].why[0] <= '9')
        snprintf(p->why, sizeof(p->why), "%s", p->threads[0].why); /* one reason for all of them */
    explain(p->why, sizeof(p->why));
    for (uint32_t i = 0; i < p->nthreads; i++) {
        if (p->why[0])
            p->threads[i].why[0] = '\0';
        explain(p->threads[i].why, sizeof(p->threads[i].why));
    }
    if (p->state == 'Z')
        snprintf(p->why, sizeof(p->why), "it has ended, and its parent has not waited for it");
}

static void notify_all(struct fbr_stack_list *l, const char *why)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->all[i].state != 'Z')
            snprintf(l->all[i].why, sizeof(l->all[i].why), "%s", why);
}

/* ---- fiber-stack ---- */

/* Runs fiber-stack. *b gets its records, also if it did not get through all threads. */
static int run(const struct fbr_stack_list *l, struct fbr_buf *b, int *code, struct fbr_error *err)
{
    char path[PATH_MAX], *numbers = calloc(l->count, 12);
    char **argv = calloc(l->count + 2, sizeof(*argv));
    struct fbr_subprocess p = {.file = path,
                               .argv = argv,
                               .in = -1,
                               .errors = -1,
                               .limit_ms = LIMIT_MS,
                               .max = FBR_STACK_MAX};
    int rc = fbr_fds_need(8, "fiber-stack", err), n = 0;

    if (rc < 0 || (rc = fbr_module_program(FBR_STACK_PROGRAM, path, sizeof(path), err)) < 0)
        goto done;
    if (!numbers || !argv) {
        rc = fbr_fail(err, -ENOMEM, "out of memory");
        goto done;
    }
    argv[n++] = (char *)FBR_STACK_PROGRAM;
    for (size_t i = 0; i < l->count; i++) {
        snprintf(numbers + i * 12, 12, "%u", l->all[i].pid);
        if (l->all[i].state != 'Z')
            argv[n++] = numbers + i * 12;
    }
    rc = fbr_subprocess_run(&p, b, code, err);
done:
    free(numbers);
    free(argv);
    return rc;
}

static void take_out(struct fbr_stack_list *l, const struct fbr_buf *b)
{
    struct fbr_cur c = fbr_cur(b->data, b->len);
    struct fbr_stack_process p;

    while (fbr_stack_get(&c, &p) > 0) {
        for (size_t i = 0; i < l->count; i++)
            if (l->all[i].pid == p.pid) {
                fbr_stack_take_frames(&l->all[i], &p);
                break;
            }
        fbr_stack_fini(&p);
    }
}

static void add_frames(struct fbr_stack_list *l)
{
    struct fbr_error err = {0, ""};
    char why[400] = "no stacks: the time was too short";
    struct fbr_buf b = {0};
    int code = 0, rc;

    rc = run(l, &b, &code, &err);
    if (err.code)
        snprintf(why, sizeof(why), "no stacks: %s on its host: %.250s",
                 err.code == -ENOENT
                     ? "Fiber was built without libdw (Debian: libdw-dev), or " FBR_STACK_PROGRAM
                       " was not installed"
                     : "cannot start " FBR_STACK_PROGRAM,
                 err.text);
    else if (code == 127)
        snprintf(why, sizeof(why), "no stacks: libdw.so.1 is missing on its host (Debian: libdw1)");
    else if (code && rc == 0)
        snprintf(why, sizeof(why), "no stacks: " FBR_STACK_PROGRAM " ended with %s %d",
                 code < 0 ? "signal" : "code", code < 0 ? -code : code);
    notify_all(l, why); /* stays where fiber-stack has written no record */
    take_out(l, &b);
    fbr_buf_fini(&b);
}

/* ---- Serving ---- */

/* Removes this thread, which only serves the client. */
static void forget_us(struct fbr_stack_process *p)
{
    for (uint32_t i = 1; i < p->nthreads; i++)
        if (p->threads[i].tid == (uint32_t)gettid()) {
            p->nthreads--;
            memmove(&p->threads[i], &p->threads[i + 1], (p->nthreads - i) * sizeof(p->threads[i]));
        }
}

/* Whether fiber-stack may not trace this process. A process that Fiber has started, and each of its
 * descendants, lets its parent trace it (spawn.c). A process that another program has started, such
 * as a container's first process, has not allowed that yet, and the kernel has no call that reads
 * the setting. So the setting is changed only after a refusal. */
static bool may_not_see(const struct fbr_stack_process *us)
{
    return is_refusal(us->why) || (us->nthreads && is_refusal(us->threads[0].why));
}

int fbr_stack_serve(struct fbr_buf *out, struct fbr_error *err)
{
    struct fbr_stack_list l;
    int rc = fbr_stack_look("/proc", (uint32_t)getpid(), &l, err);

    if (rc < 0)
        return rc;
    forget_us(&l.all[0]);
    add_frames(&l);
    if (may_not_see(&l.all[0]) && yama_scope() == 1 &&
        prctl(PR_SET_PTRACER, (unsigned long)getpid(), 0, 0, 0) == 0)
        add_frames(&l);
    for (size_t i = 0; i < l.count && !out->failed && out->len < FBR_STACK_MAX; i++) {
        explain_all(&l.all[i]);
        fbr_stack_put(out, &l.all[i]);
    }
    fbr_stack_list_fini(&l);
    return out->failed ? fbr_fail(err, -ENOMEM, "out of memory") : 0;
}
