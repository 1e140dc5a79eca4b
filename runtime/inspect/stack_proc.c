/* stack_proc.c - reads the kernel's facts about processes, without touching them.
 *
 * Processes may end meanwhile: a process that is gone is left out.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/fds.h"
#include "runtime/inspect/stack.h"
#include "runtime/base/printable.h"

#define ENVIRONMENT (256u << 10) /* bytes of it that are searched */

/* ---- Texts ---- */

bool fbr_stack_stat(const char *text, struct fbr_stack_stat *s)
{
    const char *open = strchr(text, '('), *close = strrchr(text, ')');
    unsigned long long user, kernel, pages = 0;
    unsigned pid, parent;
    size_t n;

    memset(s, 0, sizeof(*s));
    if (!open || !close || close < open || sscanf(text, "%u", &pid) != 1 ||
        sscanf(close + 1,
               " %c %u %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d %*d %*u "
               "%*u %llu",
               &s->state, &parent, &user, &kernel, &pages) < 4)
        return false;
    n = (size_t)(close - open - 1);
    n = n < sizeof(s->name) ? n : sizeof(s->name) - 1;
    memcpy(s->name, open + 1, n);
    s->pid = pid;
    s->parent = parent;
    s->ticks = user + kernel;
    s->pages = pages;
    return isalpha((unsigned char)s->state) != 0;
}

/* Every system call of this processor: CMakeLists.txt makes the list of the kernel's header. */
static const struct {
    long number;
    const char *name;
} calls[] = {
#include "stamp/fiber_calls.h"
};

void fbr_stack_call(const char *text, char *out, size_t size)
{
    char *end;
    long number = strtol(text, &end, 10);

    snprintf(out, size, "%s", "");
    if (end == text || number < 0) /* "running", or not in a call */
        return;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (calls[i].number == number) {
            snprintf(out, size, "%s", calls[i].name);
            return;
        }
    snprintf(out, size, "syscall %ld", number);
}

/* ---- Files ---- */

static bool read_stat(const char *dir, struct fbr_stack_stat *s)
{
    char path[320], text[1024];

    snprintf(path, sizeof(path), "%.300s/stat", dir);
    return fbr_fds_read_file(path, text, sizeof(text)) > 0 && fbr_stack_stat(text, s);
}

static uint64_t to_ms(uint64_t ticks)
{
    long hz = sysconf(_SC_CLK_TCK);

    return ticks * 1000 / (uint64_t)(hz > 0 ? hz : 100);
}

bool fbr_stack_usage(pid_t pid, uint64_t *cpu_ns, uint64_t *resident)
{
    struct fbr_stack_stat s;
    char dir[32];

    snprintf(dir, sizeof(dir), "/proc/%d", (int)pid);
    if (!read_stat(dir, &s))
        return false;
    *cpu_ns = to_ms(s.ticks) * 1000000;
    *resident = s.pages * (uint64_t)sysconf(_SC_PAGESIZE);
    return true;
}

/* Reads the rank from the environment with which the process began; -1: none. */
static int32_t rank_of(const char *dir)
{
    static const char name[] = "FIBER_RANK=";
    char path[320], *text = malloc(ENVIRONMENT);
    int32_t rank = -1;
    ssize_t n;

    snprintf(path, sizeof(path), "%.300s/environ", dir);
    n = text ? fbr_fds_read_file(path, text, ENVIRONMENT) : -1;
    for (const char *at = text; n > 0 && at < text + n; at += strlen(at) + 1)
        if (!strncmp(at, name, sizeof(name) - 1) && isdigit((unsigned char)at[sizeof(name) - 1])) {
            long v = strtol(at + sizeof(name) - 1, NULL, 10);

            rank = v <= INT32_MAX ? (int32_t)v : -1;
        }
    free(text);
    return rank;
}

static void look_at_thread(const char *dir, struct fbr_stack_thread *t)
{
    char path[320], text[256];
    struct fbr_stack_stat s;

    if (read_stat(dir, &s)) {
        t->state = s.state;
        t->cpu_ms = to_ms(s.ticks);
        fbr_printable_plain(t->name, sizeof(t->name), s.name);
    }
    snprintf(path, sizeof(path), "%.300s/wchan", dir);
    if (fbr_fds_read_file(path, text, sizeof(text)) > 0 && strcmp(text, "0") != 0)
        fbr_printable_plain(t->wchan, sizeof(t->wchan), text);
    snprintf(path, sizeof(path), "%.300s/syscall", dir);
    if (fbr_fds_read_file(path, text, sizeof(text)) > 0)
        fbr_stack_call(text, t->call, sizeof(t->call));
}

/* Lists the threads, the main thread first. */
static void look_at_threads(const char *dir, struct fbr_stack_process *p)
{
    char path[300];
    struct fbr_stack_thread *t = fbr_stack_add_thread(p);
    struct dirent *e;
    DIR *d;

    if (!t)
        return;
    t->tid = p->pid;
    snprintf(path, sizeof(path), "%.200s/task/%u", dir, p->pid);
    look_at_thread(path, t);
    snprintf(path, sizeof(path), "%.200s/task", dir);
    d = opendir(path);
    while (d && (e = readdir(d))) {
        uint32_t tid = (uint32_t)strtoul(e->d_name, NULL, 10);

        if (!tid || tid == p->pid)
            continue;
        t = fbr_stack_add_thread(p);
        if (!t)
            break;
        t->tid = tid;
        snprintf(path, sizeof(path), "%.200s/task/%u", dir, tid);
        look_at_thread(path, t);
    }
    if (d)
        closedir(d);
}

/* ---- Processes ---- */

static struct fbr_stack_process *add(struct fbr_stack_list *l)
{
    struct fbr_stack_process *p = fbr_grow(&l->all, l->count, sizeof(*p));

    l->count += p != NULL;
    return p;
}

void fbr_stack_list_fini(struct fbr_stack_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        fbr_stack_fini(&l->all[i]);
    free(l->all);
    *l = (struct fbr_stack_list){NULL, 0};
}

struct table {
    struct fbr_stack_stat *all;
    size_t count;
};

/* Reads the stat files of all processes. */
static int read_table(const char *proc, struct table *t, struct fbr_error *err)
{
    DIR *d = opendir(proc);
    char path[300];
    struct dirent *e;
    int rc = 0;

    if (!d)
        return fbr_fail(err, -errno, "%s: %s", proc, fbr_strerror(errno));
    while ((e = readdir(d))) {
        struct fbr_stack_stat s, *more;

        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        snprintf(path, sizeof(path), "%.200s/%.20s", proc, e->d_name);
        if (!read_stat(path, &s))
            continue;
        more = fbr_grow(&t->all, t->count, sizeof(*more));
        if (!more) {
            rc = -ENOMEM;
            break;
        }
        *more = s;
        t->count++;
    }
    closedir(d);
    return rc < 0 ? fbr_fail(err, rc, "%s: %s", proc, fbr_strerror(rc)) : 0;
}

/* Stores the name of the executable file. The name of a thread may be set to anything, and is "exe"
 * in a process that we start by /proc/self/exe. */
static void name_program(const char *dir, const struct fbr_stack_stat *s,
                         struct fbr_stack_process *p)
{
    char path[300], file[PATH_MAX];
    const char *name = s->name;
    ssize_t n;

    snprintf(path, sizeof(path), "%.250s/exe", dir);
    n = readlink(path, file, sizeof(file) - 1);
    if (n > 0) {
        file[n] = '\0';
        name = basename(file);
    }
    fbr_printable_plain(p->program, sizeof(p->program), name);
}

/* Adds a process to the list. `rank` is its parent's: the descendants of a rank belong to that
 * rank, even if their environment cannot be read. */
static int take(const char *proc, const struct fbr_stack_stat *s, int32_t rank,
                struct fbr_stack_list *l)
{
    struct fbr_stack_process *p = add(l);
    char dir[256];

    if (!p)
        return -ENOMEM;
    snprintf(dir, sizeof(dir), "%.200s/%u", proc, s->pid);
    p->pid = s->pid;
    p->parent = s->parent;
    p->visited = l->count == 1;
    p->state = s->state;
    p->cpu_ms = to_ms(s->ticks);
    name_program(dir, s, p);
    /* our own rank may be that of a ring around us */
    p->rank = p->visited ? -1 : rank >= 0 ? rank : rank_of(dir);
    look_at_threads(dir, p);
    return 0;
}

int fbr_stack_look(const char *proc, uint32_t pid, struct fbr_stack_list *l, struct fbr_error *err)
{
    struct table t = {NULL, 0};
    int rc;

    *l = (struct fbr_stack_list){NULL, 0};
    rc = read_table(proc, &t, err);
    for (size_t i = 0; i < t.count && rc == 0; i++)
        if (t.all[i].pid == pid)
            rc = take(proc, &t.all[i], -1, l);
    for (size_t at = 0; at < l->count && rc == 0; at++)
        for (size_t i = 0; i < t.count && rc == 0 && l->count < FBR_STACK_PROCESSES; i++)
            if (t.all[i].parent == l->all[at].pid && t.all[i].pid != pid &&
                strcmp(t.all[i].name, FBR_STACK_PROGRAM) != 0)
                rc = take(proc, &t.all[i], l->all[at].rank, l);
    free(t.all);
    if (rc == 0 && !l->count)
        rc = fbr_fail(err, -ESRCH, "%s has no process %u", proc, pid);
    else if (rc == -ENOMEM)
        fbr_fail(err, rc, "out of memory");
    if (rc < 0)
        fbr_stack_list_fini(l);
    return rc;
}
