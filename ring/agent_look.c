/* agent_look.c - finds ranks that run an MPI program and have not met a server.
 *
 * A program that is linked with MPI is known by its file. A wrapper (sh, env, python) is not: it
 * executes, starts or loads MPI later. So the agent looks at ranks that have not met a server:
 * often while they are young, because short programs end soon, and less often later. A look
 * compares the files that a rank and its descendants execute with the files of the last look. It
 * reads their loaded libraries only each time that their age has doubled.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ring/agent_priv.h"
#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/program/elf.h"

#define FIRST_MS 5       /* ms between the first looks; the shortest program of MPICH takes 20 ms */
#define PART_OF_AGE 16   /* later looks are this part of the ranks' age apart */
#define LAST_MS 60000    /* but at most this far apart */
#define PART_OF_TIME 50  /* looking takes at most this part of our time */
#define LIBRARIES_MS 100 /* the age at which loaded libraries are read first */
#define PATIENCE_MS 5000 /* from seeing MPI to reporting that the rank has not met a server */
#define FAMILY 32        /* processes of a rank to look at, at most */

struct loaded {
    bool mpi, torch;
};

static struct loaded read_libraries(pid_t pid)
{
    struct loaded is = {false, false};
    char path[64], line[512];
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        const char *name = strrchr(line, '/');

        is.mpi |= name && fbr_elf_is_mpi(name + 1);
        is.torch |= name && !strncmp(name + 1, "libtorch", 8);
    }
    if (f)
        fclose(f);
    return is;
}

/* True if the file of the process needs MPI. Most ranks run the same file, which is read once. */
static bool runs_mpi(struct agent_job *j, pid_t pid)
{
    struct stat st;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    if (stat(path, &st) < 0)
        return false;
    for (size_t i = 0; i < sizeof(j->seen) / sizeof(j->seen[0]); i++)
        if (j->seen[i].device == st.st_dev && j->seen[i].inode == st.st_ino)
            return j->seen[i].mpi;
    j->oldest_seen = (j->oldest_seen + 1) % (sizeof(j->seen) / sizeof(j->seen[0]));
    j->seen[j->oldest_seen] = (struct agent_seen){st.st_dev, st.st_ino, fbr_elf_needs_mpi(path)};
    return j->seen[j->oldest_seen].mpi;
}

/* True if the process is the launcher of an MPI library: its children have a server of its own. */
static bool is_launcher(pid_t pid)
{
    static const char *const names[] = {"mpirun", "mpiexec", "orterun", "prterun", "hydra_", NULL};
    char path[64], name[32];

    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    fbr_fds_read_file(path, name, sizeof(name));
    return fbr_strings_begin(name, names);
}

/* Adds the children of a process to n others. The kernel lists them by the thread that forked. */
static size_t add_children(pid_t pid, pid_t family[FAMILY], size_t n)
{
    char pattern[64];
    glob_t lists;
    int child;

    snprintf(pattern, sizeof(pattern), "/proc/%d/task/*/children", (int)pid);
    glob(pattern, GLOB_NOSORT, NULL, &lists);
    for (size_t i = 0; i < lists.gl_pathc; i++) {
        FILE *f = fopen(lists.gl_pathv[i], "re");

        while (f && n < FAMILY && fscanf(f, "%d", &child) == 1)
            family[n++] = child;
        if (f)
            fclose(f);
    }
    globfree(&lists);
    return n;
}

/* The rank's process and its descendants, parents first; not those of a launcher. */
static size_t find_family(pid_t pid, pid_t family[FAMILY])
{
    size_t n = 1;

    family[0] = pid;
    for (size_t i = 0; i < n && n < FAMILY; i++)
        if (!is_launcher(family[i]))
            n = add_children(family[i], family, n);
    return n;
}

static void look_at(struct agent_rank *r, bool libraries, uint64_t now)
{
    pid_t family[FAMILY];
    size_t n = find_family(r->pid, family);
    struct loaded is = {false, false};

    for (size_t i = 0; i < n && !is.mpi; i++) {
        if (libraries)
            is = read_libraries(family[i]);
        is.mpi |= runs_mpi(r->job, family[i]);
    }
    if (!is.mpi)
        return;
    r->mpi = true;
    /* Some builds of torch load an MPI library and do not use it. */
    r->mpi_since = is.torch ? 0 : now;
}

/* Reports that a rank has not met a server. The rank may just be slow, so this is a warning and
 * no failure. Sent for one rank of a job only. */
static void notify_missed(struct agent_rank *r)
{
    struct fbr_buf b;

    r->job->told_missed = true;
    fbr_agent_about(&b, r->job->job.info.id, r->rank);
    fbr_agent_send(r->job->agent, FBR_RING_MISSED, &b);
}

/* Looks at all ranks of the job. Returns the time at which the next look is due at the latest;
 * 0: no rank needs one. */
static uint64_t look_at_all(struct agent_job *j, uint64_t now)
{
    bool libraries = now - j->look_began >= j->libraries_ms;
    uint64_t due = 0;

    if (libraries)
        j->libraries_ms *= 2;
    for (uint32_t i = 0; i < j->nlocal; i++) {
        struct agent_rank *r = &j->ranks[i];
        uint64_t then = now + LAST_MS;

        if (!r->handle || r->met)
            continue;
        if (!r->mpi)
            look_at(r, libraries, now);
        if (r->mpi && (!r->mpi_since || j->told_missed))
            continue;
        if (r->mpi && now - r->mpi_since >= PATIENCE_MS && !j->served) {
            notify_missed(r);
            continue;
        }
        if (r->mpi)
            then = r->mpi_since + PATIENCE_MS;
        due = due && due < then ? due : then;
    }
    return due;
}

static void on_look(void *arg)
{
    struct agent_job *j = arg;
    uint64_t began = fbr_now_ns(), now = began / 1000000, spent, wait;
    uint64_t due = look_at_all(j, now);

    spent = (fbr_now_ns() - began) * PART_OF_TIME / 1000000;
    if (!due)
        return;
    wait = (now - j->look_began) / PART_OF_AGE;
    wait = wait > FIRST_MS ? wait : FIRST_MS;
    wait = wait > spent ? wait : spent;
    if (now + wait > due)
        wait = due > now + spent ? due - now : spent;
    fbr_timer_start(&j->look, wait, 0);
}

bool fbr_agent_need_server(const struct agent_job *j)
{
    return j->job.info.size > 1 || j->job.info.spawned;
}

void fbr_agent_look(struct agent_job *j)
{
    if (j->nlocal == 0 || !fbr_agent_need_server(j) ||
        fbr_timer_init(&j->look, j->agent->rt->loop, on_look, j) < 0)
        return;
    j->look_began = fbr_now_ms();
    j->libraries_ms = LIBRARIES_MS;
    fbr_timer_start(&j->look, FIRST_MS, 0);
}

/* Reports the first rank that has met its server and has MPI loaded: it is inside MPI_Init until
 * all ranks of its job are. */
void fbr_agent_on_waits(struct agent *a, struct fbr_cur *body)
{
    struct agent_job *j = fbr_agent_job_find(a, fbr_get_u32(body));

    for (uint32_t i = 0; j && fbr_cur_ok(body) && i < j->nlocal; i++) {
        struct agent_rank *r = &j->ranks[i];
        pid_t family[FAMILY];
        size_t n = r->handle && r->met && !r->left ? find_family(r->pid, family) : 0;

        for (size_t k = 0; k < n; k++) {
            struct fbr_buf b;

            if (!read_libraries(family[k]).mpi)
                continue;
            fbr_agent_about(&b, j->job.info.id, r->rank);
            fbr_agent_send(a, FBR_RING_WAITS, &b);
            return;
        }
    }
}
