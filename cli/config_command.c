/* config_command.c - `fiber config`: shows every setting, its value and its source; and sets one.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cli/config_set.h"
#include "cli/option.h"
#include "cli/screen.h"
#include "runtime/base/config.h"
#include "runtime/base/config_value.h"

enum { CONFIG_JSON, CONFIG_OPTIONS };

static void put_json(struct fbr_json *j, const struct fbr_config *c, const struct fbr_config_key *k)
{
    fbr_json_object(j);
    fbr_json_str(j, "key", k->name);
    fbr_json_str(j, "value", fbr_config_str(c, k->name));
    fbr_json_str(j, "origin", fbr_config_origin(c, k->name));
    fbr_json_str(j, "default", k->fallback);
    fbr_json_str(j, "variable", k->env);
    fbr_json_str(j, "values", k->words);
    fbr_json_str(j, "help", k->help);
    fbr_json_end_object(j);
}

static int show_json(const struct fbr_config *c, const char *key)
{
    struct fbr_json j = {0};
    size_t n;
    const struct fbr_config_key *keys = fbr_config_keys(&n);

    fbr_json_array(&j, NULL);
    for (size_t i = 0; i < n; i++)
        if (!key || !strcmp(key, keys[i].name))
            put_json(&j, c, &keys[i]);
    fbr_json_end_array(&j);
    return cli_print_json(stdout, &j);
}

static int key_width(const struct fbr_config_key *keys, size_t n)
{
    size_t width = 0;

    for (size_t i = 0; i < n; i++)
        width = strlen(keys[i].name) > width ? strlen(keys[i].name) : width;
    return (int)width;
}

static int show_text(const struct fbr_config *c, const char *key)
{
    size_t n;
    const struct fbr_config_key *keys = fbr_config_keys(&n);
    int width = key_width(keys, n);

    if (!key)
        printf("%-*s %-16s %s\n", width, "KEY", "VALUE", "ORIGIN");
    for (size_t i = 0; i < n; i++)
        if (!key)
            printf("%-*s %-16s %s\n", width, keys[i].name, fbr_config_str(c, keys[i].name),
                   fbr_config_origin(c, keys[i].name));
        else if (!strcmp(key, keys[i].name))
            printf("%s = %s\n  from %s; default %s; %s; %s\n", key, fbr_config_str(c, key),
                   fbr_config_origin(c, key), keys[i].fallback[0] ? keys[i].fallback : "empty",
                   keys[i].env, keys[i].help);
    return 0;
}

/* Returns 0; or 2, after a message, if there is no such key. */
static int check_key(const char *key)
{
    size_t n;
    const struct fbr_config_key *keys = fbr_config_keys(&n);
    struct cli_guess g;

    cli_guess_begin(&g, key + (strncmp(key, "FIBER_", 6) ? 0 : 6));
    for (size_t i = 0; i < n; i++) {
        if (!strcmp(keys[i].name, key))
            return 0;
        cli_guess_try(&g, keys[i].name);
    }
    return cli_failed(2, "there is no setting %s%s%s%s", key, g.found ? "; did you mean " : "",
                      g.found ? g.found : "", g.found ? "?" : "");
}

/* Sets one key, and warns if a source that is stronger than the file overrides it. */
static int set(const char *key, const char *value)
{
    struct fbr_error err = {0, ""};
    char path[PATH_MAX];
    struct fbr_config *c;

    if (config_set(key, value, path, sizeof(path), &err) < 0)
        return cli_failed(2, "%s", err.text);
    printf("%s = %s, in %s\n", key, value, path);
    if (fbr_config_load_again(&c, &err) < 0)
        return cli_failed(2, "%s", err.text);
    if (strcmp(fbr_config_str(c, key), value) != 0 &&
        strncmp(fbr_config_origin(c, key), path, strlen(path)) != 0)
        fprintf(stderr, "fiber: the value here is still %s, from %s, which overrides the file\n",
                fbr_config_str(c, key), fbr_config_origin(c, key));
    fbr_config_free(c);
    return 0;
}

static int run_config(const struct cli_args *args)
{
    const char *key = args->noperands > 1 ? args->operands[1] : NULL;
    bool sets = args->noperands && !strcmp(args->operands[0], "set");
    struct fbr_error err = {0, ""};
    struct fbr_config *c;
    int code;

    if (args->noperands != 3 && sets)
        fbr_fail(&err, -EINVAL, "set needs a KEY and a VALUE");
    else if (args->noperands > 2 && !sets)
        fbr_fail(&err, -EINVAL,
                 "show takes at most one KEY; to set it, use `fiber config set KEY VALUE`");
    if (err.code)
        return cli_usage(args->command, &err);
    if (key && check_key(key))
        return 2;
    if (sets)
        return set(key, args->operands[2]);
    if (fbr_config_load_again(&c, &err) < 0)
        return cli_failed(2, "%s", err.text);
    code = args->values[CONFIG_JSON].number ? show_json(c, key) : show_text(c, key);
    fbr_config_free(c);
    return code;
}

static const struct cli_option options[CONFIG_OPTIONS] = {
    [CONFIG_JSON] = {"json", 0, CLI_FLAG, .help = "as a JSON array"},
};

const struct cli_command cli_config = {
    .name = "config",
    .operands = "[show [KEY] | set KEY VALUE]",
    .words = "show set",
    .kind = CLI_KEY,
    .about = "Shows every setting with its value and origin, or sets one",
    .text = "fiber.conf(5) describes each setting. Its value comes from the first of these that "
            "has one: an option, the environment (FIBER_KEY), ./.fiberconfig, "
            "~/.config/fiber/fiber.conf, /etc/fiber/fiber.conf, the default. set writes a line "
            "into ~/.config/fiber/fiber.conf; remove that line to go back to the default.",
    .examples = "fiber config\tall\n"
                "fiber config show grace\tone, with its description\n"
                "fiber config set heartbeat 2s\tfor all your programs on this host",
    .exit = "0\tshown, or set\n2\tthe configuration is wrong, or there is no such key",
    .options = options,
    .count = CONFIG_OPTIONS,
    .least = 0,
    .most = 3,
    .run = run_config,
};
