/* completion.c - `fiber completion`: scripts for bash, zsh and fish, generated from the tables of
 * options.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cli/option.h"

static bool is_offered(const struct cli_option *o)
{
    return !o->hidden && o->type != CLI_REFUSED && o->type != CLI_NOTHING;
}

/* True for --dry-run[=server] and the like. */
static bool may_have_word(const struct cli_option *o)
{
    return o->words && !o->argument;
}

static bool takes_file(const struct cli_option *o)
{
    return o->argument && (strcmp(o->argument, "FILE") == 0 || strcmp(o->argument, "PATH") == 0);
}

/* Prints text between single quotes of a shell; the characters in `marks` get a backslash for the
 * next reader. */
static void quote(const char *text, const char *marks)
{
    for (; *text; text++) {
        if (strchr(marks, *text))
            putchar('\\');
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*text);
    }
}

/* ---- bash ---- */

static void bash_words_of(const struct cli_command *c, bool with_argument)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct cli_option *o = &c->options[i];

        if (with_argument && o->argument && o->type != CLI_REFUSED) {
            printf(" --%s", o->name);
            if (o->letter)
                printf(" -%c", o->letter);
        } else if (!with_argument && is_offered(o)) {
            printf(" --%s", o->name);
            if (may_have_word(o))
                printf(" --%s=%s", o->name, o->words);
        }
    }
}

static void bash_values(const struct cli_command *c)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct cli_option *o = &c->options[i];

        if (!is_offered(o) || !o->argument || (!o->words && o->type != CLI_DIR))
            continue;
        if (o->letter)
            printf("        %s\\ -%c | ", c->name, o->letter);
        else
            printf("        ");
        printf("%s\\ --%s) ", c->name, o->name);
        if (o->words)
            printf("COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", o->words);
        else
            printf("COMPREPLY=($(compgen -d -- \"$cur\")); return ;;\n");
    }
}

static const char *bash_operands(const struct cli_command *c)
{
    switch (c->kind) {
    case CLI_RUN:
    case CLI_RUN_SIGNAL:
        return "compgen -W \"$(\"${COMP_WORDS[0]}\" ps --names 2>/dev/null)\"";
    case CLI_COMMAND:
        return "compgen -W \"$subcommands\"";
    case CLI_SHELL:
        return "compgen -W 'bash zsh fish'";
    case CLI_KEY:
        return "compgen -W \"$( ((COMP_CWORD == 2)) && echo show set || \"${COMP_WORDS[0]}\" "
               "config "
               "--names 2>/dev/null)\"";
    case CLI_IMAGE:
        return "((COMP_CWORD == 2)) && compgen -W 'build export unpack'";
    case CLI_KUBERNETES:
        return "((COMP_CWORD == 2)) && compgen -W 'manifest run'";
    case CLI_PROGRAM:
        return "compgen -c";
    case CLI_FILES:
        return "compgen -f";
    default:
        return "compgen -W ''";
    }
}

static void write_bash(void)
{
    puts("# bash completion of fiber, written by `fiber completion bash`. To use it: . <(fiber "
         "completion "
         "bash)\n"
         "_fiber()\n{\n"
         "    local cur=${COMP_WORDS[COMP_CWORD]} prev='' sub=${COMP_WORDS[1]} i takes='' "
         "offered=''");
    printf("    local subcommands='");
    for (size_t i = 0; cli_commands[i]; i++)
        printf("%s%s", i ? " " : "", cli_commands[i]->name);
    puts("'\n    COMPREPLY=()\n"
         "    if ((COMP_CWORD == 1)); then\n"
         "        COMPREPLY=($(compgen -W \"$subcommands\" -- \"$cur\"))\n"
         "        return\n"
         "    fi\n"
         "    prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
         "    # --name=value comes as three words\n"
         "    if [[ $cur == = ]]; then\n"
         "        cur=\n"
         "    elif [[ $prev == = ]]; then\n"
         "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
         "    fi\n"
         "    case \"$sub\" in");
    for (size_t i = 0; cli_commands[i]; i++) {
        printf("    %s) takes='", cli_commands[i]->name);
        bash_words_of(cli_commands[i], true);
        printf(" ' offered='");
        bash_words_of(cli_commands[i], false);
        puts(" --help' ;;");
    }
    puts("    esac\n"
         "    # what follows the program of `fiber run` is the program's\n"
         "    if [[ $sub == run ]]; then\n"
         "        for ((i = 2; i < COMP_CWORD; i++)); do\n"
         "            if [[ $takes == *\" ${COMP_WORDS[i]} \"* ]]; then\n"
         "                [[ ${COMP_WORDS[i]} == --mca || ${COMP_WORDS[i]} == --genv ]] && i=$((i "
         "+ 1))\n"
         "                i=$((i + 1))\n"
         "                [[ ${COMP_WORDS[i]} == = ]] && i=$((i + 1))\n"
         "            elif [[ ${COMP_WORDS[i]} != -* ]]; then\n"
         "                if declare -F _command_offset >/dev/null; then\n"
         "                    _command_offset \"$i\"\n"
         "                else\n"
         "                    COMPREPLY=($(compgen -f -- \"$cur\"))\n"
         "                fi\n"
         "                return\n"
         "            fi\n"
         "        done\n"
         "    fi\n"
         "    case \"$sub $prev\" in");
    for (size_t i = 0; cli_commands[i]; i++)
        bash_values(cli_commands[i]);
    puts("    esac\n"
         "    [[ $takes == *\" $prev \"* ]] && return\n"
         "    if [[ $cur == -* ]]; then\n"
         "        COMPREPLY=($(compgen -W \"$offered\" -- \"$cur\"))\n"
         "        return\n"
         "    fi\n"
         "    case \"$sub\" in");
    for (size_t i = 0; cli_commands[i]; i++)
        printf("    %s) COMPREPLY=($(%s -- \"$cur\")) ;;\n", cli_commands[i]->name,
               bash_operands(cli_commands[i]));
    puts("    esac\n}\ncomplete -o bashdefault -o default -F _fiber fiber");
}

/* ---- zsh ---- */

static void zsh_option(const struct cli_option *o)
{
    const char *repeat = o->type == CLI_LIST || o->type == CLI_PAIR ? "*" : "";
    /* "=": the value may be the next word, or follow an equals sign; "=-": only follow an equals
     * sign */
    const char *value = may_have_word(o) ? "=-" : o->argument && o->type != CLI_PAIR ? "=" : "";

    if (o->letter && !*repeat)
        printf(" \\\n            '(-%c --%s)'{-%c,--%s%s}'[", o->letter, o->name, o->letter,
               o->name, value);
    else if (o->letter)
        printf(" \\\n            '*'{-%c,--%s%s}'[", o->letter, o->name, value);
    else
        printf(" \\\n            '%s--%s%s[", repeat, o->name, value);
    quote(o->help, "[]");
    putchar(']');
    if (may_have_word(o))
        printf("::%s:(%s)", o->name, o->words);
    for (int i = 0; o->argument && i < (o->type == CLI_PAIR ? 2 : 1); i++) {
        putchar(':');
        quote(o->argument, ":[]");
        putchar(':');
        if (o->words)
            printf("(%s)", o->words);
        else if (o->type == CLI_DIR)
            fputs("_files -/", stdout);
        else if (takes_file(o))
            fputs("_files", stdout);
    }
    putchar('\'');
}

static const char *zsh_operands(const struct cli_command *c)
{
    switch (c->kind) {
    case CLI_RUN:
    case CLI_RUN_SIGNAL:
        return "'1:run:_fiber_runs' '2:rank:'";
    case CLI_COMMAND:
        return "'1:subcommand:_fiber_subcommands'";
    case CLI_SHELL:
        return "'1:shell:(bash zsh fish)'";
    case CLI_KEY:
        return "'1:what:(show set)' '2:key:_fiber_keys' '3:value:'";
    case CLI_IMAGE:
        return "'1:what:(build export unpack)' '2:name:_files -/' '*:program:_command_names -e'";
    case CLI_KUBERNETES:
        return "'1:what:(manifest run)' '2:program:_command_names -e' '*::arguments:_normal'";
    case CLI_PROGRAM:
        return "'1:program:_command_names -e' '*::arguments:_normal'";
    case CLI_FILES:
        return "'*:file:_files'";
    default:
        return "";
    }
}

static void write_zsh(void)
{
    puts(
        "#compdef fiber\n"
        "# zsh completion of fiber, written by `fiber completion zsh`. To use it, put it as _fiber "
        "into a "
        "folder of $fpath.\n"
        "_fiber_runs() {\n    local -a runs\n    runs=(${(f)\"$(fiber ps --names 2>/dev/null)\"})\n"
        "    compadd -a runs\n}\n"
        "_fiber_keys() {\n    local -a keys\n    keys=(${(f)\"$(fiber config --names "
        "2>/dev/null)\"})\n"
        "    compadd -a keys\n}\n"
        "_fiber_subcommands() {\n    local -a subcommands\n    subcommands=(");
    for (size_t i = 0; cli_commands[i]; i++) {
        printf("        '%s:", cli_commands[i]->name);
        quote(cli_commands[i]->about, ":");
        puts("'");
    }
    puts("    )\n    _describe subcommand subcommands\n}\n"
         "_fiber() {\n"
         "    local curcontext=$curcontext state line\n"
         "    _arguments -C '1:subcommand:_fiber_subcommands' '*::argument:->rest'\n"
         "    [[ $state == rest ]] || return\n"
         "    case $line[1] in");
    for (size_t i = 0; cli_commands[i]; i++) {
        const struct cli_command *c = cli_commands[i];

        printf("    %s)\n        _arguments -s", c->name);
        for (size_t o = 0; o < c->count; o++)
            if (is_offered(&c->options[o]))
                zsh_option(&c->options[o]);
        printf(" \\\n            '(- *)--help[shows its help]'");
        if (*zsh_operands(c))
            printf(" \\\n            %s", zsh_operands(c));
        puts("\n        ;;");
    }
    puts("    esac\n}\n"
         "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n    _fiber \"$@\"\nelse\n    "
         "compdef _fiber "
         "fiber\nfi");
}

/* ---- fish ---- */

#define FISH_OF "complete -c fiber -n '__fish_seen_subcommand_from %s'"

static void fish_option(const struct cli_command *c, const struct cli_option *o)
{
    printf(FISH_OF " -l %s", c->name, o->name);
    if (o->letter)
        printf(" -s %c", o->letter);
    if (o->words)
        printf("%s -a '%s'", may_have_word(o) ? "" : " -x", o->words);
    else if (o->type == CLI_DIR)
        fputs(" -x -a '(__fish_complete_directories)'", stdout);
    else if (o->argument)
        fputs(takes_file(o) ? " -r -F" : " -x", stdout);
    fputs(" -d '", stdout);
    for (const char *p = o->help; *p; p++) {
        if (*p == '\'' || *p == '\\')
            putchar('\\');
        putchar(*p);
    }
    puts("'");
}

/* Prints the operands after the options, if they are not files. */
static void fish_operands(const struct cli_command *c)
{
    switch (c->kind) {
    case CLI_RUN:
    case CLI_RUN_SIGNAL:
        printf(FISH_OF " -a '(fiber ps --names 2>/dev/null)'\n", c->name);
        break;
    case CLI_COMMAND:
        for (size_t i = 0; cli_commands[i]; i++)
            printf(FISH_OF " -a %s -d '%s'\n", c->name, cli_commands[i]->name,
                   cli_commands[i]->about);
        break;
    case CLI_SHELL:
        printf(FISH_OF " -a 'bash zsh fish'\n", c->name);
        break;
    case CLI_KEY:
        printf(FISH_OF " -a 'show set (fiber config --names 2>/dev/null)'\n", c->name);
        break;
    case CLI_IMAGE:
        printf("complete -c fiber -n '__fish_seen_subcommand_from %s; and not "
               "__fish_seen_subcommand_from build export unpack' -a 'build export unpack'\n"
               "complete -c fiber -n '__fish_seen_subcommand_from %s; and "
               "__fish_seen_subcommand_from build export unpack' -F\n",
               c->name, c->name);
        break;
    case CLI_KUBERNETES:
        printf("complete -c fiber -n '__fish_seen_subcommand_from %s; and not "
               "__fish_seen_subcommand_from manifest run' -a 'manifest run'\n",
               c->name);
        break;
    case CLI_PROGRAM:
        printf(FISH_OF " -F -a '(__fish_complete_command)'\n", c->name);
        break;
    case CLI_FILES:
        printf(FISH_OF " -F\n", c->name);
        break;
    default:
        break;
    }
}

static void write_fish(void)
{
    puts("# fish completion of fiber, written by `fiber completion fish`. To use it: fiber "
         "completion fish | "
         "source\n"
         "complete -c fiber -f");
    for (size_t i = 0; cli_commands[i]; i++) {
        const struct cli_command *c = cli_commands[i];

        printf("complete -c fiber -n __fish_use_subcommand -a %s -d '%s'\n", c->name, c->about);
        for (size_t o = 0; o < c->count; o++)
            if (is_offered(&c->options[o]))
                fish_option(c, &c->options[o]);
        printf(FISH_OF " -l help -d 'shows its help'\n", c->name);
        fish_operands(c);
    }
}

/* ---- The subcommand ---- */

static int run_completion(const struct cli_args *args)
{
    static const struct {
        const char *name;
        void (*write)(void);
    } shells[] = {{"bash", write_bash}, {"zsh", write_zsh}, {"fish", write_fish}};

    for (size_t i = 0; i < sizeof(shells) / sizeof(shells[0]); i++)
        if (!strcmp(args->operands[0], shells[i].name)) {
            shells[i].write();
            return 0;
        }
    return cli_failed(2, "there is completion for bash, zsh and fish, but not for %s",
                      args->operands[0]);
}

const struct cli_command cli_completion = {
    .name = "completion",
    .operands = "SHELL",
    .kind = CLI_SHELL,
    .about = "Writes a completion script for bash, zsh or fish",
    .examples = ". <(fiber completion bash)\tin ~/.bashrc\n"
                "fiber completion fish | source\tin config.fish",
    .least = 1,
    .most = 1,
    .run = run_completion,
};
