/* settings.h - what the command backend was told: its templates, its hosts, what codes and states
 * mean.
 *
 * They stand in the file that command_file names, or there is only command_start.
 * backends/command/templates/ has files for several managers, with a word on each key.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_COMMAND_SETTINGS_H
#define FBR_COMMAND_SETTINGS_H

#include "backends/command/template.h"
#include "runtime/base/config.h"

/* The meanings of a manager's words for states. */
enum fbr_job_state { JOB_PENDING, JOB_RUNNING, JOB_DONE, JOB_FAILED, JOB_KILLED, JOB_LOST };

struct fbr_state_word {
    struct fbr_state_word *next;
    enum fbr_job_state state;
    char word[];
};

struct fbr_command_settings {
    char origin[256]; /* for messages */
    struct fbr_args start,
        list; /* list: prints a line with the id and label of each job; may be missing */
    struct fbr_hosts hosts;
    char *program;   /* of ours, on the hosts; NULL: the same as here */
    int unknown;     /* exit code of the command that says nothing about the job's; -1: none */
    unsigned starts; /* commands at once that have not read their ticket yet; 0: any number */
    int signals;     /* exit codes above it are signals; 0: none are */

    /* kind = detached: start only prints an id */
    bool detached;
    struct fbr_args status, cancel, logs;
    char *id; /* pattern: an extended regular expression with one group; NULL: the last word */
    char *ticket_dir; /* which the hosts share */
    unsigned poll_ms; /* between two looks at the states */
    struct fbr_state_word *states;
};

int fbr_command_settings_load(struct fbr_command_settings *s, const struct fbr_config *config,
                              struct fbr_error *err);
/* The state that this word stands for; -ENOENT. */
int fbr_command_state(const struct fbr_command_settings *s, const char *word);
void fbr_command_settings_fini(struct fbr_command_settings *s);

#endif
