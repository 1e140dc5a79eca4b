/* agent.h - the process that a ring has on each of its nodes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/buf.h"
#include "runtime/pin/pin.h"

/* The start order of an agent. */
struct fbr_agent_order {
    uint32_t number;
    struct fbr_pin_wish wish; /* count is not used */
    bool verbose;
    bool report;        /* report where ranks are bound, as read back from the kernel */
    bool oversubscribe; /* the user wants more ranks than processors */
    bool survive;       /* ranks go on after the death of others */
    bool image;         /* it runs in a container of an image */
    uint32_t ranks;     /* ranks of the ring's first job, on all agents */
};

void fbr_agent_order_put(const struct fbr_agent_order *o, struct fbr_buf *b);

int fbr_agent_main(const void *arg, size_t len); /* a fiber_process_fn */
