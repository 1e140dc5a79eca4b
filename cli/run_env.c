/* run_env.c - the variables that -x, --env-file, --mca and the like give to jobs.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/text_file.h"
#include "cli/run_table.h"
#include "mpi_bridge/host_env.h"

static int check_env(const struct fbr_env *e, struct fbr_error *err)
{
    return e->failed ? fbr_fail(err, -ENOMEM, "out of memory") : 0;
}

static int take_variable(struct fbr_env *e, const char *option, const char *text, const char *hint,
                         struct fbr_error *err)
{
    size_t len = strcspn(text, "=");
    const char *value = text[len] ? text + len + 1 : getenv(text);

    if (!strcmp(text, "ALL") && !value) /* srun's --export=ALL */
        return 0;
    if (!strcmp(text, "NONE") && !value)
        return fbr_fail(err, -EINVAL,
                        "%s NONE: to start with an empty environment use env -i PATH=\"$PATH\" "
                        "fiber run ...",
                        option);
    if (len == 0)
        return fbr_fail(err, -EINVAL, "%s: \"%.64s\" has no name; use VAR or VAR=VALUE", option,
                        text);
    if (memchr(text, ',', len))
        return fbr_fail(err, -EINVAL, "%s: \"%.64s\" is not a name; use %s once for each variable",
                        option, text, option);
    if (!value)
        return fbr_fail(err, -EINVAL,
                        "%s %.64s: there is no such variable here; use %s %.64s=VALUE%s", option,
                        text, option, text, hint);
    if (text[len])
        fbr_env_put(e, text);
    else
        fbr_env_set(e, text, "%s", value);
    return 0;
}

int run_env_list(struct fbr_env *e, const struct cli_value *v, const char *hint,
                 struct fbr_error *err)
{
    int rc = 0;

    for (size_t i = 0; i < v->count && rc == 0; i++)
        rc = take_variable(e, v->said[i], v->list[i], hint, err);
    return rc < 0 ? rc : check_env(e, err);
}

static int take_pairs(struct fbr_env *e, const struct cli_value *v, const char *prefix,
                      struct fbr_error *err)
{
    for (size_t i = 0; i + 1 < v->count; i += 2) {
        const char *name = v->list[i];
        char *pair;

        if (!name[0] || strchr(name, '='))
            return fbr_fail(err, -EINVAL, "%s: \"%.64s\" is not a name; use %s%.64s", v->said[i],
                            name, prefix[0] ? "--mca KEY VALUE, not " : "-x ", name);
        if (asprintf(&pair, "%s%s=%s", prefix, name, v->list[i + 1]) < 0)
            return fbr_fail(err, -ENOMEM, "out of memory");
        fbr_env_put(e, pair);
        free(pair);
    }
    return check_env(e, err);
}

int run_env_line(void *user, const char *where, char *line, struct fbr_error *err)
{
    const char *value;
    char *equals;

    line += strspn(line, " \t");
    if (!*line || *line == '#')
        return 0;
    equals = strchr(line, '=');
    if (equals)
        *equals = '\0';
    if (!*line || strpbrk(line, " \t"))
        return fbr_fail(err, -EINVAL, "%s: \"%.64s\" is not the name of a variable; use NAME=VALUE",
                        where, line);
    value = equals ? equals + 1 : getenv(line);
    if (value)
        fbr_env_set(user, line, "%s", value);
    return 0;
}

int run_env_take(struct fbr_env *e, const struct cli_args *args, struct fbr_error *err)
{
    const struct cli_value *files = &args->values[RUN_ENV_FILE];
    int rc;

    for (size_t i = 0; i < files->count; i++)
        if (text_file_each(files->list[i], run_env_line, e, err) < 0)
            return fbr_wrap(err, "--env-file");
    if ((rc = run_env_list(e, &args->values[RUN_ENV], ", or --genv VAR VALUE", err)) < 0 ||
        (rc = take_pairs(e, &args->values[RUN_MCA], FBR_MCA_PREFIX, err)) < 0)
        return rc;
    return take_pairs(e, &args->values[RUN_GENV], "", err);
}
