/* screen.h - the terminal as a screen to draw on and keys to read, restored however the command
 * ends; JSON as a line.
 *
 * One screen at a time in a process, because signal handlers need its state.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

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
    CLI_KEY_OTHER, /* an unknown key; every other value is a character */
};

/* Switches to the alternate screen and unbuffered keys. Signals that end or stop the command
 * restore the terminal first. */
void screen_take(void);
/* Restores the terminal; also runs at exit. */
void screen_restore(void);
/* Whether a signal has asked the command to end. */
bool screen_asked_to_end(void);
/* Drops the rest of a picture that such a signal may have cut short. */
void screen_drop_picture(void);
/* Returns the next key, after at most timeout_ms: enum cli_key or a character. */
int screen_key(int timeout_ms);
void screen_size(int *width, int *height);

/* ---- Output ---- */

/* Whether fd is a terminal that knows escape sequences: TERM does not name a dumb one. */
bool cli_is_screen(int fd);

/* Returns how many bytes fill so many columns: the bytes of that many characters of the text, and a
 * blank for each that it lacks. For "%-*.*s", whose numbers count bytes. */
int cli_column(const char *text, int columns);

/* Prints the finished text as one line; frees j. 0; or 1, after a message on standard error, if
 * there was no memory for it. */
int cli_print_json(FILE *out, struct fbr_json *j);
