/* data_server.h - the server of the data channel: one socket, one thread, and a link for each peer.
 *
 * Messages to a peer strictly alternate with acknowledgements: the next message leaves when the
 * peer has acknowledged the last one. Records that are sent meanwhile wait, and then travel
 * together. So a slow peer slows only its own link. Messages from a peer may arrive at any time.
 * Over TCP the first one, which proves the peer's identity, is answered at once, and so is a beat
 * when nothing else was sent for half a heartbeat.
 *
 * A link over a unix socket is in a directory that only our user can enter. The control channel
 * reports the end of its peer, and the end of its connection breaks nothing. A link over TCP must
 * be encrypted. It belongs to the connection on which its first message arrived, and breaks when
 *
 *  - that connection ends, unless the owner of the link closes the link within a heartbeat: the
 *    control channel reports an orderly end of the peer;
 *  - the peer's host has answered nothing for beat_ms x misses (fbr_tcp_patience);
 *  - nothing has arrived for about as long, not even a beat, which the client sends when it has
 *    nothing else to send (fbr_data_client_beat);
 *  - the peer waits (as its beats show), and has not acknowledged a message that was sent as long
 *    ago, or an answer to a beat that was sent one heartbeat less ago. So a stalled path to the
 *    peer breaks the link although there is nothing to send. The owner of the link then hangs up on
 *    the peer, which may learn of the end only from that.
 *
 * Time in which this process did not run does not count.
 *
 * Threads: on_record runs on the data server's thread. Any thread may call all functions here.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/error.h"
#include "runtime/net/mux.h"

struct fbr_data_server;
struct fbr_link;

struct fbr_link_ops {
    /* Handles one record, which is valid during the call. NULL: records are dropped. */
    void (*on_record)(void *user, struct fbr_link *link, const void *record, size_t len);
    /* The link is broken: no more records come from it. Reasons: a forged, damaged or missing
     * message, a record above the limit, a long record of a stream that never had a branch, a
     * connection that ended or fell silent. */
    void (*on_broken)(void *user, struct fbr_link *link, int why);
};

struct fbr_data_server_options {
    size_t limit;             /* longest record accepted from a peer */
    unsigned beat_ms, misses; /* for tcp://; 0: wait for a silent peer without limit */
    bool own_user;            /* tcp://: callers on this host must have our user id */
    struct fbr_held *held;    /* counts what peers make us keep; may be NULL */
};

/* Binds url: "unix:/path", "tcp://address:port", "tcp://[address]:port" (port 0: any). */
int fbr_data_server_open(struct fbr_data_server **h, const char *url,
                         const struct fbr_data_server_options *options, struct fbr_error *err);
const char *fbr_data_server_url(const struct fbr_data_server *h); /* with the actual port */
/* How often a peer must send something, in ms; 0: never. */
unsigned fbr_data_server_beat_ms(const struct fbr_data_server *h);
/* Whether the caller is the data server's thread; false for NULL. */
bool fbr_data_server_here(const struct fbr_data_server *h);
/* All links must be closed. NULL is fine. */
void fbr_data_server_close(struct fbr_data_server *h);

/* Opens a new link with a random id (fbr_link_id). It has no encryption until fbr_link_seal(). */
int fbr_link_open(struct fbr_link **l, struct fbr_data_server *h, const struct fbr_link_ops *ops,
                  void *user);
/* Opens a link to a process behind the peer of `trunk`, which relays. Records of the branch travel
 * on the trunk, as this stream (mux.h). If the trunk breaks, the branch breaks too; the branch's
 * own on_broken is never called. on_drained: the process's host reports that no more records come
 * from the process; called on the data server's thread. The branch may be closed before or after
 * the trunk; records that arrive for a closed branch are dropped. */
int fbr_link_branch(struct fbr_link **l, struct fbr_link *trunk, uint64_t stream,
                    const struct fbr_link_ops *ops, void *user, void (*on_drained)(void *user),
                    void *drained_user);
uint64_t fbr_link_id(const struct fbr_link *l);
/* Encrypts the link from now on. Call this before the peer learns of the link. */
int fbr_link_seal(struct fbr_link *l, const struct fbr_keys *keys);
/* Sends a record (copied). -EPIPE: the link is broken. */
int fbr_link_send(struct fbr_link *l, const struct iovec *iov, int n);
size_t fbr_link_queued(struct fbr_link *l); /* bytes that wait to be sent to the peer */
/* Closes the link. No callback of the link runs after this call. A callback may call it for its own
 * link. NULL is fine. */
void fbr_link_close(struct fbr_link *l);
