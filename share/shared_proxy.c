/* shared_proxy.c - what a process has of an object, for all of its handles on it; see
 * shared_proxy.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "share/shared_proxy.h"

#include <errno.h>
#include <string.h>

/* Under share's lock. */
static void unlist(struct fbr_shared_proxy *p)
{
    if (p->listed)
        HASH_DEL(p->share->proxies, p);
    p->listed = false;
    fbr_wipe(&p->key, sizeof(p->key));
    pthread_cond_broadcast(&p->share->idle);
}

/* Under share's lock: the one that a new handle joins. */
static struct fbr_shared_proxy *find(struct fbr_share *s, const struct fbr_shared_proxy_key *key)
{
    struct fbr_shared_proxy *p;

    for (;;) {
        HASH_FIND(hh, s->proxies, key, sizeof(*key), p);
        if (p && p->state == FBR_SHARED_OPEN && fbr_proxy_fails(p->proxy))
            unlist(p);
        else if (!p || p->state == FBR_SHARED_OPEN)
            return p;
        else
            pthread_cond_wait(&s->idle, &s->lock);
    }
}

static int connect_proxy(struct fbr_shared_proxy *p, const struct fbr_address *a,
                         const struct fbr_proxy_ops *ops)
{
    int rc = fbr_proxy_open(&p->proxy, a, ops, p);

    pthread_mutex_lock(&p->share->lock);
    if (rc < 0)
        unlist(p);
    else
        p->state = FBR_SHARED_OPEN;
    pthread_cond_broadcast(&p->share->idle);
    pthread_mutex_unlock(&p->share->lock);
    return rc;
}

int fbr_shared_proxy_open(struct fbr_shared_proxy **out, const struct fbr_address *a,
                          const struct fbr_proxy_ops *ops,
                          struct fbr_shared_proxy *(*make)(struct fbr_share *,
                                                           const struct fbr_address *))
{
    struct fbr_shared_proxy_key key = {.owner = a->owner, .object = a->object};
    struct fbr_share *s = fbr_share();
    struct fbr_shared_proxy *p;
    bool joins;
    int rc = -ENOMEM;

    *out = NULL;
    if (!s)
        return fbr_kept();
    memcpy(key.secret, a->key, sizeof(key.secret));
    pthread_mutex_lock(&s->lock);
    p = find(s, &key);
    joins = p != NULL;
    if (!joins && (p = make(s, a))) {
        p->share = s;
        p->key = key;
        HASH_ADD(hh, s->proxies, key, sizeof(p->key), p);
        p->listed = p->hh.tbl != NULL;
    }
    if (p && p->hh.tbl) {
        p->handles++;
        rc = 0;
    } else if (p) {
        unlist(p);
    }
    pthread_mutex_unlock(&s->lock);
    fbr_wipe(&key, sizeof(key));
    *out = p;
    if (rc < 0)
        return fbr_keep(rc, "share: out of memory");
    return joins ? 0 : connect_proxy(p, a, ops);
}

void fbr_shared_proxy_hold(struct fbr_shared_proxy *p)
{
    pthread_mutex_lock(&p->share->lock);
    p->handles++;
    pthread_mutex_unlock(&p->share->lock);
}

void fbr_shared_proxy_gone(struct fbr_shared_proxy *p)
{
    pthread_mutex_lock(&p->share->lock);
    unlist(p);
    pthread_mutex_unlock(&p->share->lock);
}

bool fbr_shared_proxy_leave(struct fbr_shared_proxy *p)
{
    bool last;

    pthread_mutex_lock(&p->share->lock);
    last = --p->handles == 0; /* no other thread frees it before this point */
    if (last)
        p->state = FBR_SHARED_CLOSING;
    pthread_mutex_unlock(&p->share->lock);
    return last;
}

void fbr_shared_proxy_close(struct fbr_shared_proxy *p)
{
    fbr_proxy_close(p->proxy);
    fbr_shared_proxy_gone(p);
}
