/* crypto_lazy.c - opens OpenSSL for the shared library on first use, as a module.
 *
 * Loading libssl and libcrypto takes longer than loading all other libraries of a worker together,
 * and a worker on a unix socket needs neither. So libfiber.so has these functions instead of tls.c
 * and aead.c; each calls the function of the same name in the module crypto.so (module.h), which is
 * built from those files. The static library has tls.c and aead.c built in.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/program/module.h"
#include "runtime/net/aead.h"
#include "runtime/net/tls.h"

/* All of them are looked up at once: dlsym() waits while another thread loads a library, which may
 * take minutes (`import torch` from a shared file system), and the loop thread, which sends the
 * heartbeats, must not wait for that. */
#define FUNCTIONS(DO)    \
    DO(fbr_tls_client)   \
    DO(fbr_tls_server)   \
    DO(fbr_tls_free)     \
    DO(fbr_tls_step)     \
    DO(fbr_tls_feed)     \
    DO(fbr_tls_ready)    \
    DO(fbr_tls_proven)   \
    DO(fbr_tls_identity) \
    DO(fbr_tls_read)     \
    DO(fbr_tls_write)    \
    DO(fbr_tls_pending)  \
    DO(fbr_tls_export)   \
    DO(fbr_aead_init)    \
    DO(fbr_aead_fini)    \
    DO(fbr_aead_encrypt) \
    DO(fbr_aead_decrypt)

#define MEMBER(name) __typeof__(name) *name;
static struct {
    FUNCTIONS(MEMBER)
} module; /* NULLs: the module could not be opened; `why` has the reason */
static struct fbr_error why;

static void open_module(void)
{
    void *handle = fbr_module_open("crypto", &why);

    if (!handle) {
        fbr_log_error("%s", why.text);
        return;
    }
#define FIND(name) module.name = (__typeof__(name) *)dlsym(handle, #name);
    FUNCTIONS(FIND)
}

static bool opened(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, open_module);
    return module.fbr_tls_client;
}

int fbr_tls_client(struct fbr_tls **out, const char *identity, const uint8_t psk[FBR_KEY_SIZE],
                   struct fbr_error *err)
{
    return opened() ? module.fbr_tls_client(out, identity, psk, err)
                    : fbr_fail(err, -ENOENT, "%s", why.text);
}

int fbr_tls_server(struct fbr_tls **out, fbr_tls_lookup_fn *lookup, void *user,
                   struct fbr_error *err)
{
    return opened() ? module.fbr_tls_server(out, lookup, user, err)
                    : fbr_fail(err, -ENOENT, "%s", why.text);
}

int fbr_aead_init(struct fbr_aead *s, enum fbr_aead_way way, enum fbr_aead_alg alg,
                  const uint8_t key[FBR_KEY_SIZE], const void *aad, size_t aad_len)
{
    memset(s, 0, sizeof(*s));
    return opened() ? module.fbr_aead_init(s, way, alg, key, aad, aad_len) : -ENOENT;
}

/* Callers pass to the functions below only objects that the functions above have made, or zeros.
 * Every connection ends with such a call; for zeros the module is not opened. */

void fbr_tls_free(struct fbr_tls *t)
{
    if (t)
        module.fbr_tls_free(t);
}

void fbr_aead_fini(struct fbr_aead *s)
{
    if (s->ctx)
        module.fbr_aead_fini(s);
}

/* Defines a function that returns what the module's function returns. */
#define FORWARD(type, name, parameters, arguments) \
    type name parameters                           \
    {                                              \
        return module.name arguments;              \
    }

FORWARD(int, fbr_tls_step, (struct fbr_tls * t, struct fbr_error *err), (t, err))
FORWARD(int, fbr_tls_feed,
        (struct fbr_tls * t, const void *bytes, size_t len, struct fbr_error *err),
        (t, bytes, len, err))
FORWARD(bool, fbr_tls_ready, (const struct fbr_tls *t), (t))
FORWARD(bool, fbr_tls_proven, (const struct fbr_tls *t), (t))
FORWARD(const char *, fbr_tls_identity, (const struct fbr_tls *t), (t))
FORWARD(int, fbr_tls_read, (struct fbr_tls * t, struct fbr_buf *plain, struct fbr_error *err),
        (t, plain, err))
FORWARD(int, fbr_tls_write,
        (struct fbr_tls * t, const void *bytes, size_t len, struct fbr_error *err),
        (t, bytes, len, err))
FORWARD(int, fbr_tls_pending, (struct fbr_tls * t, struct fbr_buf *cipher), (t, cipher))
FORWARD(int, fbr_tls_export,
        (struct fbr_tls * t, const char *label, const void *context, size_t context_len, void *out,
         size_t outlen),
        (t, label, context, context_len, out, outlen))
FORWARD(int, fbr_aead_encrypt,
        (struct fbr_aead * s, uint64_t *counter, const void *in, size_t len, void *out),
        (s, counter, in, len, out))
FORWARD(int, fbr_aead_decrypt,
        (struct fbr_aead * s, uint64_t counter, const void *in, size_t len, void *out),
        (s, counter, in, len, out))
