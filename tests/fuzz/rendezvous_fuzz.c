/* rendezvous_fuzz.c - hostile clients of the rendezvous server of Horovod; service.h has how.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_bridge/rendezvous.h"
#include "tests/fuzz/service.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_service(&fbr_service_rendezvous, data, size);
}
