/* bridge_tables.h - the tables of the bridges and services that are built in, each by its name.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "mpi_bridge/bridge.h"
#include "mpi_bridge/service.h"

extern const struct fbr_bridge_ops fbr_bridge_plain, fbr_bridge_pmi1, fbr_bridge_torch,
    fbr_bridge_horovod;
extern const struct fbr_service_ops fbr_service_tcpstore, fbr_service_rendezvous;
