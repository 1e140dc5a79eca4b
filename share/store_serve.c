/* store_serve.c - the process of a store: all requests go straight into the engine.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "share/service_process.h"
#include "share/store_engine.h"

struct keeping {
    struct fbr_rpc_service service;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t changed;
    struct fbr_store_engine *engine;
    bool closing;
};

static void answer(void *user, uint64_t peer, uint64_t call, int code, const void *bytes,
                   size_t len)
{
    struct keeping *k = user;

    fbr_service_answer(&k->service, peer, call, code, bytes, len);
}

static void on_call(void *user, uint64_t peer, uint64_t call, const void *bytes, size_t len)
{
    struct keeping *k = user;
    struct fbr_cur c = fbr_cur(bytes, len);

    pthread_mutex_lock(&k->lock);
    fbr_store_request(k->engine, peer, call, &c);
    pthread_mutex_unlock(&k->lock);
}

static void on_cancel(void *user, uint64_t peer, uint64_t call)
{
    struct keeping *k = user;

    pthread_mutex_lock(&k->lock);
    fbr_store_cancel(k->engine, peer, call);
    pthread_mutex_unlock(&k->lock);
}

static void on_gone(void *user, uint64_t peer)
{
    struct keeping *k = user;

    pthread_mutex_lock(&k->lock);
    fbr_store_peer_gone(k->engine, peer);
    pthread_mutex_unlock(&k->lock);
}

static void on_close(void *user)
{
    struct keeping *k = user;

    pthread_mutex_lock(&k->lock);
    k->closing = true;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
}

static const struct fbr_rpc_service_ops service_ops = {
    .on_call = on_call, .on_cancel = on_cancel, .on_gone = on_gone, .on_close = on_close};

int fbr_store_main(const void *arg, size_t len)
{
    struct keeping k = {.service = {.ops = &service_ops, .user = &k}};

    pthread_mutex_init(&k.lock, NULL);
    fbr_cond_init(&k.changed);
    k.engine = fbr_store_engine_open(answer, &k, fbr_rt() ? fbr_held_limit(&fbr_rt()->held) : 0);
    if (!k.engine)
        fbr_service_process_exit(1, "out of memory");
    if (fbr_service_open(&k.service) < 0 ||
        fbr_service_process_announce(&k.service, FBR_KIND_STORE) < 0)
        fbr_service_process_exit(1, fiber_last_error());
    pthread_mutex_lock(&k.lock);
    while (!k.closing)
        fbr_cond_wait(&k.changed, &k.lock, UINT64_MAX);
    pthread_mutex_unlock(&k.lock);
    fbr_service_close(&k.service);
    fbr_store_engine_close(k.engine);
    fbr_service_process_exit(0, "");
}
