/* tcpstore_fuzz.c - hostile clients of torch's store; service.h has how.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_bridge/tcpstore.h"
#include "tests/fuzz/service.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_service(&fbr_service_tcpstore, data, size);
}
