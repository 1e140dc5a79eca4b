/* command_template_fuzz.c - templates and lists of hosts from hostile text: what is taken can be
 * filled, and no host looks like an option.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/command/template.h"

static void require(int holds)
{
    if (!holds)
        abort();
}

static void try_template(const char *text)
{
    static char *env[] = {"A=b", NULL}, *argv[] = {"x y", NULL};
    static const char *const ids[] = {"1", "2", NULL};
    const struct fbr_fill f = {.host = "h",
                               .name = "n",
                               .run = "r",
                               .id = "1",
                               .workdir = "/w",
                               .ticket = "fd:0",
                               .env = env,
                               .program = "p",
                               .argv = argv,
                               .ids = ids};
    struct fbr_args t = {0}, out = {0};
    struct fbr_error err = {0, ""};

    if (fbr_args_split(&t, text, &err) < 0 || fbr_template_check(&t, &err) < 0) {
        require(err.text[0]);
    } else {
        require(fbr_template_complete(&t) == 0);
        require(fbr_template_has(&t, "{program}") || fbr_template_has(&t, "{command}") ||
                fbr_template_has(&t, "{shell_command}"));
        require(fbr_template_fill(&t, &f, &out, &err) == 0 && out.n >= 1 && !out.at[out.n]);
    }
    fbr_args_fini(&t);
    fbr_args_fini(&out);
}

static void try_hosts(const char *text)
{
    struct fbr_hosts h = {0};
    struct fbr_error err = {0, ""};

    if (fbr_hosts_parse(&h, "fuzz", text, &err) < 0)
        require(err.text[0]);
    for (size_t i = 0; i < h.n; i++)
        require(h.at[i].name[0] && h.at[i].name[0] != '-');
    for (size_t i = 0; i < 2 * h.n; i++)
        fbr_hosts_pick(&h)->used++;
    fbr_hosts_fini(&h);
}

/* Cuts `text` up, so it comes last. */
static void try_label(char *text)
{
    char label[FBR_LABEL_MAX];
    struct fbr_labelled l;

    fbr_label(label, text, text, text);
    require(strlen(label) < FBR_LABEL_MAX);
    if (fbr_label_line(text, &l))
        require(l.id[0] && l.id[0] != '-' && l.run[0] && l.master && l.name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    try_template(text);
    try_hosts(text);
    try_label(text);
    free(text);
    return 0;
}
