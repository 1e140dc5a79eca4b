/* exchange_fuzz.c - fences and names of agents in any order: each request is answered at most once,
 * and never before it was made.
 *
 * The input is a list of events of 4 bytes: what, agent, key, number.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ring/exchange.h"

#define AGENTS 8

static uint8_t *open_requests; /* by request: 1 + agent, 0 when it is answered */
static uint64_t next;

static void on_answer(void *user, uint32_t agent, uint64_t request, int code, const void *data,
                      size_t len)
{
    if (request >= next || open_requests[request] != 1 + agent || code > 0 || (len && !data))
        abort();
    open_requests[request] = 0;
}

static uint64_t request_of(uint8_t agent)
{
    open_requests[next] = (uint8_t)(1 + agent);
    return next++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t all[AGENTS] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct fbr_exchange *x = fbr_exchange_open(AGENTS, on_answer, NULL, NULL);
    uint64_t now = 0;

    open_requests = calloc(size / 4 + 1, 1);
    next = 0;
    for (size_t i = 0; x && open_requests && i + 4 <= size; i += 4) {
        uint8_t agent = data[i + 1] % AGENTS, n = data[i + 3];
        char key[2] = {(char)('a' + data[i + 2] % 4), '\0'};

        switch (data[i] % 8) {
        case 0:
        case 1:
            fbr_exchange_fence(x, agent, request_of(agent), key, 1, all, 1 + n % AGENTS, data,
                               n % 16 < size ? n % 16 : 0);
            break;
        case 2:
            fbr_exchange_publish(x, agent, request_of(agent), n % 4, agent, key, data,
                                 n % 16 < size ? n % 16 : 0);
            break;
        case 3:
            fbr_exchange_lookup(x, agent, request_of(agent), key, n % 3 == 0 ? -1 : n, now);
            break;
        case 4:
            fbr_exchange_unpublish(x, agent, request_of(agent), n % 4, agent, n % 2 ? key : NULL);
            break;
        case 5:
            if (n % 4 == 0)
                fbr_exchange_agent_gone(x, agent);
            else
                fbr_exchange_idle(x, agent, n % 2);
            break;
        case 6:
            fbr_exchange_job_end(x, n % 4);
            break;
        default:
            now += n;
            fbr_exchange_tick(x, now);
            if (fbr_exchange_deadline(x) <= now)
                abort();
            break;
        }
    }
    fbr_exchange_close(x);
    free(open_requests);
    return 0;
}
