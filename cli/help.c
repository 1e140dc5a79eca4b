/* help.c - `fiber help`: pages generated from the tables of options. docs/man.py makes the pages of
 * man(1) of them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/option.h"
#include "runtime/base/config_value.h"

#define MIN_WIDTH 50
#define MAX_WIDTH 100
#define COLUMN 27 /* where the text about an option begins */

static const char about_fiber[] =
    "Runs programs on a cluster: rings of MPI, torch.distributed or plain processes.";

int cli_width(int fd)
{
    struct winsize w;
    const char *columns = getenv("COLUMNS");
    int width = 80;

    if (ioctl(fd, TIOCGWINSZ, &w) == 0) {
        if (w.ws_col > 0)
            width = w.ws_col;
        else if (columns && atoi(columns) > 0)
            width = atoi(columns);
    }
    return width < MIN_WIDTH ? MIN_WIDTH : width > MAX_WIDTH ? MAX_WIDTH : width;
}

/* ---- Pages ---- */

/* Prints the words of text up to `end`, starting in column `at`, wrapped at the width; later lines
 * begin at `indent`. */
static void fill(FILE *out, const char *text, const char *end, int at, int indent, int width)
{
    bool first = true;

    while (text < end) {
        int n = (int)strcspn(text, " \n");

        if (text + n > end)
            n = (int)(end - text);
        if (!first && at + 1 + n > width) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
            first = true;
        }
        fprintf(out, "%s%.*s", first ? "" : " ", n, text);
        at += n + !first;
        first = false;
        text += n;
        text += strspn(text, " \n");
    }
    fputc('\n', out);
}

static void paragraphs(FILE *out, const char *text, int width)
{
    while (text && *text) {
        const char *stop = strstr(text, "\n\n"), *end = stop ? stop : text + strlen(text);

        fputc('\n', out);
        if (text[0] == ' ')
            fprintf(out, "%.*s\n", (int)(end - text), text);
        else
            fill(out, text, end, 0, 0, width);
        text = stop ? stop + 2 : end;
    }
}

/* Prints lines "left\tright" in two columns. */
static void columns(FILE *out, const char *text, int column, int width)
{
    while (text && *text) {
        const char *end = text + strcspn(text, "\n"), *tab = text + strcspn(text, "\t\n");
        int at = fprintf(out, "  %.*s", (int)(tab - text), text);

        if (tab == end) {
            fputc('\n', out);
        } else {
            if (at + 2 > column) {
                fprintf(out, "\n%*s", column, "");
            } else {
                fprintf(out, "%*s", column - at, "");
            }
            fill(out, tab + 1, end, column, column, width);
        }
        text = end + (*end == '\n');
    }
}

/* Appends " (one, two)". */
static void put_words(char *out, size_t size, const char *words)
{
    size_t at = (size_t)snprintf(out, size, " (");

    for (; *words && at + 4 < size; words++)
        at += (size_t)snprintf(out + at, size - at, *words == ' ' ? ",%c" : "%c", *words);
    snprintf(out + at, size - at, ")");
}

static void help_option(FILE *out, const struct cli_option *o, int width)
{
    char left[160], text[1024];
    int n = o->letter ? snprintf(left, sizeof(left), "-%c, --%s", o->letter, o->name)
                      : snprintf(left, sizeof(left), "    --%s", o->name);

    if (o->argument)
        snprintf(left + n, sizeof(left) - (size_t)n, " %s", o->argument);
    else if (o->words || o->max)
        snprintf(left + n, sizeof(left) - (size_t)n, "[=%s]", o->words ? "WORD" : "N");
    n = snprintf(text, sizeof(text), "%s\t%s", left, o->help);
    if (o->words && n < (int)sizeof(text))
        put_words(text + n, sizeof(text) - (size_t)n, o->words);
    columns(out, text, COLUMN, width);
}

static bool is_shown(const struct cli_option *o)
{
    return !o->hidden && !o->foreign && o->type != CLI_REFUSED && o->type != CLI_NOTHING;
}

static bool has_options(const struct cli_command *c)
{
    for (size_t i = 0; i < c->count; i++)
        if (is_shown(&c->options[i]))
            return true;
    return false;
}

void cli_help_command(FILE *out, const struct cli_command *c, int width)
{
    bool any = has_options(c);

    fprintf(out, "Usage: fiber %s%s%s%s\n", c->name, any ? " [OPTION...]" : "",
            c->operands[0] ? " " : "", c->operands);
    fputc('\n', out);
    fprintf(out, "%s.\n", c->about);
    paragraphs(out, c->text, width);
    fputs(any ? "\nOptions:\n" : "", out);
    for (size_t i = 0; i < c->count; i++)
        if (is_shown(&c->options[i]))
            help_option(out, &c->options[i], width);
    if (c->examples) {
        fputs("\nExamples:\n", out);
        columns(out, c->examples, 36, width);
    }
    if (c->exit) {
        fputs("\nExit code:\n", out);
        columns(out, c->exit, 12, width);
    }
}

void cli_help_short(FILE *out, int width)
{
    fprintf(out, "Usage: fiber SUBCOMMAND [OPTION...]\n\n%s\n\n", about_fiber);
    for (size_t i = 0; cli_commands[i]; i++) {
        char line[256];

        snprintf(line, sizeof(line), "%s\t%s", cli_commands[i]->name, cli_commands[i]->about);
        columns(out, line, 16, width);
    }
    fputs("\nTo begin with: fiber run -n 4 ./program\n"
          "More: fiber help SUBCOMMAND, man fiber-run, fiber doctor\n",
          out);
}

/* ---- Options of other launchers ---- */

/* Prints other tools' spellings of an option, and their meaning here. */
static void put_other(FILE *out, const struct cli_option *o, int width)
{
    bool shown = is_shown(o);
    char names[1024], text[1024];

    snprintf(names, sizeof(names), "%s%s%s", shown ? "" : o->name, shown || !o->also ? "" : " ",
             o->also ? o->also : "");
    if (shown)
        snprintf(text, sizeof(text), "the same as --%s", o->name);
    else
        snprintf(text, sizeof(text), "%s: %s",
                 o->type == CLI_NOTHING   ? "accepted"
                 : o->type == CLI_REFUSED ? "refused"
                                          : "taken",
                 o->help);
    fputs("  ", out);
    fill(out, names, names + strlen(names), 2, 2, width);
    fputs("      ", out);
    fill(out, text, text + strlen(text), 6, 6, width);
}

static void put_others(FILE *out, const struct cli_command *c, int width)
{
    fprintf(out,
            "Options of other launchers that fiber %s understands.\n"
            "Options as in mpirun, mpiexec, srun and torchrun; with one dash or two.\n\n",
            c->name);
    for (size_t i = 0; i < c->count; i++)
        if (!c->options[i].hidden && (c->options[i].also || !is_shown(&c->options[i])))
            put_other(out, &c->options[i], width);
}

/* ---- The subcommand ---- */

const char cli_launchers[] =
    "mpirun mpiexec mpiexec.hydra orterun prterun torchrun srun horovodrun deepspeed";

static int run_help(const struct cli_args *args)
{
    const char *name = args->noperands ? args->operands[0] : NULL;
    const struct cli_command *c = name ? cli_command_find(name) : NULL;

    if (name && !c && fbr_word_index(cli_launchers, name) >= 0) {
        put_others(stdout, cli_command_find("run"), cli_width(STDOUT_FILENO));
        return 0;
    }
    if (name && !c) {
        const char *near = cli_command_nearest(name);

        return cli_failed(2, "there is no subcommand %s; %s%s%s", name,
                          near ? "did you mean " : "`fiber help`", near ? near : " lists all",
                          near ? "?" : "");
    }
    if (c)
        cli_help_command(stdout, c, cli_width(STDOUT_FILENO));
    else
        cli_help_short(stdout, cli_width(STDOUT_FILENO));
    return 0;
}

const struct cli_command cli_help = {
    .name = "help",
    .operands = "[SUBCOMMAND]",
    .kind = CLI_COMMAND,
    .about = "Shows the subcommands, or the options of one",
    .most = 1,
    .run = run_help,
};
