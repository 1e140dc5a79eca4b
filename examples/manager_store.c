/* manager_store.c - a manager keeps an account; the workers of a pool share a store.
 * SPDX-License-Identifier: Apache-2.0 */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include "fiber.h"

static void must(int rc) /* on failure: prints why, and ends this process */
{
    if (rc < 0)
        errx(1, "%s", fiber_last_error());
}

static int call_account(void *state, const char *method, const void *in, size_t len,
                        struct fiber_reply *reply)
{
    static int balance; /* this runs in the manager's own process */
    int amount = *(const int *)in;

    (void)state, (void)method, (void)len; /* it has one method, add */
    if (balance + amount < 0)
        return fiber_reply_fail(reply, -ERANGE, "the account has only %d", balance);
    balance += amount;
    return fiber_reply_write(reply, &balance, sizeof(balance));
}

static int visit(const void *in, size_t len,
                 struct fiber_reply *reply) /* in a worker; in: the store's address */
{
    static struct fiber_store *store; /* one connection for all tasks of this worker */

    (void)len, (void)reply;
    if (!store)
        must(fiber_store_connect(&store, in));
    return fiber_store_add(store, "visits", 1, NULL);
}

int main(int argc, char **argv)
{
    const struct fiber_class account = {.size = sizeof(account), .call = call_account};
    struct fiber_address address[20];
    struct fiber_manager *manager;
    struct fiber_store *store;
    struct fiber_pool *pool;
    struct fiber_bytes out;
    int64_t visits;

    must(fiber_init(&argc, &argv));
    must(fiber_manager_start(&manager, &account, NULL, 0, NULL));
    must(fiber_manager_call(manager, "add", &(int){100}, sizeof(int), &out, -1));
    printf("the account has %d\n", *(int *)out.data);
    if (fiber_manager_call(manager, "add", &(int){-500}, sizeof(int), NULL, -1) == -ERANGE)
        printf("it cannot give 500: %s\n", fiber_last_error());
    must(fiber_store_start(&store, NULL));
    must(fiber_pool_open(&pool, NULL));
    for (int i = 0; i < 20; i++)
        must(fiber_store_address(store, &address[i]));
    must(fiber_pool_map(pool, visit, address, sizeof(address[0]), NULL, 0, 20, NULL));
    must(fiber_store_add(store, "visits", 0, &visits));
    printf("20 tasks made %d visits\n", (int)visits);
    return 0;
}
