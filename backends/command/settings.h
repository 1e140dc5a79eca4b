/* settings.h - the configuration of the command backend: its templates, its hosts, the meanings of
 * exit codes and states.
 *
 * The settings stand in the file that command_file names; with command_start alone there is no
 * file. backends/command/templates/ has files for several managers and explains each key.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "backends/command/template.h"
#include "runtime/base/config.h"

/* The meanings of a manager's words for states. */
enum fbr_job_state {
    JOB_PENDING,
    JOB_RUNNING,
    JOB_DONE,
    JOB_FAILED,
    JOB_KILLED,
    JOB_LOST,
    JOB_STATES
};

struct fbr_command_settings {
    char origin[256]; /* for messages */
    struct fbr_args start,
        /* list: prints a line with the id and label of each job; may be missing */
        list;
    struct fbr_hosts hosts;
    char *program; /* path of our program on the hosts; NULL: the same as here */
    /* exit code of the command that means "unknown how the job ended"; -1: none */
    int unknown;
    /* most commands at once that have not read their ticket yet; 0: any number */
    unsigned starts;
    int signals; /* exit codes above this one are signals; 0: no code is a signal */

    /* kind = detached: the start command only prints an id */
    bool detached;
    struct fbr_args status, cancel, logs;
    char *id; /* pattern: an extended regular expression with one group; NULL: the last word */
    char *ticket_dir;                   /* a directory that the hosts share; absolute */
    unsigned poll_ms;                   /* between two status commands */
    struct fbr_args states[JOB_STATES]; /* the words for each state */
};

int fbr_command_settings_load(struct fbr_command_settings *s, const struct fbr_config *config,
                              struct fbr_error *err);
/* Returns the state that this word stands for, or -ENOENT. */
int fbr_command_state(const struct fbr_command_settings *s, const char *word);
void fbr_command_settings_fini(struct fbr_command_settings *s);
