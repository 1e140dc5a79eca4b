/* data_client.h - the client of a data link: one socket to one data server (data_server.h).
 *
 * Messages go down from the server and up from the client. The client acknowledges each message
 * down, so that the next one can arrive while the program works on this one. The acknowledgement
 * travels with the next record that is sent, or leaves in fbr_data_client_ack(), or in the next
 * fbr_data_client_recv().
 *
 * A program that must not wait for a server that does not read sends only with
 * fbr_data_client_post(), which queues. Then the receiving thread calls fbr_data_client_flush()
 * when there is room, and the acknowledgement leaves with the next posted record, or in
 * fbr_data_client_flush(): a program that answers at once sends one message instead of two.
 *
 * Threads: any thread may send; one thread receives and flushes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/error.h"
#include "runtime/net/mux.h"

struct fbr_data_client;

/* Opens a link. keys NULL: no encryption. Sends the first message up, which shows the server how to
 * reach us; over TCP it reconnects until the server has answered. -ETIMEDOUT: for timeout_ms there
 * was no server, or no answer. */
int fbr_data_client_open(struct fbr_data_client **u, const char *url, uint64_t link,
                         const struct fbr_keys *keys, size_t limit, int timeout_ms,
                         struct fbr_error *err);
/* Opens a link through our job's host process over this socket, which the link owns from then on
 * (relay.h). Such a link has no numbers, encryption or acknowledgements. Do not call
 * fbr_data_client_never_wait() and the functions below it on such a link. */
int fbr_data_client_open_local(struct fbr_data_client **u, int fd, size_t limit,
                               struct fbr_error *err);
bool fbr_data_client_is_local(const struct fbr_data_client *u);
void fbr_data_client_close(struct fbr_data_client *u); /* NULL is fine */

/* From now on a long record of a stream breaks the link: for a process that relays for no other.
 * Call this before the first message is received. */
void fbr_data_client_no_streams(struct fbr_data_client *u);

/* Sets the heartbeats. `server_ms`: how often the server expects to hear from us (data_server.h).
 * 0: never; then only our own heartbeat counts. Over TCP the connection is lost when the server's
 * host has answered nothing for several heartbeats. This takes long, because the server may have
 * been stopped for a while, and has other means to end us. */
void fbr_data_client_heartbeat(struct fbr_data_client *u, unsigned server_ms, int beat_ms,
                               int misses);
/* the shorter of the two heartbeats */
int fbr_data_client_beat_ms(const struct fbr_data_client *u);
/* Reports to the server that we are alive, in case nothing else is sent. The receiving thread calls
 * this, with busy false, when nothing has arrived for a heartbeat. If that thread may be busy for
 * longer, another thread calls this, with busy true, twice per heartbeat. A busy beat never waits,
 * and does nothing if something was sent since the last busy beat; otherwise the server gets an
 * empty record. Negative: the link is broken. */
int fbr_data_client_beat(struct fbr_data_client *u, bool busy);

/* Sends a record (copied); waits as long as the server does not read. -EPIPE: the link broke. */
int fbr_data_client_send(struct fbr_data_client *u, const struct iovec *iov, int n);
/* Takes one message if there is one. 1: its records were passed to on_record. 0: there is none.
 * Negative: the link is broken. On a local link (through a host process), 0 may also mean that
 * records were passed on and no more have arrived. */
int fbr_data_client_recv(struct fbr_data_client *u, fbr_record_fn on_record, void *user);
/* Acknowledges the last message now, so that the server may send the next one. Any thread. */
int fbr_data_client_ack(struct fbr_data_client *u);
/* Whether the connection was lost, perhaps with messages. Check this from time to time while
 * nothing arrives. */
bool fbr_data_client_lost(const struct fbr_data_client *u);
/* Returns a descriptor that polls readable when there may be a message. */
int fbr_data_client_fd(const struct fbr_data_client *u);

/* From now on no call waits, and the program must not call fbr_data_client_send(). Call this before
 * the first message is received. */
void fbr_data_client_never_wait(struct fbr_data_client *u);
/* Sends a record (copied), or queues it while the server does not read. `more`: another record
 * follows at once and travels with this one. 0: sent. 1: something is queued, and
 * fbr_data_client_flush() sends it when there is room. -EPIPE: the link is broken. -ENOMEM: the
 * record is missing, so the link is now broken. */
int fbr_data_client_post(struct fbr_data_client *u, const struct iovec *iov, int n, bool more);
/* Sends the queue and the acknowledgement that is due, as far as there is room. 0: all was sent. 1:
 * something is left. Negative: the link is broken. */
int fbr_data_client_flush(struct fbr_data_client *u);
/* Queues a record of this stream (mux.h), for fbr_data_client_flush() to send. */
int fbr_data_client_post_to(struct fbr_data_client *u, uint64_t stream, const struct iovec *iov,
                            int n);
/* fbr_mux_crowded() for the records that wait to be sent. */
bool fbr_data_client_crowded(struct fbr_data_client *u, uint64_t stream, size_t most);
/* Returns the stream of the record that fbr_data_client_recv() is passing on. */
uint64_t fbr_data_client_stream(const struct fbr_data_client *u);
/* a message down is not acknowledged yet */
bool fbr_data_client_ack_due(struct fbr_data_client *u);
size_t fbr_data_client_queued(struct fbr_data_client *u); /* bytes */
/* Returns a descriptor that polls readable when there is room to send. */
int fbr_data_client_room_fd(const struct fbr_data_client *u);
