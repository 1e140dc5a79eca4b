/* rendezvous.h - the service "rendezvous": the key-value server over HTTP at which Horovod's ranks
 * meet.
 *
 * Pure, see service.h; the table is fbr_service_rendezvous. It answers as Horovod's own server
 * (horovod/runner/http/http_server.py). Its clients are HTTPStore
 * (horovod/common/gloo/http_store.cc) and Python's urllib:
 *
 *     PUT /SCOPE/KEY     keeps the body: 200
 *     GET /SCOPE/KEY     200 and the bytes, or 404 until the key is put; the clients poll
 *     DELETE /SCOPE/KEY  200. Removes the key at once, except for the number of a rank in a scope
 *                        in which ranks of the job meet (global..., local_..., cross_...). There
 *                        each rank puts its addresses under its number, and other data under other
 *                        keys (Horovod 0.28: rank_0, its host). DELETE of its number means that the
 *                        rank has connected to all others, which may still read. The scope is
 *                        emptied, of the other keys too, when all numbers were deleted. So the next
 *                        hvd.init() of the same processes finds nothing of the last one
 *
 * The scope rank_and_size of elastic Horovod is like any other: the program that places ranks again
 * puts its values there.
 *
 * The server has the HTTP that this needs: HTTP/1.0 and 1.1, keep-alive, a body only with
 * Content-Length. It refuses the rest of HTTP (chunks, continuation lines, Expect) with 400, 411 or
 * 501 and hangs up.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "mpi_bridge/service.h"

#define FBR_RENDEZVOUS_HEAD_MAX 8192u       /* request line and header */
#define FBR_RENDEZVOUS_BODY_MAX (64u << 20) /* of a request */
#define FBR_RENDEZVOUS_MEMORY_MAX (256u << 20)
