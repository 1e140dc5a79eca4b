/* tcpstore.h - the service "tcpstore": what torch.distributed.TCPStore's clients talk to, as
 * torch's own rank 0 or torchrun's agent would answer them.
 *
 * Pure, see service.h; the table is fbr_service_tcpstore. The wire is torch's
 * (torch/csrc/distributed/c10d, TCPStore.cpp, TCPStoreBackend.cpp, TCPStoreLibUvBackend.cpp): a
 * byte says what is asked, then its arguments; a string or value is u64 length and bytes, a list
 * u64 count and its items, all little endian. Two dialects, which differ in the numbers of the
 * requests:
 *
 *   torch 1.x, 2.0   SET is 0, and there is WATCH_KEY
 *   torch 2.1 on     the first request is VALIDATE, 0, with a magic number; the same for both of
 *                    torch's backends
 *
 * A connection whose first bytes are 0 and the magic number is of the second kind. In the first
 * kind they would begin a SET whose key is 0x3C85F7CE bytes long or longer, which is beyond
 * FBR_TCPSTORE_KEY_MAX: nothing is taken for the other.
 *
 * Timeouts are the client's: it hangs up, or sends CANCEL_WAIT. A client that breaks the rules, or
 * would put more than FBR_TCPSTORE_MEMORY_MAX into the store, is hung up on. Nothing is allocated
 * for bytes that have not come.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_TCPSTORE_H
#define FBR_TCPSTORE_H

#include "mpi_bridge/service.h"

#define FBR_TCPSTORE_MAGIC 0x3C85F7CEu
#define FBR_TCPSTORE_KEY_MAX 65536u
#define FBR_TCPSTORE_COUNT_MAX 131072u       /* keys of one request; as torch's libuv backend */
#define FBR_TCPSTORE_MEMORY_MAX (1ull << 30) /* of keys, values, waits and a request */

#endif
