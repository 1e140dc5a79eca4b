/* rendezvous.h - the service "rendezvous": the key-value server over HTTP that Horovod's ranks meet
 * at.
 *
 * Pure, see service.h; the table is fbr_service_rendezvous. Its answers are those of
 * Horovod's own server (horovod/runner/http/http_server.py), which HTTPStore
 * (horovod/common/gloo/http_store.cc) and Python's urllib ask:
 *
 *   PUT /SCOPE/KEY      keeps the body: 200
 *   GET /SCOPE/KEY      200 and the bytes, or 404 until somebody has put them; the clients poll
 *   DELETE /SCOPE/KEY   200. In a scope that ranks of the job meet in (global..., local_...,
 *                       cross_...) each puts its addresses under its number, and what else it has
 *                       under other keys (Horovod 0.28: rank_0, its host). DELETE of its number
 *                       means that it has connected to all others; the scope is emptied, of the
 *                       other keys too, when all numbers have said so, because the others still
 *                       read. So the next hvd.init() of the same processes finds nothing of the
 *                       last one. Any other key is gone at once
 *
 * The scope rank_and_size of elastic Horovod is like any other: the program that places ranks anew
 * puts its values there.
 *
 * HTTP as far as that needs it: HTTP/1.0 and 1.1, keep-alive, a body only with Content-Length. The
 * rest of HTTP (chunks, continuation lines, Expect) is refused by 400, 411 or 501 and a hang-up.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_RENDEZVOUS_H
#define FBR_RENDEZVOUS_H

#include "mpi_bridge/service.h"

#define FBR_RENDEZVOUS_HEAD_MAX 8192u       /* request line and header */
#define FBR_RENDEZVOUS_BODY_MAX (64u << 20) /* of one request */
#define FBR_RENDEZVOUS_MEMORY_MAX (256u << 20)

#endif
