/* completion.c - `fiber completion`: scripts for bash, zsh and fish, which ask `fiber __complete`.
 *
 * `fiber __complete WORD...` gets the words of a command line up to the one that is being typed,
 * which may be empty. Each line of its answer is a candidate, a tab, and a description; or an order
 * for the shell: ":files", ":folders", and ":command N" for the command line that begins after the
 * first N words.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <string.h>

#include "cli/option.h"
#include "cli/run_client.h"
#include "runtime/base/config.h"

struct completion {
    FILE *out;
    const char *word; /* the word that is being typed */
    size_t at;        /* where the part to complete begins: after "--name=" */
    const struct cli_command *command;
    /* after the words before it: */
    const struct cli_option *option; /* of the last word, also if that is a value of it; or NULL */
    int owed;                        /* values of the option that follow */
    bool ended;                      /* no option follows */
    int operands, program;           /* how many there are; the first word of the program */
};

__attribute__((format(printf, 3, 4))) static void offer(const struct completion *c,
                                                        const char *about, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (!strncmp(text, c->word + c->at, strlen(c->word + c->at)))
        fprintf(c->out, "%.*s%s%s%s\n", (int)c->at, c->word, text, *about ? "\t" : "", about);
}

/* Offers each of some words that blanks separate, with `before` in front of it. */
static void offer_words(const struct completion *c, const char *before, const char *words)
{
    for (size_t n; *words; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        offer(c, "", "%s%.*s", before, (int)n, words);
    }
}

static void offer_options(const struct completion *c)
{
    char text[256];

    for (size_t i = 0; i < c->command->count; i++) {
        const struct cli_option *o = &c->command->options[i];

        if (o->hidden || o->type == CLI_REFUSED || o->type == CLI_NOTHING)
            continue;
        if (o->letter)
            offer(c, o->help, "-%c", o->letter);
        offer(c, o->help, "--%s", o->name);
        if (o->words && !o->argument) { /* --dry-run=server */
            snprintf(text, sizeof(text), "--%s=", o->name);
            offer_words(c, text, o->words);
        }
    }
    offer(c, "shows its help", "--help");
}

static void offer_value(const struct completion *c)
{
    const struct cli_option *o = c->option;

    if (o->words)
        offer_words(c, "", o->words);
    else if (o->type == CLI_DIR)
        fputs(":folders\n", c->out);
    else if (o->argument && (!strcmp(o->argument, "FILE") || !strcmp(o->argument, "PATH")))
        fputs(":files\n", c->out);
}

static void offer_commands(const struct completion *c)
{
    for (size_t i = 0; cli_commands[i]; i++)
        offer(c, cli_commands[i]->about, "%s", cli_commands[i]->name);
}

/* Shells put a candidate on the command line as it is, and may expand it: a name with other
 * characters is left out. */
static void offer_runs(const struct completion *c)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    struct fbr_error err = {0, ""};
    struct run_client *runs;
    size_t count;

    if (run_client_list(&runs, &count, false, NULL, &err) < 0)
        return;
    for (size_t i = 0; i < count; i++) {
        const char *name = runs[i].about.name;

        offer(c, "", "%.8s", runs[i].about.uid);
        if (name[0] && !name[strspn(name, plain)])
            offer(c, "", "%s", name);
    }
    run_client_list_free(runs, count);
}

static void offer_keys(const struct completion *c)
{
    size_t n;
    const struct fbr_config_key *keys = fbr_config_keys(&n);

    for (size_t i = 0; i < n; i++)
        offer(c, keys[i].help, "%s", keys[i].name);
}

static void offer_operand(const struct completion *c)
{
    bool first = c->operands == 0;

    if (first && c->command->words)
        offer_words(c, "", c->command->words);
    else if (c->command->kind == CLI_PROGRAM)
        fprintf(c->out, ":command %d\n", c->program);
    else if (c->command->kind == CLI_FILES)
        fputs(":files\n", c->out);
    else if (c->command->kind == CLI_RUN && first)
        offer_runs(c);
    else if (c->command->kind == CLI_COMMAND && first)
        offer_commands(c);
    else if (c->command->kind == CLI_KEY && c->operands == 1)
        offer_keys(c);
}

/* bash splits words at these characters. */
static bool is_split(const char *word)
{
    return !strcmp(word, "=") || !strcmp(word, ":");
}

static void read_word(struct completion *c, char **words, int i)
{
    if (c->option && is_split(words[i])) {
        c->owed += !c->owed;
    } else if (c->owed) {
        c->owed--;
    } else if (!c->ended && words[i][0] == '-' && words[i][1]) {
        c->ended = !strcmp(words[i], "--");
        c->option = cli_option_find(c->command, words[i], &c->owed);
    } else {
        c->option = NULL;
        c->ended = c->ended || c->command->stops;
        if (c->operands++ == (c->command->words != NULL))
            c->program = i;
    }
}

void cli_complete(FILE *out, int n, char **words)
{
    struct completion c = {.out = out, .word = words[n - 1], .program = n - 1};
    const char *value = strchr(c.word, '=');
    int ignored;

    if (n == 2)
        offer_commands(&c);
    if (n <= 2 || !(c.command = cli_command_find(words[1])))
        return;
    for (int i = 2; i < n - 1; i++)
        read_word(&c, words, i);
    if (c.option && is_split(c.word)) {
        c.owed = 1;
        c.word = "";
    }
    if (c.owed) {
        offer_value(&c);
    } else if (c.ended || c.word[0] != '-') {
        offer_operand(&c);
    } else if (value && (c.option = cli_option_find(c.command, c.word, &ignored))) {
        c.at = (size_t)(value + 1 - c.word);
        offer_value(&c);
    } else {
        offer_options(&c);
    }
}

/* ---- The subcommand ---- */

static const struct {
    const char *shell, *script;
} scripts[] = {
    {"bash", "# bash completion of fiber; to use it: . <(fiber completion bash)\n"
             "_fiber() {\n"
             "    local line cur=${COMP_WORDS[COMP_CWORD]}\n"
             "    COMPREPLY=()\n"
             "    while IFS= read -r line; do\n"
             "        case $line in\n"
             "        :files) ;; # bash does this itself, without a candidate\n"
             "        :folders) mapfile -t COMPREPLY < <(compgen -d -- \"${cur#=}\") ;;\n"
             "        :command*)\n"
             "            if declare -F _command_offset >/dev/null; then\n"
             "                _command_offset \"${line#* }\"\n"
             "            else\n"
             "                mapfile -t COMPREPLY < <(compgen -cf -- \"$cur\")\n"
             "            fi ;;\n"
             "        *) COMPREPLY+=(\"${line%%$'\\t'*}\") ;;\n"
             "        esac\n"
             "    done < <(\"${COMP_WORDS[0]/#\\~/$HOME}\" __complete "
             "\"${COMP_WORDS[@]:0:COMP_CWORD+1}\" 2>/dev/null)\n"
             "}\n"
             "complete -o bashdefault -o default -F _fiber fiber\n"},
    {"zsh",
     "#compdef fiber\n"
     "# zsh completion of fiber; to use it, put it as _fiber into a folder of $fpath.\n"
     "_fiber() {\n"
     "    local line; local -a found\n"
     "    for line in ${(f)\"$(${(Q)words[1]/#\\~/$HOME} __complete "
     "\"${(@Q)words[1,CURRENT]}\" 2>/dev/null)\"}; do\n"
     "        case $line in\n"
     "        :files) compset -P '-*='; _files; return ;;\n"
     "        :folders) compset -P '-*='; _files -/; return ;;\n"
     "        :command*) shift ${line#* } words; ((CURRENT -= ${line#* })); _normal; return "
     ";;\n"
     "        *) found+=(${${line//:/\\\\:}/$'\\t'/:}) ;;\n"
     "        esac\n"
     "    done\n"
     "    _describe fiber found\n"
     "}\n"
     "[[ $zsh_eval_context[-1] != loadautofunc ]] && compdef _fiber fiber || _fiber \"$@\"\n"},
    {"fish",
     "# fish completion of fiber; to use it: fiber completion fish | source\n"
     "function __fiber_complete\n"
     "    set -l words (commandline -opc)\n"
     "    set -l word (commandline -ct)\n"
     "    set -l name (string match -r -- '^-[^=]*=' $word)\n"
     "    set -l value (string replace -- \"$name\" '' $word)\n"
     "    set -l fiber (string replace -r '^~' $HOME -- $words[1])\n"
     "    for line in ($fiber __complete $words $word 2>/dev/null)\n"
     "        switch $line\n"
     "            case :files\n"
     "                __fish_complete_path $value | string replace -r -- '^' \"$name\"\n"
     "            case :folders\n"
     "                __fish_complete_directories $value | string replace -r -- '^' "
     "\"$name\"\n"
     "            case ':command*'\n"
     "                set -e words[1..(string sub -s 10 -- $line)]\n"
     "                complete -C (string join ' ' -- (string escape -- $words) \"$word\")\n"
     "            case '*'\n"
     "                echo $line\n"
     "        end\n"
     "    end\n"
     "end\n"
     "complete -c fiber -f -a '(__fiber_complete)'\n"},
};

static int run_completion(const struct cli_args *args)
{
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++)
        if (!strcmp(args->operands[0], scripts[i].shell))
            fputs(scripts[i].script, stdout);
    return 0;
}

const struct cli_command cli_completion = {
    .name = "completion",
    .operands = "SHELL",
    .words = "bash zsh fish",
    .about = "Writes a completion script for bash, zsh or fish",
    .examples = ". <(fiber completion bash)\tin ~/.bashrc\n"
                "fiber completion fish | source\tin config.fish",
    .least = 1,
    .most = 1,
    .run = run_completion,
};
