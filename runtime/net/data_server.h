/* data_server.h - the serving side of the data channel: one socket, one thread, a link for each
 * peer.
 *
 * Messages to a peer go in strict alternation: the next one leaves when the peer has said that it
 * holds the last one; what is sent meanwhile waits, and then travels together. So a link is slow
 * for nobody but its own peer. Messages from a peer may come at any time. Over TCP the first one,
 * which proves who it is, is answered at once, and so is a beat when nothing else was sent for half
 * a heartbeat.
 *
 * A link over ipc:// is in a directory that only our user can enter. Its peer's end is told on the
 * control channel, and the end of its connection breaks nothing. A link over TCP must be sealed; it
 * belongs to the connection by which its first message came, and breaks when
 *
 *  - that connection ends, unless its owner closes it within a heartbeat: an orderly end of the
 *    peer is told on the control channel;
 *  - the peer's host has answered nothing for beat_ms x misses (fbr_tcp_patience);
 *  - nothing has come for about as long, not even a beat, which the calling side sends when it has
 *    nothing else to say (fbr_data_client_beat);
 *  - the peer has not got a message that was sent so long ago, or an answer to a beat that is a
 *    heartbeat younger, and waits (as its next beats tell). So a way down that is stalled ends the
 *    link though nobody has anything to send; its owner then hangs up on the peer, which may hear
 *    of it only there.
 *
 * Time in which this process did not run does not count.
 *
 * Threads: records are handed out on the data server's thread; everything else may be called from
 * any thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_DATA_SERVER_H
#define FBR_DATA_SERVER_H

#include "runtime/base/error.h"
#include "runtime/net/mux.h"

struct fbr_data_server;
struct fbr_link;

struct fbr_link_ops {
    /* Takes one record, valid during the call. */
    void (*on_record)(void *user, struct fbr_link *link, const void *record, size_t len);
    /* The link is broken: nothing more comes from it. Reasons: a forged, damaged or missing
     * message, a record above the limit, a long record of a stream that never had a branch, a
     * connection that ended or fell silent. */
    void (*on_broken)(void *user, struct fbr_link *link, int why);
};

struct fbr_data_server_options {
    size_t limit;             /* longest record that is taken from a peer */
    unsigned beat_ms, misses; /* of tcp://; 0: wait for a silent peer without limit */
    bool own_user;            /* tcp://: callers on this host must be of our user */
    struct fbr_held *held;    /* counts what peers make us keep; may be NULL */
};

/* Binds url: "ipc:///path", "tcp://address:port", "tcp://[address]:port" (port 0: any). */
int fbr_data_server_open(struct fbr_data_server **h, const char *url,
                         const struct fbr_data_server_options *options, struct fbr_error *err);
const char *fbr_data_server_url(const struct fbr_data_server *h); /* with the actual port */
/* how often a peer must send something; 0: never */
unsigned fbr_data_server_beat_ms(const struct fbr_data_server *h);
bool fbr_data_server_here(
    const struct fbr_data_server *h); /* whether this is the data server's thread. NULL: no */
void fbr_data_server_close(struct fbr_data_server *h); /* all links must be closed. NULL is fine */

/* A new link under a random id (fbr_link_id); keys NULL: not sealed. */
int fbr_link_open(struct fbr_link **l, struct fbr_data_server *h, const struct fbr_link_ops *ops,
                  void *user);
/* Opens a link to a process behind the peer of `trunk`, which relays. Records of the branch travel
 * on the trunk, as this stream (mux.h). When the trunk breaks, the branch breaks too; its own
 * on_broken is never called. on_dry: nothing more comes from the process, as its host has said;
 * called on the data server's thread. The branch may be closed before or after the trunk; records
 * that come for a closed branch are dropped. */
int fbr_link_branch(struct fbr_link **l, struct fbr_link *trunk, uint64_t stream,
                    const struct fbr_link_ops *ops, void *user, void (*on_drained)(void *user),
                    void *dry_user);
uint64_t fbr_link_id(const struct fbr_link *l);
/* Seals the link. Call it before the peer learns of the link. */
int fbr_link_seal(struct fbr_link *l, const struct fbr_keys *keys);
/* Sends a record (copied). -EPIPE when the link is broken. */
int fbr_link_send(struct fbr_link *l, const struct iovec *iov, int n);
size_t fbr_link_queued(struct fbr_link *l); /* bytes that wait for the peer */
/* Closes the link. No callback of the link runs or comes after this call, which may come from
 * within a callback. NULL is fine. */
void fbr_link_close(struct fbr_link *l);

#endif
