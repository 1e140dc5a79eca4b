/* tcpstore.h - the service "tcpstore": answers the clients of torch.distributed.TCPStore as torch's
 * own rank 0 or torchrun's agent does.
 *
 * Pure, see service.h; the table is fbr_service_tcpstore. The wire format is torch's
 * (torch/csrc/distributed/c10d, TCPStore.cpp, TCPStoreBackend.cpp, TCPStoreLibUvBackend.cpp): a
 * byte for the request, then its arguments. A string or value is u64 length and bytes, a list is
 * u64 count and its items, all little endian. There are two dialects, with different numbers for
 * the requests:
 *
 *     torch 1.x, 2.0   SET is 0
 *     torch 2.1 on     the first request is VALIDATE, 0, with a magic number
 *
 * A connection whose first bytes are 0 and the magic number speaks the second dialect. In the first
 * dialect these bytes would begin a SET whose key is 0x3C85F7CE bytes long or longer, which is more
 * than FBR_TCPSTORE_KEY_MAX. So one dialect is never taken for the other.
 *
 * Timeouts are up to the client: it hangs up, or sends CANCEL_WAIT. The service hangs up on a
 * client that breaks the rules, or would put more than FBR_TCPSTORE_MEMORY_MAX into the store. It
 * allocates nothing for bytes that have not come.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "mpi_bridge/service.h"

#define FBR_TCPSTORE_MAGIC 0x3C85F7CEu
#define FBR_TCPSTORE_KEY_MAX 65536u
#define FBR_TCPSTORE_COUNT_MAX 131072u       /* keys of a request, as in torch's libuv backend */
#define FBR_TCPSTORE_MEMORY_MAX (1ull << 30) /* bytes of keys, values, waits and a request */
