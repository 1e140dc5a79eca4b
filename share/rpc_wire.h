/* rpc_wire.h - the heads of records of calls and answers, for rpc.c and rpc_service.c; see rpc.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_RPC_WIRE_H
#define FBR_RPC_WIRE_H

#include <stdint.h>

#define FBR_RPC_ROOM 64 /* bytes of heads in a record, at most */

enum fbr_rpc_op { FBR_RPC_CALL = 1, FBR_RPC_CANCEL, FBR_RPC_LEAVE };

/* To the owner. */
struct fbr_rpc_head {
    uint32_t op, zero;
    uint64_t call;
};

/* To the user. */
struct fbr_rpc_answer {
    uint64_t call;
    int32_t code;
    uint32_t zero;
};

#endif
