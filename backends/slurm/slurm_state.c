/* slurm_state.c - converts the output of Slurm's commands to states and messages.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/slurm/slurm_state.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/environ.h"
#include "runtime/proc/backend.h"

#define CANNOT_START 125
#define OUT_OF_MEMORY 125 /* the signal in a status */
/* the signal in a status; for instance, its output could not be opened */
#define LAUNCH_FAILED 53
#define SHELL_SIGNALS 128 /* srun exits with this number plus the signal */
#define MAX_DIGITS 18     /* of a number in a list */

/* ---- Words of a line ---- */

bool fbr_slurm_cut(char *line, char **field, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        field[i] = line;
        line = i + 1 < n ? strchr(line, '|') : NULL;
        if (line)
            *line++ = '\0';
        else if (i + 1 < n)
            return false;
    }
    return true;
}

/* Accepts "12", "12_3", "12+1" (a part of a heterogeneous job). */
static bool is_id(const char *text)
{
    size_t n = strlen(text);

    return n > 0 && n < FBR_SLURM_ID && text[0] >= '0' && text[0] <= '9' &&
           strspn(text, "0123456789_+") == n;
}

bool fbr_slurm_squeue_line(char *line, struct fbr_slurm_job *job)
{
    char *field[6]; /* the last one is empty */

    memset(job, 0, sizeof(*job));
    if (!fbr_slurm_cut(line, field, 6) || !is_id(field[0]) || !field[1][0])
        return false;
    snprintf(job->id, sizeof(job->id), "%s", field[0]);
    snprintf(job->state, sizeof(job->state), "%s", field[1]);
    snprintf(job->node, sizeof(job->node), "%s", field[3]);
    snprintf(job->reason, sizeof(job->reason), "%s", field[4]);
    job->status = (uint32_t)strtoul(field[2], NULL, 10);
    return true;
}

char *fbr_slurm_list(char *text)
{
    if (strncmp(text, "CLUSTER: ", 9) != 0)
        return text;
    text += strcspn(text, "\n");
    return text + (*text == '\n');
}

/* Parses "CODE:SIGNAL". */
static uint32_t status_of(const char *text)
{
    char *end;
    unsigned long code = strtoul(text, &end, 10),
                  sig = *end == ':' ? strtoul(end + 1, NULL, 10) : 0;

    return (uint32_t)((code & 255) << 8 | (sig & 127));
}

bool fbr_slurm_sacct_line(char *line, struct fbr_slurm_job *job)
{
    char *field[4], *state;

    memset(job, 0, sizeof(*job));
    if (!fbr_slurm_cut(line, field, 4) || !is_id(field[0]) || !field[1][0])
        return false;
    state = field[1];
    snprintf(job->id, sizeof(job->id), "%s", field[0]);
    snprintf(job->state, sizeof(job->state), "%.*s", (int)strcspn(state, " "), state);
    snprintf(job->reason, sizeof(job->reason), "%s", state[strcspn(state, " ")] ? state : "None");
    snprintf(job->node, sizeof(job->node), "%s", field[3]);
    job->status = status_of(field[2]);
    return true;
}

/* Returns how many digits the id in the line has; 0: the line is not "12" or "12;cluster". */
static size_t id_digits(const char *line, size_t len)
{
    size_t n = strspn(line, "0123456789");
    bool whole = n == len || (line[n] == ';' && strcspn(line + n, " \t\n") == len - n);

    return whole && n < FBR_SLURM_ID ? n : 0;
}

bool fbr_slurm_id(const char *text, char id[FBR_SLURM_ID])
{
    id[0] = '\0';
    while (*text) {
        size_t len = strcspn(text, "\n"), n = id_digits(text, len);

        if (n > 0)
            snprintf(id, FBR_SLURM_ID, "%.*s", (int)n, text);
        text += len + (text[len] == '\n');
    }
    return id[0] != '\0';
}

/* ---- States ---- */

static const struct state {
    const char *name;
    enum fbr_slurm_phase phase;
    const char *text; /* how the job ended */
} states[] = {
    {"PENDING", FBR_SLURM_WAITS, ""},
    {"CONFIGURING", FBR_SLURM_WAITS, ""},
    {"REQUEUED", FBR_SLURM_WAITS, ""},
    {"REQUEUE_FED", FBR_SLURM_WAITS, ""},
    {"REQUEUE_HOLD", FBR_SLURM_WAITS, ""},
    {"SPECIAL_EXIT", FBR_SLURM_WAITS, ""},
    {"RESV_DEL_HOLD", FBR_SLURM_WAITS, ""},
    {"RUNNING", FBR_SLURM_RUNS, ""},
    {"SUSPENDED", FBR_SLURM_RUNS, ""},
    {"STOPPED", FBR_SLURM_RUNS, ""},
    {"RESIZING", FBR_SLURM_RUNS, ""},
    {"SIGNALING", FBR_SLURM_RUNS, ""},
    {"STAGE_OUT", FBR_SLURM_RUNS, ""},
    {"COMPLETING", FBR_SLURM_LEAVES, ""},
    {"COMPLETED", FBR_SLURM_ENDED, ""},
    {"FAILED", FBR_SLURM_ENDED, ""},
    {"CANCELLED", FBR_SLURM_ENDED, "was cancelled in Slurm, by scancel or an administrator"},
    {"TIMEOUT", FBR_SLURM_ENDED,
     "reached its time limit in Slurm, and was killed; slurm_time asks for more"},
    {"DEADLINE", FBR_SLURM_ENDED, "reached its deadline in Slurm, and was killed"},
    {"OUT_OF_MEMORY", FBR_SLURM_ENDED, "was killed: it needed more memory than Slurm gave it"},
    {"PREEMPTED", FBR_SLURM_ENDED, "was preempted in Slurm by a job of higher priority"},
    {"NODE_FAIL", FBR_SLURM_ENDED, "lost its node"},
    {"BOOT_FAIL", FBR_SLURM_ENDED, "could not be started: its node did not boot"},
    {"LAUNCH_FAILED", FBR_SLURM_ENDED, "could not be started on its node"},
    {"RECONFIG_FAIL", FBR_SLURM_ENDED, "could not be started: its node was not made ready"},
    {"REVOKED", FBR_SLURM_ENDED, "went to another cluster of the federation"},
};

static const struct state *find_state(const char *name)
{
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
        if (strcmp(states[i].name, name) == 0)
            return &states[i];
    return NULL;
}

enum fbr_slurm_phase fbr_slurm_phase(const char *state)
{
    const struct state *s = find_state(state);

    return s ? s->phase : FBR_SLURM_ODD;
}

bool fbr_slurm_suspended(const char *state)
{
    return strcmp(state, "SUSPENDED") == 0 || strcmp(state, "STOPPED") == 0;
}

static int32_t code_of(uint32_t status)
{
    uint32_t sig = status & 127;

    return sig == OUT_OF_MEMORY ? -SIGKILL : sig ? -(int32_t)sig : (int32_t)(status >> 8 & 255);
}

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* Adds the limit, or the advice to request more. */
static void add_limit(uint64_t memory, struct fbr_slurm_end *end)
{
    size_t n = strlen(end->text);

    if (memory)
        snprintf(end->text + n, sizeof(end->text) - n, ": its limit is %.0f MiB (memory sets it)",
                 (double)memory / (1 << 20));
    else
        snprintf(end->text + n, sizeof(end->text) - n, "; ask for more (memory)");
}

static void describe_why(const struct fbr_slurm_job *job, const char *why, uint64_t memory,
                         struct fbr_slurm_end *end)
{
    if (job->node[0] && !is(job->node, "None assigned"))
        snprintf(end->text, sizeof(end->text), "on %s %s", job->node, why);
    else
        snprintf(end->text, sizeof(end->text), "%s", why);
    if (is(job->state, "OUT_OF_MEMORY"))
        add_limit(memory, end);
}

void fbr_slurm_end(const struct fbr_slurm_job *job, int asked, uint64_t memory,
                   struct fbr_slurm_end *end)
{
    const struct state *s = find_state(job->state);
    const char *why = s ? s->text : "";
    bool lost = is(job->state, "NODE_FAIL") || is(job->state, "REVOKED");

    end->code = code_of(job->status);
    end->disrupted = lost || is(job->state, "PREEMPTED") || is(job->state, "BOOT_FAIL");
    if (lost) {
        end->code = FBR_EXIT_UNKNOWN; /* 143:0, 0:15 and 0:0 have no meaning here */
    } else if (is(job->state, "BOOT_FAIL") || is(job->state, "LAUNCH_FAILED") ||
               is(job->state, "RECONFIG_FAIL")) {
        end->code = CANNOT_START;
    } else if (is(job->state, "FAILED") && (job->status & 127) == LAUNCH_FAILED) {
        end->code = CANNOT_START;
        why = "could not be started on its node: its output file could not be made; is slurm_dir a "
              "folder that the nodes share?";
    } else if (is(job->state, "CANCELLED") && asked) {
        end->code = -asked;
        why = "";
    } else if (is(job->state, "OUT_OF_MEMORY")) {
        end->code = -SIGKILL;
    } else if (*why && end->code == 0 && !is(job->state, "COMPLETED")) {
        end->code = -SIGTERM; /* it was ended, whatever the status is */
    }
    end->text[0] = '\0';
    if (*why)
        describe_why(job, why, memory, end);
}

/* ---- Why a job waits ---- */

static const struct reason {
    const char *name;
    bool ever; /* it does not end by itself */
    const char *text;
} reasons[] = {
    {"None", false, "Slurm has not looked at it yet"},
    {"CONFIGURING", false, "its nodes are being made ready"},
    {"Priority", false, "jobs of higher priority are before it"},
    {"Resources", false, "waits for free nodes"},
    {"Dependency", false, "waits for another job"},
    {"BeginTime", false, "waits for its begin time"},
    {"JobArrayTaskLimit", false, "as many jobs of its array run as its limit allows"},
    {"Licenses", false, "waits for a licence"},
    {"Cleaning", false, "is being requeued"},
    {"Prolog", false, "its node runs the prolog"},
    {"ReqNodeNotAvail", false, "the nodes that it needs are down, drained or reserved"},
    {"Nodes_required_for_job_are_DOWN", false,
     "the nodes that it needs are down, drained or reserved"},
    {"NodeDown", false, "its node is down"},
    {"PartitionDown", false, "the partition is down"},
    {"PartitionInactive", false, "the partition takes no jobs now"},
    {"Reservation", false, "waits for its reservation"},
    {"JobHeldUser", false, "is held; scontrol release lets it go"},
    {"JobHeldAdmin", false, "is held by an administrator"},
    {"PartitionConfig", true, "no nodes of the partition have the configuration that it asks for"},
    {"BadConstraints", true, "no nodes have the configuration that it asks for"},
    {"PartitionNodeLimit", true, "it asks for more nodes than the partition gives a job"},
    {"PartitionTimeLimit", true, "slurm_time is more than the partition allows"},
    {"AccountNotAllowed", true, "the account may not use the partition (slurm_account)"},
    {"QOSNotAllowed", true, "the partition does not have this QOS (slurm_qos)"},
    {"InvalidAccount", true, "there is no such account (slurm_account)"},
    {"InvalidQOS", true, "there is no such QOS (slurm_qos)"},
    {"ReservationDeleted", true, "its reservation is gone"},
    {"DependencyNeverSatisfied", true, "what it waits for can never happen"},
    {"JobLaunchFailure", true, "it could not be launched"},
};

bool fbr_slurm_waits(const struct fbr_slurm_job *job, char *text, size_t size)
{
    /* a job that has its nodes has no reason to wait */
    const char *word = is(job->state, "CONFIGURING") ? job->state : job->reason;
    size_t n = strcspn(word, ", (");

    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if (strlen(reasons[i].name) != n || strncmp(reasons[i].name, word, n) != 0)
            continue;
        snprintf(text, size, "Slurm job %s: %s (%s)", job->id, reasons[i].text, word);
        return reasons[i].ever;
    }
    snprintf(text, size, "Slurm job %s: %s", job->id, word[0] ? word : job->state);
    return strstr(word, "PerJob") != NULL; /* limits such as QOSMaxCpuPerJobLimit */
}

/* ---- What failed ---- */

static const struct {
    const char *part;
    enum fbr_slurm_refusal refusal;
} refusals[] = {
    {"Invalid job array specification", FBR_SLURM_SPLIT},
    {"Job array index", FBR_SLURM_SPLIT},
    {"SubmitJob", FBR_SLURM_FEWER}, /* AssocMaxSubmitJobLimit, QOSMaxSubmitJobPerUserLimit... */
    {"Socket timed out", FBR_SLURM_UNSURE},
    {"Zero Bytes were transmitted", FBR_SLURM_UNSURE},
    {"Transport endpoint is not connected", FBR_SLURM_UNSURE},
    {"Message receive failure", FBR_SLURM_UNSURE},
    {"Unable to contact slurm controller", FBR_SLURM_LATER},
    {"Unable to establish control machine", FBR_SLURM_LATER},
    {"Connection refused", FBR_SLURM_LATER},
    {"in standby mode", FBR_SLURM_LATER},
    {"temporarily unable to accept", FBR_SLURM_LATER},
    {"Resource temporarily unavailable", FBR_SLURM_LATER},
    {"Slurm backup controller", FBR_SLURM_LATER},
};

/* Explains the messages of Slurm's commands on a host that knows no cluster, with the remedy. */
static void explain_none(const char *text, char *line, size_t size)
{
    static const char *const none[] = {"Could not establish a configuration source",
                                       "Unable to process configuration file"};

    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        if (strstr(text, none[i]))
            snprintf(line, size,
                     "no cluster is known here (%.60s): run this where squeue works, set "
                     "SLURM_CONF to the cluster's slurm.conf, or use another backend",
                     none[i]);
}

enum fbr_slurm_refusal fbr_slurm_refusal(const char *text, char *line, size_t size)
{
    const char *at = "", *next = text;
    bool error = false;

    while (*next) { /* the last line with an error, or else the last line that is not empty */
        size_t n = strcspn(next, "\n");
        bool has = memmem(next, n, "rror:", 5);

        if (n && (has || !error) && strncmp(next, "Try ", 4) != 0)
            at = next;
        error |= has;
        next += n + (next[n] == '\n');
    }
    snprintf(line, size, "%.*s", (int)strcspn(at, "\n"), at);
    explain_none(text, line, size);
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
        if (strstr(text, refusals[i].part))
            return refusals[i].refusal;
    return FBR_SLURM_NEVER;
}

/* ---- srun ---- */

static const char *const speakers[] = {"srun: ", "slurmstepd"};

bool fbr_slurm_srun_maybe(const char *text, size_t len)
{
    for (size_t i = 0; i < sizeof(speakers) / sizeof(speakers[0]); i++) {
        size_t n = strlen(speakers[i]);

        if (strncmp(text, speakers[i], len < n ? len : n) == 0)
            return true;
    }
    return false;
}

/* Parses the text after "task 0: ": how the task ended. */
static bool task_ended(struct fbr_slurm_step *s, const char *how)
{
    if (strncmp(how, "Exited with exit code ", 22) == 0) {
        s->code = atoi(how + 22) & 255;
        return true;
    }
    if (strncmp(how, "Out Of Memory", 13) == 0) {
        s->oom = true;
        return true;
    }
    for (int sig = 1; sig < NSIG; sig++) {
        const char *name = sigdescr_np(sig); /* the words that srun uses */
        size_t n = name ? strlen(name) : 0;

        if (n && strncmp(how, name, n) == 0 &&
            (!how[n] || strcmp(how + n, " (core dumped)") == 0)) {
            s->code = -sig;
            return true;
        }
    }
    return false;
}

/* Parses "*** STEP 1.0 ON n1 CANCELLED AT 2026-11-21T16:11:35 DUE TO TIME LIMIT ***". */
static bool cancelled(struct fbr_slurm_step *s, const char *text)
{
    const char *due = strstr(text, " DUE TO ");
    const char *end = due ? strstr(due, " ***") : NULL;

    if ((strncmp(text, "*** STEP ", 9) != 0 && strncmp(text, "*** JOB ", 8) != 0) ||
        !strstr(text, " CANCELLED AT "))
        return false;
    s->cancelled = true;
    if (due && end)
        snprintf(s->why, sizeof(s->why), "%.*s", (int)(end - due - 8), due + 8);
    return true;
}

static bool error_line(struct fbr_slurm_step *s, const char *text)
{
    static const char *const refusals_of_steps[] = {
        "Unable to create step for job ",
        "Task launch for ",
        "Application launch failed: ",
        "Step requested ",
        "Unable to confirm allocation for job ",
        "Invalid generic resource",
        "Slurm job ", /* has expired */
        NULL,
    };
    const char *task = strstr(text, ": task ");
    const char *how = task ? strchr(task + 7, ':') : NULL;

    if (how && how[1] == ' ' && task_ended(s, how + 2))
        return true;
    if (strncmp(text, "Node failure on ", 16) == 0) {
        s->lost = true;
        return true;
    }
    if (!fbr_strings_begin(text, refusals_of_steps))
        return cancelled(s, text);
    s->refused = true;
    s->unreached |= strncmp(text, "Task launch", 11) == 0;
    return true;
}

static bool info_line(struct fbr_slurm_step *s, const char *text)
{
    static const char *const known[] = {
        "Step created for ",
        "Force Terminated ",
        "Job step aborted",
        "Terminating ",
        "forcing job termination",
        "got SIGCONT",
        "sending Ctrl-C to ",
        "First task exited ",
        "interrupt (",
        "Check SLURM_JOB_ID environment",
        "error: ",
        NULL,
    };

    if (strncmp(text, "Job ", 4) == 0 && strstr(text, " step creation ")) {
        s->waits = true;
        return true;
    }
    if (!fbr_strings_begin(text, known))
        return strstr(text, " queued and waiting for resources") != NULL;
    s->waits = false;
    return true;
}

/* Parses "slurmstepd: error: ..." or "slurmstepd-n1: error: ...". */
static bool daemon_line(struct fbr_slurm_step *s, const char *text)
{
    if (strncmp(text, "error: Detected ", 16) == 0 && strstr(text, "oom")) {
        s->oom = true;
        return true;
    }
    return strncmp(text, "error: ", 7) == 0 && cancelled(s, text + 7);
}

bool fbr_slurm_srun_line(struct fbr_slurm_step *s, const char *line)
{
    const char *text = strstr(line, ": ");
    bool ours;

    if (!text)
        return false;
    text += 2;
    if (strncmp(line, "srun: error: ", 13) == 0)
        ours = error_line(s, text + 7);
    else if (strncmp(line, "srun: ", 6) == 0)
        ours = info_line(s, text);
    else
        ours = strncmp(line, "slurmstepd", 10) == 0 && daemon_line(s, text);
    /* advice that follows an error is less useful */
    if (ours && (strstr(line, "rror: ") || !s->refused))
        snprintf(s->text, sizeof(s->text), "%.200s", line);
    return ours;
}

/* Returns the exit code of the step's task, else srun's own. */
static int32_t step_code(const struct fbr_slurm_step *s, int32_t code)
{
    if (s->code)
        return s->code;
    return code > SHELL_SIGNALS && code <= SHELL_SIGNALS + 64 ? -(code - SHELL_SIGNALS) : code;
}

void fbr_slurm_step_end(const struct fbr_slurm_step *s, int32_t code, int asked, uint64_t memory,
                        struct fbr_slurm_end *end)
{
    end->code = step_code(s, code);
    end->text[0] = '\0';
    end->disrupted = s->lost || strstr(s->why, "PREEMPT") || strstr(s->why, "NODE FAIL");
    if (s->lost) { /* srun itself exits with 0 then */
        end->code = FBR_EXIT_UNKNOWN;
        snprintf(end->text, sizeof(end->text), "lost its node (%.200s)", s->text);
    } else if (s->oom && end->code != 0) {
        end->code = -SIGKILL;
        snprintf(end->text, sizeof(end->text),
                 "was killed: it needed more memory than Slurm gave its step");
        add_limit(memory, end);
    } else if (s->why[0]) {
        end->code = end->code ? end->code : -SIGKILL;
        snprintf(end->text, sizeof(end->text), "was ended by Slurm: %s", s->why);
    } else if (asked == SIGKILL || asked == SIGTERM || asked == SIGINT || asked == SIGHUP) {
        if (!s->code && code != 0) /* before its task existed */
            end->code = -asked;
    } else if (s->cancelled && end->code != 0) {
        snprintf(end->text, sizeof(end->text),
                 "was cancelled in Slurm by scancel, or with its job");
    } else if (s->refused && !s->code) {
        end->code = CANNOT_START;
        snprintf(end->text, sizeof(end->text), "could not be started as a step: %.200s", s->text);
    }
}

/* ---- Lists ---- */

struct hosts {
    struct fbr_args *w;
    size_t left;
};

static int add_host(struct hosts *h, const char *name, size_t len)
{
    if (len == 0 || name[0] == '-')
        return -EINVAL;
    if (h->left-- == 0) {
        h->left = 0;
        return -E2BIG;
    }
    return fbr_args_add(h->w, name, len);
}

/* Parses "001-016" or "7": its ends, and the width of its numbers. Returns its bytes, or 0. */
static size_t range(const char *text, unsigned long *from, unsigned long *to, int *width)
{
    size_t n = strspn(text, "0123456789"), m = 0;

    if (n == 0 || n > MAX_DIGITS)
        return 0;
    *width = text[0] == '0' ? (int)n : 0;
    *from = *to = strtoul(text, NULL, 10);
    if (text[n] != '-')
        return n;
    m = strspn(text + n + 1, "0123456789");
    *to = strtoul(text + n + 1, NULL, 10);
    return m == 0 || m > MAX_DIGITS || *to < *from ? 0 : n + 1 + m;
}

/* Adds all names of text[0..len), with `before` in front. */
static int expand(struct hosts *h, const char *before, const char *text, size_t len)
{
    const char *open = memchr(text, '[', len);
    size_t head = open ? (size_t)(open - text) : len;
    char name[256];
    int n = snprintf(name, sizeof(name), "%s%.*s", before, (int)head, text), rc;

    if (n < 0 || n >= (int)sizeof(name) - 24)
        return -EINVAL;
    if (!open)
        return memchr(text, ']', len) ? -EINVAL : add_host(h, name, (size_t)n);
    for (const char *at = open; *at != ']';) {
        const char *end = memchr(open, ']', len - head);
        unsigned long from, to;
        int width;
        size_t used = range(at + 1, &from, &to, &width);

        if (!end || !used || (at[1 + used] != ',' && at[1 + used] != ']'))
            return -EINVAL;
        at += 1 + used;
        for (; from <= to; from++) {
            char one[256];

            snprintf(one, sizeof(one), "%.*s%0*lu", n, name, width, from);
            rc = expand(h, one, end + 1, len - (size_t)(end + 1 - text));
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

int fbr_slurm_hosts(const char *list, size_t max, struct fbr_args *w)
{
    struct hosts h = {w, max};
    int rc;

    while (*list) {
        size_t n = 0;

        for (bool in = false; list[n] && (in || list[n] != ','); n++)
            in = list[n] == '[' || (in && list[n] != ']');
        rc = expand(&h, "", list, n);
        if (rc < 0)
            return rc;
        list += n + (list[n] == ',');
    }
    return 0;
}

void fbr_slurm_counts(const char *text, unsigned *counts, size_t n)
{
    unsigned long value = 0;
    size_t i = 0;

    while (i < n && *text >= '0' && *text <= '9') {
        char *end;
        unsigned long times = 1;

        value = strtoul(text, &end, 10);
        if (strncmp(end, "(x", 2) == 0) {
            times = strtoul(end + 2, &end, 10);
            end += *end == ')';
        }
        for (; times > 0 && i < n; times--)
            counts[i++] = (unsigned)(value < 1u << 20 ? value : 1u << 20);
        text = end + (*end == ',');
    }
    for (; i < n; i++)
        counts[i] = (unsigned)(value ? value < 1u << 20 ? value : 1u << 20 : 1);
}

/* ---- The room for jobs ---- */

#define NODES_MAX 65536

/* Parses a number, also after the name of a type: "2", "a100:2". 0: not a number. */
static unsigned count_of(const char *text)
{
    const char *colon = text ? strrchr(text, ':') : NULL;
    unsigned long n = text ? strtoul(colon ? colon + 1 : text, NULL, 10) : 0;

    return n < 1u << 20 ? (unsigned)n : 0;
}

/* Counts the ranks as mpirun does: the requested tasks of each node, else as many as its processors
 * allow, else one for each node. */
static void count_ranks(const struct fbr_slurm_allocation *a, struct fbr_capacity *room)
{
    unsigned each = count_of(a->cpus_per_task);

    fbr_slurm_counts(a->tasks ? a->tasks : a->cpus ? a->cpus : "1", room->slots, room->hosts);
    for (unsigned i = 0; i < room->hosts; i++) {
        if (!a->tasks && a->cpus && each)
            room->slots[i] /= each;
        room->slots[i] += !room->slots[i];
    }
}

int fbr_slurm_room_of(const struct fbr_slurm_allocation *a, struct fbr_capacity *room)
{
    struct fbr_args names = {0};
    int rc = a->nodes ? fbr_slurm_hosts(a->nodes, NODES_MAX, &names) : -ENOENT;

    if (rc < 0 || !names.n) {
        fbr_args_fini(&names);
        return rc == -ENOMEM ? rc : 0;
    }
    room->names = names.at;
    room->hosts = (unsigned)names.n;
    room->slots = calloc(names.n, sizeof(*room->slots));
    if (!room->slots)
        return -ENOMEM;
    count_ranks(a, room);
    room->ranks = count_of(a->ntasks);
    room->cpus_per_rank = count_of(a->cpus_per_task);
    room->gpus_per_rank = count_of(a->gpus_per_task);
    room->copies = count_of(a->copies);
    return 0;
}

bool fbr_slurm_node_is_out(const char *state)
{
    static const char *const out[] = {"down", "drain", "fail", "error", "unknown", "inval", NULL};
    size_t len = strlen(state);

    return fbr_strings_begin(state, out) || (len && state[len - 1] == '*');
}

/* Counts in "gpu:2(S:0-1),gpu:a100:4,mps:100", what Slurm prints of a node's resources. */
static unsigned gpus_of(const char *list)
{
    unsigned sum = 0;

    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
        size_t n = strcspn(at, ",(");

        while (n > 3 && at[n - 1] != ':')
            n--;
        if (strncmp(at, "gpu:", 4) == 0)
            sum += (unsigned)strtoul(at + n, NULL, 10) & 0xffff;
    }
    return sum;
}

void fbr_slurm_sizes(char *text, bool chosen, struct fbr_capacity *room)
{
    char *rest = NULL;

    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *at[5];
        unsigned n, c, g;

        if (!fbr_slurm_cut(line, at, 5) || fbr_slurm_node_is_out(at[3]) ||
            !(chosen || strchr(at[0], '*')))
            continue;
        c = count_of(at[1]);
        n = count_of(at[2]);
        g = gpus_of(at[4]);
        if (!n || !c)
            continue;
        room->hosts = n < UINT_MAX - room->hosts ? room->hosts + n : UINT_MAX;
        room->cpus = !room->cpus || c < room->cpus ? c : room->cpus;
        room->gpus = g && (!room->gpus || g < room->gpus) ? g : room->gpus;
    }
}
