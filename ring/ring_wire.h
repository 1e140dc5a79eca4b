/* ring_wire.h - frames between a launcher and its agents on the control channel (docs/wire.md
 * describes them byte by byte).
 *
 *     to the agent    JOB      [job description: job_codec.h]
 *                     SIGNAL   u32 job, u32 rank (FBR_RING_ALL: all), u32 signal
 *                     ANSWER   u64 request, i32 code, bytes
 *                     NOTIFY   str bridge, u32 from agent, bytes
 *                     STREAM   u64 stream, bytes (none: the service has hung up)
 *                     STDIN    bytes (none: end of file)
 *                     CREDIT   u64 bytes of output that were written
 *                     LOST     u32 job, u32 rank, i32 code
 *                     AGAIN    u32 job, u32 rank, u32 restarts of it: start the rank again
 *                     JOB_END  u32 job: no rank of it lives on any agent
 *                     LOOK     answer with USE
 *                     WAITS    u32 job: does a rank of yours wait in MPI_Init?
 *                     RESIZE   u32 job, u16 rows, u16 columns: of its reader's terminal
 *                     END      shut down
 *     from the agent  HELLO    str host name, str address, u32 processors that it may use, u64
 *                              equal for agents on the same processors of one machine
 *                     NOTE     str text: a remark about the host, for -v
 *                     STARTED  u32 job, u32 rank, u64 pid, str processors, str where, str binding
 *                              as read back from the kernel
 *                     FAILED   u32 job, u32 rank, str why it could not be started
 *                     EXITED   u32 job, u32 rank, i32 code, u8 flags (FBR_RANK_*), str facts of
 *                              the kernel
 *                     OUTPUT   u32 job, u32 rank, u8 stream (| FBR_RING_SHOW: nothing follows for
 *                              now), bytes
 *                     MET      u32 job, u32 rank, str how
 *                     LEFT     u32 job, u32 rank
 *                     ABORT    u32 job, u32 rank, i32 code, str text
 *                     FENCE    u64 request, u32 n, n x u32 agent, bytes key, bytes data
 *                     PUBLISH  u64 request, u32 job, u32 rank, str key, bytes value
 *                     LOOKUP   u64 request, str key, i32 milliseconds
 *                     UNPUBLISH u64 request, u32 job, u32 rank, u8 all, str key
 *                     SPAWN    u64 request, u32 job, u32 rank, u32 ranks, u32 n, n x (u32 first
 *                              rank of it, argv list, environment list, str workdir)
 *                     NOTIFY   str bridge, u32 to agent, bytes
 *                     STREAM_OPEN u64 stream, u32 job, str service
 *                     STREAM   u64 stream, bytes (none: closed)
 *                     ROOM     u64 bytes of standard input that the reader took
 *                     MISSED   u32 job, u32 rank: it loaded MPI seconds ago, and has not met its
 *                              server
 *                     WAITS    u32 job, u32 rank: it waits
 *                     USE      n x (u32 job, u32 rank, u64 ns of processor time, u64 resident
 *                              bytes)
 *
 * A "bytes" field at the end goes to the end of the frame, without a length. A list is u32 n, n x
 * str.
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
#define FBR_RING_SHOW 0x80 /* a flag next to the stream of OUTPUT */

#define FBR_RANK_MET 1u  /* it met its server */
#define FBR_RANK_LEFT 2u /* it left its server in order */
#define FBR_RANK_MPI 4u  /* its program is linked with an MPI library */

/* unwritten output of an agent, in bytes, at which it stops reading */
#define FBR_RING_WINDOW (8u << 20)
#define FBR_RING_STDIN_WINDOW (1u << 20)
#define FBR_RING_PATH 4096

#endif
