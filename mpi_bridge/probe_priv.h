/* probe_priv.h - probes a host whose files are in other directories, for tests.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "mpi_bridge/probe.h"

#define FBR_PROBE_PATH 512

struct fbr_probe_roots {
    const char *sys, *dev, *proc; /* "/sys", "/dev", "/proc" */
};

void fbr_probe_at(struct fbr_probe *p, const struct fbr_probe_roots *roots, const char *address);
