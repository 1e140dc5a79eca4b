/* tcpstore_priv.h - the keys of the service "tcpstore" with their values, queues, and the
 * connections that wait for them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_TCPSTORE_PRIV_H
#define FBR_TCPSTORE_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HASH_NONFATAL_OOM 1 /* an entry that could not be added has hh.tbl NULL */
#include <uthash.h>
#include <utlist.h>

#include "mpi_bridge/service.h"
#include "mpi_bridge/tcpstore.h"
#include "runtime/base/buf.h"

enum { FBR_TCP_STOP_WAITING = 0, FBR_TCP_WAIT_CANCELED = 1 };

struct fbr_tcp_text {
    const void *data;
    size_t len;
};

struct fbr_tcp_value {
    size_t len;
    struct fbr_tcp_value *prev, *next; /* in a queue */
    char data[];
};

struct fbr_tcp_entry;

/* A connection waits for a key. */
struct fbr_tcp_wait {
    struct fbr_service_conn *conn;
    struct fbr_tcp_entry *entry;
    struct fbr_tcp_wait *prev, *next;           /* list of the entry */
    struct fbr_tcp_wait *conn_prev, *conn_next; /* list of the connection */
};

/* A key: it has a value, a queue, or a connection that waits for it. */
struct fbr_tcp_entry {
    UT_hash_handle hh;
    struct fbr_tcp_value *value; /* NULL: not set */
    struct fbr_tcp_value *queue;
    int64_t queued;
    struct fbr_tcp_wait *waits;
    size_t key_len;
    char key[];
};

enum fbr_tcp_dialect { FBR_TCP_UNKNOWN, FBR_TCP_FIRST, FBR_TCP_SECOND };

struct fbr_service_conn {
    struct fbr_service *service;
    void *peer;
    enum fbr_tcp_dialect dialect;
    bool bad; /* the service hangs up on it */
    struct fbr_buf in;
    struct fbr_tcp_wait *waits;
    size_t awaited; /* keys of WAIT that have not come yet */
};

struct fbr_service {
    const struct fbr_service_host *host;
    struct fbr_tcp_entry *entries;
    int64_t keys; /* keys that have a value */
    uint64_t memory;
    struct fbr_buf out;
};

/* Adds to the memory in use, and returns true, unless that is too much. */
bool fbr_tcp_charge(struct fbr_service *s, uint64_t bytes);
/* NULL: without memory, or the value is too much. */
struct fbr_tcp_value *fbr_tcp_value_new(struct fbr_service *s, const void *data, size_t len);
void fbr_tcp_value_free(struct fbr_service *s, struct fbr_tcp_value *v);

struct fbr_tcp_entry *fbr_tcp_find(struct fbr_service *s, struct fbr_tcp_text key);
struct fbr_tcp_entry *fbr_tcp_find_or_add(struct fbr_service *s, struct fbr_tcp_text key);
/* Removes a key that has nothing any more. */
void fbr_tcp_drop_if_empty(struct fbr_service *s, struct fbr_tcp_entry *e);

/* Send an answer: a number, or the bytes that were put into s->out before. */
void fbr_tcp_reply_u8(struct fbr_service *s, struct fbr_service_conn *c, uint8_t v);
void fbr_tcp_reply_i64(struct fbr_service *s, struct fbr_service_conn *c, int64_t v);
void fbr_tcp_out_text(struct fbr_service *s, const void *data, size_t len);
/* NULL: an empty value */
void fbr_tcp_out_value(struct fbr_service *s, const struct fbr_tcp_value *v);
void fbr_tcp_reply_out(struct fbr_service *s, struct fbr_service_conn *c);

/* Makes c wait for e. */
bool fbr_tcp_wait_add(struct fbr_service *s, struct fbr_service_conn *c, struct fbr_tcp_entry *e);
void fbr_tcp_stop_waiting(struct fbr_service *s, struct fbr_service_conn *c);
/* The key has come: wakes all connections that wait for it, or the first of them. */
void fbr_tcp_wake(struct fbr_service *s, struct fbr_tcp_entry *e, bool all);

#endif
