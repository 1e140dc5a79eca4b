/* data_client.h - the calling side of a data link (data_server.h is the serving side): one socket
 * to one server.
 *
 * Each message down is answered by a message up that says "I hold it", so that the next message can
 * come while the program works on this one. The answer travels with the next record that is sent,
 * by fbr_data_client_ack(), or when fbr_data_client_recv() is called again.
 *
 * A program that must not wait for a server that does not read uses fbr_data_client_post() alone,
 * which queues. Then the receiving thread calls fbr_data_client_flush() when it is told to, and the
 * answer to a message down leaves with the next posted record, or by fbr_data_client_flush(): a
 * program that answers at once sends one message and not two.
 *
 * Threads: any thread may send; one thread receives and tends.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_DATA_CLIENT_H
#define FBR_DATA_CLIENT_H

#include "runtime/base/error.h"
#include "runtime/net/mux.h"

struct fbr_data_client;

/* Opens a link; keys NULL: not sealed. Sends the first message up, which tells the server the way
 * back; over TCP it reconnects until the server has answered. -ETIMEDOUT: no server was there, or
 * answered, for timeout_ms. */
int fbr_data_client_open(struct fbr_data_client **u, const char *url, uint64_t link,
                         const struct fbr_keys *keys, size_t limit, int timeout_ms,
                         struct fbr_error *err);
/* Opens a link by way of our host over this socket, which the link owns from then on (relay.h).
 * Nothing is numbered, sealed or answered there, and fbr_data_client_send() waits as long as
 * necessary. Do not use fbr_data_client_never_wait() and the functions below it on such a link. */
int fbr_data_client_open_local(struct fbr_data_client **u, int fd, size_t limit,
                               struct fbr_error *err);
bool fbr_data_client_is_local(const struct fbr_data_client *u);
void fbr_data_client_close(struct fbr_data_client *u); /* NULL is fine */

/* From now on a long record of a stream ends the link: for a process that relays for no other. Call
 * it before the first message is received. */
void fbr_data_client_no_streams(struct fbr_data_client *u);

/* Sets the heartbeats. `server_ms`: how often the server expects to hear us (data_server.h), 0:
 * never; then our own heartbeat. Over TCP the connection is lost when the server's host has
 * answered nothing for several heartbeats: the server may have been stopped for a while, and has
 * other means to end us. */
void fbr_data_client_heartbeat(struct fbr_data_client *u, unsigned server_ms, int beat_ms,
                               int misses);
int fbr_data_client_beat_ms(const struct fbr_data_client *u); /* the shorter heartbeat of the two */
/* Tells the server that we are alive when nothing else does. The receiving thread calls it, with
 * busy false, when nothing has come for a heartbeat. If that thread may be busy for longer, another
 * thread calls it, with busy true, twice in a heartbeat. A busy beat does nothing if something was
 * sent since the last one, and never waits; the server gets an empty record. Negative: broken. */
int fbr_data_client_beat(struct fbr_data_client *u, bool busy);

/* Sends a record (copied); waits while the server does not read, at most timeout_ms: -EAGAIN, and
 * the link is broken then if a part of the record was sent. -EPIPE: broken. */
int fbr_data_client_send(struct fbr_data_client *u, const struct iovec *iov, int n, int timeout_ms);
/* Takes one message if there is one: 1 and its records were handed out, 0 nothing there, negative:
 * the link is broken. By way of a host it is also 0 when records were handed out and nothing
 * else is there. */
int fbr_data_client_recv(struct fbr_data_client *u, fbr_record_fn on_record, void *user);
/* Tells the server now that we hold the last message: the next one may come. Any thread. */
int fbr_data_client_ack(struct fbr_data_client *u);
/* Whether the connection below was lost, and messages perhaps with it. Ask now and then while
 * nothing comes. */
bool fbr_data_client_lost(const struct fbr_data_client *u);
/* Polls readable when there may be a message. */
int fbr_data_client_fd(const struct fbr_data_client *u);

/* From now on nothing is sent by fbr_data_client_send(), and no call waits. Call it before the
 * first message is received. */
void fbr_data_client_never_wait(struct fbr_data_client *u);
/* Sends a record (copied), or queues it while the server does not read. `more`: another record
 * follows at once and travels with this one. 0; 1: something is queued, which
 * fbr_data_client_flush() sends when there is room; -EPIPE: broken; -ENOMEM: the record is missing,
 * so the link is broken now. */
int fbr_data_client_post(struct fbr_data_client *u, const struct iovec *iov, int n, bool more);
/* Sends the queue and the answer that is due, as far as there is room: 0; 1: something is left;
 * negative: broken. */
int fbr_data_client_flush(struct fbr_data_client *u);
/* Queues a record of this stream (mux.h), for fbr_data_client_flush() to send. */
int fbr_data_client_post_to(struct fbr_data_client *u, uint64_t stream, const struct iovec *iov,
                            int n);
/* fbr_mux_crowded() for the records to be sent. */
bool fbr_data_client_crowded(struct fbr_data_client *u, uint64_t stream, size_t most);
/* Returns the stream of the record that fbr_data_client_recv() hands out. */
uint64_t fbr_data_client_stream(const struct fbr_data_client *u);
bool fbr_data_client_ack_due(struct fbr_data_client *u);  /* a message down is not answered yet */
size_t fbr_data_client_queued(struct fbr_data_client *u); /* bytes */
int fbr_data_client_room_fd(
    const struct fbr_data_client *u); /* polls readable when there is room */

#endif
