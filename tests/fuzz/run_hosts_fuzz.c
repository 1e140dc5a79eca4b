/* run_hosts_fuzz.c - hostfiles, and the ranks that their hosts get: what comes out is names that no command takes for
 * options, each rank has one host, and the backend reads the same hosts.
 *
 * The first byte is the wish.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>

#include "cli/run_hosts.c"
#include "cli/text_file.c"

static void check(const struct run_hosts *h, int size)
{
    struct fbr_hosts read = {0};
    char *setting = run_hosts_setting(h);
    int64_t all = 0;

    if (setting && (fbr_hosts_parse(&read, "fuzz", setting, NULL) < 0 || read.n != h->n))
        abort();
    for (size_t i = 0; i < h->n; i++) {
        if (h->ranks[i] < 1 || h->names[i][0] == '-' || strpbrk(h->names[i], "/ \t\n,;$`\"'=") ||
            (setting && (read.at[i].slots || strcmp(read.at[i].name, h->names[i]) != 0)))
            abort();
        all += h->ranks[i];
    }
    if (all != size || size < 1)
        abort();
    fbr_hosts_fini(&read);
    free(setting);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t first = size ? data[0] : 0;
    struct run_hosts_wish wish = {.size = first & 1 ? first >> 2 : 0,
                                  .per_node = first & 2 ? first >> 5 : 0,
                                  .oversubscribe = first & 4,
                                  .nodes = first & 8 ? 2 : 0};
    struct fbr_error err = {0, ""};
    struct run_hosts h = {0}, list = {0};
    char *text;
    int ranks;

    if (!size)
        return 0;
    text = calloc(size, 1);
    if (text)
        memcpy(text, data + 1, size - 1);
    if (run_hosts_parse(&h, "fuzz", (const char *)data + 1, size - 1, &err) == 0) {
        run_hosts_here(&h);
        ranks = run_hosts_fit(&h, &wish, &err);
        if (ranks >= 0)
            check(&h, ranks);
    }
    if (text && run_hosts_list(&list, text, &err) == 0) {
        if (run_hosts_choose(&h, &list, &err) == 0 && h.n > list.n)
            abort();
        ranks = run_hosts_fit(&list, &wish, &err);
        if (ranks >= 0)
            check(&list, ranks);
    }
    if ((!h.names || !list.names) && !err.text[0])
        abort();
    free(text);
    run_hosts_fini(&list);
    run_hosts_fini(&h);
    return 0;
}
