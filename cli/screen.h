/* screen.h - the terminal as a screen to draw on and keys to read, put back however the command
 * ends; JSON as a line.
 *
 * One screen at a time in a process: its state is what signal handlers need.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SCREEN_H
#define CLI_SCREEN_H

#include <stdio.h>
#include <stdbool.h>
#include "ring/json_out.h"

enum cli_key {
    CLI_KEY_NONE, /* the time is over, or a signal came */
    CLI_KEY_UP = 256,
    CLI_KEY_DOWN,
    CLI_KEY_PAGE_UP,
    CLI_KEY_PAGE_DOWN,
    CLI_KEY_HOME,
    CLI_KEY_END,
    CLI_KEY_OTHER, /* one that nobody asked for; every other value is a character */
};

/* Takes the alternate screen and unbuffered keys. The signals that end the command, or stop it,
 * give the terminal back first. */
void screen_take(void);
/* Gives it back; at exit it comes by itself. */
void screen_restore(void);
/* A signal that asks the command to end has come. */
bool screen_asked_to_end(void);
/* Such a signal may have cut a picture short: the rest of it belongs nowhere. */
void screen_drop_picture(void);
/* The next key, waited for at most so long: enum cli_key or a character. */
int screen_key(int timeout_ms);
void screen_size(int *width, int *height);

/* ---- Output ---- */

/* There is a terminal, and TERM does not say that it is dumb: it knows escape sequences. */
bool cli_is_screen(int fd);

/* The finished text as one line; j is freed. 0, or 1 after it was said on standard error that there
 * is not a memory for it. */
int cli_print_json(FILE *out, struct fbr_json *j);

#endif
