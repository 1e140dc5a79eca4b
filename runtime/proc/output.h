/* output.h - writes whole lines of jobs to our own stdout and stderr, on a thread of its own.
 *
 * A job's bytes are collected until a line is whole, so lines of several jobs never mix. A terminal
 * or pipe that does not read holds back the jobs (back-pressure), never the loop.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/proc/lines.h"
#include "runtime/net/loop.h"

struct fbr_output;

/* on_room is called on the loop thread when the queue has room again, after fbr_lines_add() has
 * returned true. */
int fbr_output_open(struct fbr_output **o, struct fbr_loop *loop, void (*on_room)(void *user),
                    void *user);
/* Writes the queue, unless its reader takes nothing for a second. Later calls may still ask about
 * the output and wait for it, so it is never freed. */
void fbr_output_stop(struct fbr_output *o);

/* Queues whole lines for descriptor fd, which may be a file of the caller's. True: the queue is
 * full. Loop thread. */
bool fbr_output_add(struct fbr_output *o, int fd, const void *data, size_t len);
/* Closes a file of the caller's when all its lines are written. False: out of memory, and the file
 * is still the caller's. Loop thread. */
bool fbr_output_finish(struct fbr_output *o, int fd);
/* Waits until the queue is written, unless its reader takes nothing for a second. Not on the loop
 * thread. */
void fbr_output_drain(struct fbr_output *o);
/* Waits until the queue is written, at most `ms`. *moved: something was written since the last
 * wait. Not on the loop thread. */
bool fbr_output_wait(struct fbr_output *o, int ms, bool *moved);
/* From now on nobody waits for the queue: what is left of it may be lost. */
void fbr_output_give_up(struct fbr_output *o);
/* Returns the last errno by which output was lost: for fd 1 or 2, or with fd 0 for any other file.
 * 0: no output was lost. Any thread. */
int fbr_output_error(const struct fbr_output *o, int fd);
/* Returns how often that happened. Any thread. */
unsigned fbr_output_losses(const struct fbr_output *o, int fd);

/* Returns the screen of descriptor 1 or 2. If both are one file, they have one screen. Loop
 * thread. */
struct fbr_screen *fbr_output_screen(struct fbr_output *o, int fd);

/* One stream of one job. A warning reports that its output is lost, unless the reader has closed.
 * Loop thread. */
struct fbr_lines {
    struct fbr_output *output;
    int fd;       /* 1 or 2 */
    char tag[80]; /* in front of each line; "" for none */
    struct fbr_line_stream stream;
};

void fbr_lines_init(struct fbr_lines *l, struct fbr_output *o, int fd, const char *tag);
void fbr_lines_fini(struct fbr_lines *l);
/* Takes bytes of the job; true: the queue is full, stop reading until on_room. */
bool fbr_lines_add(struct fbr_lines *l, const void *data, size_t len);
/* Ends the stream: an unfinished line gets its newline. */
void fbr_lines_end(struct fbr_lines *l);
