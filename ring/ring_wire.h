/* ring_wire.h - frames between a launcher and its agents on the control channel. docs/wire.md has
 * their bytes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/proc/context.h"

enum fbr_ring_frame {
    /* to the agent */
    FBR_RING_JOB = FBR_FRAME_RING,
    FBR_RING_SIGNAL,
    FBR_RING_ANSWER,
    FBR_RING_NOTIFY,
    FBR_RING_STREAM,
    FBR_RING_STDIN,
    FBR_RING_CREDIT, /* output was written */
    FBR_RING_LOST,   /* a rank, while the others go on */
    FBR_RING_AGAIN,  /* start the rank again */
    FBR_RING_JOB_END,
    FBR_RING_LOOK, /* answer with USE */
    FBR_RING_END,  /* shut down */
    /* from the agent; NOTIFY and STREAM, too */
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
    FBR_RING_ROOM,   /* standard input was taken */
    FBR_RING_USE,    /* of processors and memory */
    FBR_RING_MISSED, /* a rank has MPI and no server */
    FBR_RING_WAITS,  /* a rank in MPI_Init; to the agent: does one? */
    FBR_RING_RESIZE, /* to the agent */
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
#define FBR_RING_REASON 512 /* of an ABORT, with its NUL */
