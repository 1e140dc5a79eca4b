/* ticket_fuzz.c - a job's ticket from hostile bytes.
 *
 * What is taken must come out the same when it is written again.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/proc/ticket.h"

static void require(int holds)
{
    if (!holds)
        abort();
}

static void check_round_trip(const struct fbr_join *j, const struct fbr_config *config)
{
    struct fbr_config *other = NULL;
    struct fbr_error err = {0};
    struct fbr_join back;
    struct fbr_buf b;

    fbr_buf_init(&b);
    fbr_join_put(j, config, &b);
    require(!b.failed && fbr_join_get(&back, &other, b.data, b.len, &err) == 0);
    require(strcmp(back.url, j->url) == 0 && strcmp(back.run_uid, j->run_uid) == 0);
    require(strcmp(back.name, j->name) == 0 && strcmp(back.root, j->root) == 0);
    require(back.by_host == j->by_host);
    require(back.me.kind == j->me.kind && back.me.id == j->me.id);
    require(memcmp(back.secret, j->secret, sizeof(j->secret)) == 0);
    fbr_config_free(other);
    fbr_buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fbr_config *config = NULL;
    struct fbr_error err = {0};
    struct fbr_join j;
    int rc = fbr_join_get(&j, &config, data, size, &err);

    if (rc < 0) {
        require(err.text[0] && rc == err.code);
        return 0;
    }
    require(config != NULL);
    check_round_trip(&j, config);
    fbr_config_free(config);
    return 0;
}
