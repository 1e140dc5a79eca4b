/* help.c - `fiber help`: pages for a terminal and for man(1), generated from the tables of options.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli/option.h"
#include "fiber.h"

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

/* ---- For a terminal ---- */

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

/* Returns the end of the paragraph at `text`; *next becomes the beginning of the next paragraph. */
static const char *paragraph(const char *text, const char **next)
{
    const char *end = strstr(text, "\n\n");

    *next = end ? end + 2 : text + strlen(text);
    return end ? end : *next;
}

static void paragraphs(FILE *out, const char *text, int width)
{
    const char *next;

    for (; text && *text; text = next) {
        const char *end = paragraph(text, &next);

        fputc('\n', out);
        if (text[0] == ' ')
            fprintf(out, "%.*s\n", (int)(end - text), text);
        else
            fill(out, text, end, 0, 0, width);
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
        snprintf(left + n, sizeof(left) - (size_t)n, "[=%s]", o->words ? o->words : "N");
    n = snprintf(text, sizeof(text), "%s\t%s", left, o->help);
    if (o->words && o->argument && n < (int)sizeof(text))
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
    bool any = false;

    fprintf(out, "Usage: fiber %s%s%s%s\n", c->name, has_options(c) ? " [OPTION...]" : "",
            c->operands[0] ? " " : "", c->operands);
    fputc('\n', out);
    fprintf(out, "%s.\n", c->about);
    paragraphs(out, c->text, width);
    for (size_t i = 0; i < c->count; i++) {
        if (!is_shown(&c->options[i]))
            continue;
        if (!any)
            fputs("\nOptions:\n", out);
        any = true;
        help_option(out, &c->options[i], width);
    }
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

/* ---- For man(1) ---- */

static void roff(FILE *out, const char *text, size_t len)
{
    static const char *const escapes[128] = {['\\'] = "\\e",  ['-'] = "\\-",   ['\''] = "\\(aq",
                                             ['`'] = "\\(ga", ['^'] = "\\(ha", ['~'] = "\\(ti"};
    bool start = true;

    for (size_t i = 0; i < len; i++) {
        unsigned char ch = (unsigned char)text[i];

        if (start && (ch == '.' || ch == '\''))
            fputs("\\&", out);
        start = ch == '\n';
        if (ch < 128 && escapes[ch])
            fputs(escapes[ch], out);
        else
            fputc(ch, out);
    }
}

static void roff_str(FILE *out, const char *text)
{
    roff(out, text, strlen(text));
}

static void man_paragraphs(FILE *out, const char *text)
{
    const char *next;
    bool first = true;

    for (; text && *text; text = next, first = false) {
        const char *end = paragraph(text, &next);

        if (text[0] == ' ') {
            fputs(".PP\n.nf\n", out);
            roff(out, text, (size_t)(end - text));
            fputs("\n.fi\n", out);
        } else {
            fputs(first ? "" : ".PP\n", out);
            roff(out, text, (size_t)(end - text));
            fputc('\n', out);
        }
    }
}

static void man_columns(FILE *out, const char *text)
{
    while (text && *text) {
        const char *end = text + strcspn(text, "\n"), *tab = text + strcspn(text, "\t\n");

        fputs(".TP\n.B ", out);
        roff(out, text, (size_t)(tab - text));
        fputc('\n', out);
        if (tab < end)
            roff(out, tab + 1, (size_t)(end - tab - 1));
        else
            fputs("\\&", out);
        fputc('\n', out);
        text = end + (*end == '\n');
    }
}

static void man_option(FILE *out, const struct cli_option *o)
{
    fputs(".TP\n", out);
    if (o->letter)
        fprintf(out, "\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB\\-\\-", out);
    roff_str(out, o->name);
    fputs("\\fR", out);
    if (o->argument) {
        fputs(" \\fI", out);
        roff_str(out, o->argument);
        fputs("\\fR", out);
    } else if (o->words || o->max) {
        fputs("[=\\fI", out);
        roff_str(out, o->words ? o->words : "N");
        fputs("\\fR]", out);
    }
    fputc('\n', out);
    roff_str(out, o->help);
    if (o->words && o->argument) {
        char words[512];

        put_words(words, sizeof(words), o->words);
        roff_str(out, words);
    }
    fputc('\n', out);
    if (o->config) {
        fputs("Configuration: ", out);
        roff_str(out, o->config);
        fputs(".\n", out);
    }
}

/* Finds other tools' spellings of an option: returns their meaning here, with their names in
 * `names`. NULL: there are none. */
static const char *others_meaning(const struct cli_option *o, char *names, char *text, size_t size)
{
    if (o->hidden || (is_shown(o) && !o->also))
        return NULL;
    snprintf(names, size, "%s%s%s", is_shown(o) ? "" : o->name, is_shown(o) || !o->also ? "" : " ",
             o->also ? o->also : "");
    if (is_shown(o))
        snprintf(text, size, "the same as --%s", o->name);
    else
        snprintf(text, size, "%s: %s",
                 o->type == CLI_NOTHING   ? "accepted"
                 : o->type == CLI_REFUSED ? "refused"
                                          : "taken",
                 o->help);
    return text;
}

static const char about_others[] = "Options as in mpirun, mpiexec, srun and torchrun; with one "
                                   "dash or two.";

static void put_others(FILE *out, const struct cli_command *c, int width)
{
    char names[1024], text[1024];

    fprintf(out, "Options of other launchers that fiber %s understands.\n%s\n\n", c->name,
            about_others);
    for (size_t i = 0; i < c->count; i++) {
        const char *meaning = others_meaning(&c->options[i], names, text, sizeof(text));

        if (!meaning)
            continue;
        fputs("  ", out);
        fill(out, names, names + strlen(names), 2, 2, width);
        fputs("      ", out);
        fill(out, meaning, meaning + strlen(meaning), 6, 6, width);
    }
}

/* Prints the spellings of mpirun and other launchers, and the refused options: the command's own
 * help has no room for them. */
static void man_others(FILE *out, const struct cli_command *c)
{
    char names[1024], text[1024];
    bool any = false;

    for (size_t i = 0; i < c->count; i++) {
        const char *meaning = others_meaning(&c->options[i], names, text, sizeof(text));

        if (!meaning)
            continue;
        if (!any)
            fprintf(out, ".SH OTHER SPELLINGS\n%s\n", about_others);
        any = true;
        fputs(".TP\n.B ", out);
        roff_str(out, names);
        fputc('\n', out);
        roff_str(out, meaning);
        fputc('\n', out);
    }
}

static void man_head(FILE *out, const char *name)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    time_t now = epoch ? (time_t)strtoll(epoch, NULL, 10) : time(NULL);
    struct tm tm;
    char date[16];

    gmtime_r(&now, &tm);
    strftime(date, sizeof(date), "%Y-%m-%d", &tm);
    fprintf(out,
            ".\\\" Written by `fiber help --man` out of its tables of options.\n.TH %s 1 %s "
            "\"fiber %s\"\n",
            name, date, fiber_version());
}

static void man_see_also(FILE *out, const struct cli_command *c)
{
    fputs(".SH SEE ALSO\n", out);
    if (c)
        fputs(".BR fiber (1),\n", out);
    for (size_t i = 0; cli_commands[i]; i++)
        if (cli_commands[i] != c)
            fprintf(out, ".BR fiber\\-%s (1),\n", cli_commands[i]->name);
    fputs(".BR fiber (7)\n", out);
}

static void man_overview(FILE *out)
{
    man_head(out, "FIBER");
    fputs(".SH NAME\nfiber \\- run programs on a cluster\n.SH SYNOPSIS\n\\fBfiber\\fR "
          "\\fISUBCOMMAND\\fR "
          "[\\fIOPTION\\fR...]\n.SH DESCRIPTION\n",
          out);
    roff_str(out, about_fiber);
    fputs("\n.SH SUBCOMMANDS\n", out);
    for (size_t i = 0; cli_commands[i]; i++) {
        fprintf(out, ".TP\n.BR fiber\\-%s (1)\n", cli_commands[i]->name);
        roff_str(out, cli_commands[i]->about);
        fputc('\n', out);
    }
    man_see_also(out, NULL);
}

static void put_man(FILE *out, const struct cli_command *c)
{
    char name[64];

    if (!c) {
        man_overview(out);
        return;
    }
    snprintf(name, sizeof(name), "FIBER-%s", c->name);
    for (char *p = name; *p; p++)
        *p = *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
    man_head(out, name);
    fprintf(out, ".SH NAME\nfiber\\-%s \\- ", c->name);
    roff_str(out, c->about);
    fprintf(out, "\n.SH SYNOPSIS\n\\fBfiber %s\\fR%s \\fI", c->name,
            has_options(c) ? " [\\fIOPTION\\fR...]" : "");
    roff_str(out, c->operands);
    fputs("\\fR\n.SH DESCRIPTION\n", out);
    if (c->text) {
        man_paragraphs(out, c->text);
    } else {
        roff_str(out, c->about);
        fputs(".\n", out);
    }
    if (has_options(c))
        fputs(".SH OPTIONS\n", out);
    for (size_t i = 0; i < c->count; i++)
        if (is_shown(&c->options[i]))
            man_option(out, &c->options[i]);
    man_others(out, c);
    if (c->exit) {
        fputs(".SH EXIT STATUS\n", out);
        man_columns(out, c->exit);
    }
    if (c->examples) {
        fputs(".SH EXAMPLES\n", out);
        man_columns(out, c->examples);
    }
    man_see_also(out, c);
}

/* ---- The subcommand ---- */

enum { HELP_MAN, HELP_OPTIONS };

const char cli_launchers[] =
    "mpirun mpiexec mpiexec.hydra orterun prterun torchrun srun horovodrun";

static int run_help(const struct cli_args *args)
{
    const char *name = args->noperands ? args->operands[0] : NULL;
    const struct cli_command *c = name ? cli_command_find(name) : NULL;

    if (name && !c && cli_word_index(cli_launchers, name) >= 0) {
        put_others(stdout, cli_command_find("run"), cli_width(STDOUT_FILENO));
        return 0;
    }
    if (name && !c) {
        const char *near = cli_command_nearest(name);

        return cli_failed(2, "there is no subcommand %s; %s%s%s", name,
                          near ? "did you mean " : "`fiber help`", near ? near : " lists all",
                          near ? "?" : "");
    }
    if (args->values[HELP_MAN].text)
        put_man(stdout, c);
    else if (c)
        cli_help_command(stdout, c, cli_width(STDOUT_FILENO));
    else
        cli_help_short(stdout, cli_width(STDOUT_FILENO));
    return 0;
}

static const struct cli_option options[HELP_OPTIONS] = {
    [HELP_MAN] = {"man", 0, CLI_FLAG, .help = "as a page for man(1)"},
};

const struct cli_command cli_help = {
    .name = "help",
    .operands = "[SUBCOMMAND]",
    .kind = CLI_COMMAND,
    .about = "Shows the subcommands, or the options of one",
    .options = options,
    .count = HELP_OPTIONS,
    .most = 1,
    .run = run_help,
};
