/* run_env.c - the variables that commands give to jobs.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_env.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/text_file.h"
#include "cli/run_table.h"
#include "mpi_bridge/host_env.h"

/* Adds a variable; the last one of a name wins. */
static int env_add(struct run_env *e, char *pair, struct fbr_error *err)
{
    size_t name = pair ? strcspn(pair, "=") + 1 : 0;
    char **more;

    for (size_t i = 0; pair && i < e->count; i++)
        if (!strncmp(e->list[i], pair, name)) {
            free(e->list[i]);
            e->list[i] = pair;
            return 0;
        }
    more = pair ? realloc(e->list, (e->count + 2) * sizeof(*more)) : NULL;
    if (!more) {
        free(pair);
        return fbr_fail(err, -ENOMEM, "out of memory");
    }
    e->list = more;
    e->list[e->count++] = pair;
    e->list[e->count] = NULL;
    return 0;
}

static char *pair_of(const char *prefix, const char *name, size_t len, const char *value)
{
    char *pair;

    return asprintf(&pair, "%s%.*s=%s", prefix, (int)len, name, value) < 0 ? NULL : pair;
}

static int take_variable(struct run_env *e, const char *option, const char *text, const char *hint,
                         struct fbr_error *err)
{
    size_t len = strcspn(text, "=");
    const char *value = text[len] ? text + len + 1 : getenv(text);

    if (!strcmp(text, "ALL") && !value) /* srun's --export=ALL */
        return 0;
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
    return env_add(e, pair_of("", text, len, value), err);
}

int run_env_list(struct run_env *e, const struct cli_value *v, const char *hint,
                 struct fbr_error *err)
{
    int rc = 0;

    for (size_t i = 0; i < v->count && rc == 0; i++)
        rc = take_variable(e, v->said[i], v->list[i], hint, err);
    return rc;
}

static int take_pairs(struct run_env *e, const struct cli_value *v, const char *prefix,
                      struct fbr_error *err)
{
    int rc;

    for (size_t i = 0; i + 1 < v->count; i += 2) {
        const char *name = v->list[i];

        if (!name[0] || strchr(name, '='))
            return fbr_fail(err, -EINVAL, "%s: \"%.64s\" is not a name; use %s%.64s", v->said[i],
                            name, prefix[0] ? "--mca KEY VALUE, not " : "-x ", name);
        rc = env_add(e, pair_of(prefix, name, strlen(name), v->list[i + 1]), err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

struct file_variables {
    struct run_env *e;
    struct fbr_error *err;
};

/* A variable that is not set here is left out, as docker does. */
static int take_file_variable(void *user, const char *name, const char *value)
{
    struct file_variables *f = user;

    if (!value)
        value = getenv(name);
    return value ? env_add(f->e, pair_of("", name, strlen(name), value), f->err) : 0;
}

int run_env_take(struct run_env *e, const struct cli_args *args, struct fbr_error *err)
{
    const struct cli_value *files = &args->values[RUN_ENV_FILE];
    struct file_variables f = {e, err};
    int rc;

    for (size_t i = 0; i < files->count; i++)
        if (env_file_read(files->list[i], take_file_variable, &f, err) < 0)
            return fbr_wrap(err, "--env-file");
    if ((rc = run_env_list(e, &args->values[RUN_ENV], ", or --genv VAR VALUE", err)) < 0 ||
        (rc = take_pairs(e, &args->values[RUN_MCA], FBR_MCA_PREFIX, err)) < 0)
        return rc;
    return take_pairs(e, &args->values[RUN_GENV], "", err);
}

void run_env_fini(struct run_env *e)
{
    for (size_t i = 0; i < e->count; i++)
        free(e->list[i]);
    free(e->list);
    *e = (struct run_env){0};
}
