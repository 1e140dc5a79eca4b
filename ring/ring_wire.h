/* ring_wire.h - what a launcher and its agents say to each other, on the control channel
 * (docs/wire.md has it byte by byte).
 *
 *     to the agent    JOB      [job description: job_codec.h]
 *                     SIGNAL   u32 job, u32 rank (FBR_RING_ALL: all), u32 signal
 *                     ANSWER   u64 request, i32 code, bytes
 *                     NOTIFY     str bridge, u32 from agent, bytes
 *                     STREAM   u64 stream, bytes (none: it has hung up)
 *                     STDIN    bytes (none: end of file)
 *                     CREDIT   u64 bytes of output that were written
 *                     LOST     u32 job, u32 rank, i32 code
 *                     AGAIN    u32 job, u32 rank: start it anew
 *                     JOB_END  u32 job: no rank of it lives anywhere
 *                     LOOK
 *                     WAITS    u32 job: does a rank of yours wait in MPI_Init?
 *                     RESIZE   u32 job, u16 rows, u16 columns: of its reader's terminal
 *                     END      go home
 *     from the agent  HELLO    str host name, str address, u32 processors that it may use
 *                     NOTE     str text: what it found and set, for -v
 *                     STARTED  u32 job, u32 rank, u64 pid, str processors, str where, str how the
 *                              kernel sees it
 *                     FAILED   u32 job, u32 rank, str why it could not be started
 *                     EXITED   u32 job, u32 rank, i32 code, u8 flags (FBR_RANK_*), str what the
 *                              kernel said
 *                     OUTPUT   u32 job, u32 rank, u8 stream (| FBR_RING_SHOW: nothing follows for
 *                              now), bytes
 *                     MET      u32 job, u32 rank, str how
 *                     LEFT     u32 job, u32 rank
 *                     ABORT    u32 job, u32 rank, i32 code, str text
 *                     FENCE    u64 request, u32 n, n x u32 agent, bytes key, bytes data
 *                     PUBLISH  u64 request, u32 job, u32 rank, str key, bytes value
 *                     LOOKUP   u64 request, str key, i32 milliseconds
 *                     UNPUBLISH u64 request, u32 job, u32 rank, u8 all, str key
 *                     SPAWN    u64 request, u32 job, u32 rank, u32 n, n x (argv list, environment
 *                              list, str workdir, u32 count)
 *                     NOTIFY     str bridge, u32 to agent, bytes
 *                     STREAM_OPEN u64 stream, u32 job, str service
 *                     STREAM   u64 stream, bytes (none: closed)
 *                     ROOM     u64 bytes of standard input that rank 0 took
 *                     MISSED   u32 job, u32 rank: it loaded MPI seconds ago, and has not met its
 *                              server
 *                     WAITS    u32 job, u32 rank: it waits
 *                     USE      n x (u32 job, u32 rank, u64 ns of processor time, u64 resident
 *                              bytes)
 *
 * "bytes" as a last field goes to the end of the frame, without a length. A list is u32 n, n x str.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_RING_WIRE_H
#define FBR_RING_WIRE_H

#include "runtime/proc/context.h"

enum fbr_ring_frame {
    FBR_RING_JOB = FBR_FRAME_RING,
    FBR_RING_SIGNAL,
    FBR_RING_ANSWER,
    FBR_RING_NOTIFY,
    FBR_RING_STREAM,
    FBR_RING_STDIN,
    FBR_RING_CREDIT,
    FBR_RING_LOST,
    FBR_RING_AGAIN,
    FBR_RING_JOB_END,
    FBR_RING_LOOK,
    FBR_RING_END,
    FBR_RING_HELLO,
    FBR_RING_NOTE,
    FBR_RING_STARTED,
    FBR_RING_FAILED,
    FBR_RING_EXITED,
    FBR_RING_OUTPUT,
    FBR_RING_MET,
    FBR_RING_LEFT,
    FBR_RING_ABORT,
    FBR_RING_FENCE,
    FBR_RING_PUBLISH,
    FBR_RING_LOOKUP,
    FBR_RING_UNPUBLISH,
    FBR_RING_SPAWN,
    FBR_RING_STREAM_OPEN,
    FBR_RING_ROOM,
    FBR_RING_USE,
    FBR_RING_MISSED,
    FBR_RING_WAITS,
    FBR_RING_RESIZE,
};

#define FBR_RING_ALL 0xffffffffu
#define FBR_RING_SHOW 0x80 /* beside the stream of OUTPUT */

#define FBR_RANK_MET 1u  /* it met its server */
#define FBR_RANK_LEFT 2u /* and said goodbye */
#define FBR_RANK_MPI 4u  /* its program is linked with an MPI library */

#define FBR_RING_WINDOW (8u << 20) /* bytes of output of one agent that were not yet written */
#define FBR_RING_STDIN_WINDOW (1u << 20)
#define FBR_RING_PATH 4096
#define FBR_RING_LIST 65536     /* strings in a list, at most */
#define FBR_RING_STR (1u << 20) /* bytes of a string in a list, at most */

#endif
