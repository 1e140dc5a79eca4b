/* query.c - queries Slurm and waits for the answer; the checks of `fiber doctor`.
 *
 * A command of Slurm that gets no answer tries again for a minute or more, and reports the reason
 * only then. So the doctor first checks whether the controller answers, and does not wait long; if
 * the controller does not answer, munge is checked first.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/slurm/query.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "backends/slurm/slurm_state.h"
#include "backends/tool/tool.h"
#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/base/log.h"
#include "runtime/net/tcp.h"

#define PATIENCE_MS 4000
#define MUNGE "/run/munge/munge.socket.2"

int fbr_slurm_run(struct fbr_tools *tools, const struct fbr_args *w, unsigned ms,
                  void (*done)(void *user, const struct fbr_tool_result *r), void *user)
{
    struct fbr_error err = {0, "out of memory"};
    char **env = fbr_slurm_env(fbr_environ(), FBR_SLURM_FOR_TOOLS, NULL);
    const struct fbr_tool tool = {
        .words = w, .env = env, .limit_ms = ms, .done = done, .user = user};
    int rc = env ? fbr_tool_run(tools, &tool, &err) : -ENOMEM;

    if (rc < 0)
        fbr_warn("slurm: %s", err.text);
    free(env);
    return rc;
}

int fbr_slurm_ask(const struct fbr_args *w, unsigned ms, struct fbr_buf *out, struct fbr_error *err)
{
    /* times since the epoch; all numbers of an array, without which nothing can cancel them */
    static const char *const more[] = {"SLURM_TIME_FORMAT=%s", "SLURM_BITSTR_LEN=0", NULL};
    bool submits = !strcmp(w->at[0], "sbatch");
    char **env = submits ? fbr_slurm_env(fbr_environ(), FBR_SLURM_FOR_SBATCH, NULL)
                         : fbr_slurm_env(fbr_environ(), FBR_SLURM_FOR_TOOLS, more);
    char line[256] = "";
    struct fbr_buf said = {0};
    int32_t code = 0;
    int rc;

    rc = env ? fbr_tool_wait(w, env, ms, out, &said, &code, err)
             : fbr_fail(err, -ENOMEM, "out of memory");
    if (rc == 0 && code != 0) {
        fbr_slurm_refusal((const char *)said.data, line, sizeof(line));
        rc = fbr_fail(err, -EIO, "%.50s ended with code %d%s%s", w->at[0], code,
                      line[0] ? ": " : "", line);
    }
    fbr_buf_fini(&said);
    free(env);
    return rc;
}

int fbr_slurm_ask_about(const char *command, const char *option, const char *value, unsigned ms,
                        struct fbr_buf *out, struct fbr_error *err)
{
    struct fbr_args w = {0};
    int rc = fbr_args_split(&w, command, err);

    if (rc < 0)
        goto done;
    if (value && fbr_args_addf(&w, "%s%s", option, value) < 0)
        rc = fbr_fail(err, -ENOMEM, "out of memory");
    else
        rc = fbr_slurm_ask(&w, ms, out, err);
done:
    fbr_args_fini(&w);
    return rc;
}

int fbr_slurm_ask_room(const struct fbr_slurm_settings *s, struct fbr_capacity *room,
                       struct fbr_error *err)
{
    const char *partition = fbr_slurm_partition(s, fbr_getenv("SBATCH_PARTITION"));
    struct fbr_buf out = {0};
    int rc;

    rc = fbr_slurm_ask_about("sinfo --noheader --exact --format=%P|%c|%D|%T|%G",
                             "--partition=", partition[0] ? partition : NULL, PATIENCE_MS, &out,
                             err);
    if (rc >= 0)
        fbr_slurm_sizes((char *)out.data, partition[0] != '\0', room);
    fbr_buf_fini(&out);
    return rc;
}

/* ---- fiber doctor ---- */

struct check {
    const struct fbr_slurm_settings *settings;
    const struct fbr_findings *to;
};

/* Reports why the backend cannot be used. */
#define bad(c, ...) fbr_report((c)->to, FBR_FINDING_BAD, "", __VA_ARGS__)

/* Keeps only the first line. */
static char *first_line(char *text)
{
    text[strcspn(text, "\n")] = '\0';
    return text;
}

static const char *conf(void)
{
    const char *path = fbr_getenv("SLURM_CONF");

    return path && path[0] ? path : NULL;
}

static bool check_tools(const struct check *c)
{
    struct fbr_error err = {0, ""};
    struct fbr_buf out = {0};
    bool good = false;

    /* the commands report nothing about a missing file for a minute */
    if (conf() && access(conf(), R_OK) < 0) {
        bad(c, "export SLURM_CONF=FILE, the slurm.conf of the cluster", "SLURM_CONF=%s: %s", conf(),
            fbr_strerror(errno));
    } else if (fbr_slurm_ask_about("sinfo --version", "", NULL, PATIENCE_MS, &out, &err) < 0) {
        bad(c, "install slurm-client, and give this host the cluster's slurm.conf", "%s", err.text);
    } else {
        fbr_report(c->to, FBR_FINDING_GOOD, "slurm commands", "", "%s",
                   first_line((char *)out.data));
        good = true;
    }
    fbr_buf_fini(&out);
    return good;
}

/* Finds munge's socket: the last value in slurm.conf, or the installed path. False: Slurm does not
 * use munge. */
static bool munge_socket(char *path, size_t size)
{
    FILE *f = fopen(conf() ? conf() : "/etc/slurm/slurm.conf", "re");
    char line[1024], *at;
    bool used = true;

    snprintf(path, size, "%s", MUNGE);
    while (f && fgets(line, sizeof(line), f)) {
        at = line + strspn(line, " \t");
        if (!strncasecmp(at, "AuthType=", 9) && strncasecmp(at + 9, "auth/munge", 10) != 0)
            used = false;
        at = strncasecmp(at, "AuthInfo=", 9) ? NULL : strstr(at, "socket=");
        if (at)
            snprintf(path, size, "%.*s", (int)strcspn(at + 7, ",; \t\r\n"), at + 7);
    }
    if (f)
        fclose(f);
    return used;
}

/* Returns 0, or the error of a connection to munge. */
static int call_munge(const char *path)
{
    int fd = fbr_unix_connect(path);

    fbr_fds_close(fd);
    /* busy, or unknown: not an error */
    return fd >= 0 || fd == -EAGAIN || fd == -ENAMETOOLONG || fd == -EMFILE ? 0 : fd;
}

static bool check_controller(const struct check *c)
{
    struct fbr_error err = {0, ""};
    struct fbr_buf out = {0};
    char path[256], none[] = "", *said;
    bool good;
    int rc, munge = 0;

    rc = fbr_slurm_ask_about("scontrol ping", "", NULL, PATIENCE_MS, &out, &err);
    said = out.data ? (char *)out.data : none;
    good = rc == 0 || strstr(said, " is UP"); /* one controller of several is enough */
    first_line(said);
    if (!good && munge_socket(path, sizeof(path)))
        munge = call_munge(path);
    if (good)
        fbr_report(c->to, FBR_FINDING_GOOD, "slurm controller", "", "%s", said);
    else if (munge < 0)
        bad(c, "systemctl start munge, with the cluster's munge.key",
            "munge does not answer at %s: %s", path, fbr_strerror(munge));
    else
        bad(c,
            "on the controller's host: systemctl start slurmctld; else export "
            "SLURM_CONF=FILE, the slurm.conf of a cluster that is up",
            "Slurm's controller does not answer: %s", said[0] ? said : err.text);
    fbr_buf_fini(&out);
    return good;
}

/* ---- Partitions and nodes ---- */

enum { N_PARTITION, N_NAME, N_AVAIL, N_COUNT, N_STATE, N_NODES, N_WHAT, N_REASON, N_FIELDS };
#define NODE_FORMAT "%R|%P|%a|%D|%T|%N|%c cpus, %m MB, %G|%E"

/* Checks one group of nodes. True: jobs can start there. */
static bool check_group(const struct check *c, char *field[N_FIELDS], char *why, char *mend,
                        size_t size)
{
    if (strcmp(field[N_AVAIL], "up") != 0) {
        snprintf(why, size, "no job starts in partition %.60s, whose state is %.20s",
                 field[N_PARTITION], field[N_AVAIL]);
        snprintf(mend, size,
                 "scontrol update PartitionName=%.60s State=UP, or set slurm_partition to another: "
                 "sinfo shows them",
                 field[N_PARTITION]);
        return false;
    }
    if (fbr_slurm_node_is_out(field[N_STATE])) {
        snprintf(why, size, "no node of partition %.60s takes jobs: %.60s %s %.30s: %.80s",
                 field[N_PARTITION], field[N_NODES], atoi(field[N_COUNT]) > 1 ? "are" : "is",
                 field[N_STATE], field[N_REASON]);
        snprintf(mend, size,
                 "is slurmd up there? Then scontrol update NodeName=%.100s State=RESUME",
                 field[N_NODES]);
        return false;
    }
    fbr_report(c->to, FBR_FINDING_GOOD, "slurm nodes", "", "%.10s nodes of %.60s, %.30s, %.200s",
               field[N_COUNT], field[N_PARTITION], field[N_STATE], field[N_WHAT]);
    return true;
}

/* `nodes`: the nodes of our allocation, which may be in several partitions; NULL: we have none. */
static bool check_nodes(const struct check *c, const char *nodes)
{
    const char *partition = fbr_slurm_partition(c->settings, fbr_getenv("SBATCH_PARTITION")),
               *named = nodes          ? nodes
                        : partition[0] ? partition
                                       : NULL;
    bool any = false, good = false;
    char why[400] = "", mend[320] = "", *rest = NULL, *field[N_FIELDS];
    struct fbr_error err = {0, ""};
    struct fbr_buf out = {0};
    int rc;

    rc = fbr_slurm_ask_about("sinfo --noheader \"--format=" NODE_FORMAT "\"",
                             nodes ? "--nodes=" : "--partition=", named, PATIENCE_MS, &out, &err);
    for (char *line = rc < 0 ? NULL : strtok_r((char *)out.data, "\n", &rest);
         line && !(good && nodes); line = strtok_r(NULL, "\n", &rest)) {
        if (!fbr_slurm_cut(line, field, N_FIELDS) || !(named || strchr(field[N_NAME], '*')))
            continue;
        any = true;
        good |= check_group(c, field, why, mend, sizeof(mend));
    }
    if (rc < 0)
        bad(c, "sinfo", "%s", err.text);
    else if (!any && partition[0])
        bad(c, "set slurm_partition to one that exists: sinfo shows them",
            "there is no partition %s, or it has no nodes", partition);
    else if (!any)
        bad(c, "set slurm_partition to one of those that sinfo shows",
            "no partition is the default one");
    else if (!good)
        bad(c, mend, "%s", why);
    fbr_buf_fini(&out);
    return good;
}

/* ---- Jobs ---- */

static bool check_allocation(const struct check *c)
{
    const char *id = fbr_getenv("SLURM_JOB_ID"), *nodes = fbr_getenv("SLURM_JOB_NODELIST");
    struct fbr_error err = {0, ""};
    struct fbr_buf out = {0};
    const char *said;
    bool good;
    int rc;

    rc = fbr_slurm_ask_about("squeue --noheader \"--format=%T, for another %L\"",
                             "--jobs=", id ? id : "", PATIENCE_MS, &out, &err);
    said = rc == 0 ? first_line(fbr_slurm_list((char *)out.data)) : "";
    good = !strncmp(said, "RUNNING", 7);
    if (!good) {
        bad(c, "use salloc to get another one, or unset SLURM_JOB_ID to queue jobs with sbatch",
            "allocation %.40s is over: %.200s", id ? id : "?",
            rc < 0    ? err.text
            : said[0] ? said
                      : "Slurm does not know it");
    } else {
        fbr_report(c->to, FBR_FINDING_GOOD, "slurm jobs", "",
                   "allocation %.40s on %.160s: jobs are steps, by srun; %.60s", id,
                   nodes ? nodes : "?", said);
    }
    fbr_buf_fini(&out);
    return good;
}

/* Asks sbatch whether it would accept a job of ours. */
static void check_submission(const struct check *c)
{
    struct fbr_error err = {0, ""};
    struct fbr_args w = {0};
    int rc;

    fbr_args_split(&w, "sbatch --test-only --nodes=1 --ntasks=1 --wrap=true", NULL);
    fbr_slurm_add_settings(&w, c->settings);
    rc = w.failed ? fbr_fail(&err, -ENOMEM, "out of memory")
                  : fbr_slurm_ask(&w, PATIENCE_MS, NULL, &err);
    fbr_args_fini(&w);
    if (rc < 0)
        bad(c,
            "correct slurm_partition, slurm_account, slurm_qos, slurm_constraint, slurm_time "
            "or slurm_options; fiber config show tells where they are set",
            "Slurm would refuse a job: %s", err.text);
    else
        fbr_report(c->to, FBR_FINDING_GOOD, "slurm jobs", "",
                   "no allocation: jobs are queued with sbatch, which would accept them");
}

void fbr_slurm_check(const struct fbr_slurm_settings *s, bool steps, const struct fbr_findings *to)
{
    const struct check c = {s, to};

    if (!check_tools(&c) || !check_controller(&c))
        return;
    if (steps && check_allocation(&c))
        check_nodes(&c, fbr_getenv("SLURM_JOB_NODELIST"));
    else if (!steps && check_nodes(&c, NULL))
        check_submission(&c);
}
