/* cleanup.c - removes a run's objects from the cluster when the program ends.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/kubernetes/cleanup.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLOSE_MS 10000
#define AGAIN_MS 1000
/* For the first answers; doubles each time, for a server that is only slow. */
#define FIRST_MS 2000

struct fbr_kube_removal {
    struct fbr_kube_api *a;
    size_t left; /* requests of the last round without an answer */
    /* refused: for our credentials; passing: another try may get a better answer; back: a server
     * that was away answers again */
    bool refused, passing, back;
    char *out;
    size_t size;
};

static void on_answer(void *user, const struct fbr_http_answer *a)
{
    struct fbr_kube_last *one = user;
    struct fbr_kube_removal *all = one->all;
    char text[512];

    one->gone = a->status == 404 || (a->status >= 200 && a->status < 300);
    if (one->gone)
        return;
    all->left++;
    all->refused |= a->status == 401;
    if (a->status == 0)
        all->a->away_at = fbr_now_ms();
    else
        all->back |= fbr_kube_just_started(all->a);
    all->passing |= fbr_kube_is_passing(all->a, a);
    snprintf(all->out, all->size, "%s", fbr_http_describe(a, text, sizeof(text)));
}

/* Deletes the remaining objects, once. */
static void send_all(struct fbr_kube_removal *all, struct fbr_kube_last *list,
                     struct fbr_http_request *requests, size_t n, uint64_t ms)
{
    size_t k = 0;

    for (size_t i = 0; i < n; i++)
        if (!list[i].gone)
            requests[k++] = (struct fbr_http_request){.method = "DELETE",
                                                      .path = list[i].path,
                                                      .body = list[i].body,
                                                      .len = strlen(list[i].body),
                                                      .done = on_answer,
                                                      .user = &list[i]};
    all->left = 0;
    all->refused = all->passing = false;
    all->out[0] = '\0';
    fbr_http_now(all->a->calls, requests, k, ms);
}

size_t fbr_kube_last_remove(struct fbr_kube_api *a, struct fbr_kube_last *list, size_t n, char *out,
                            size_t size)
{
    struct fbr_http_request *requests = calloc(n + 1, sizeof(*requests));
    struct fbr_kube_removal all = {.a = a, .left = n, .out = out, .size = size};
    uint64_t begin = fbr_now_ms(), until = begin + CLOSE_MS, patience = FIRST_MS, now, rest;
    bool again = requests, renewed = false;

    snprintf(out, size, again ? "" : "out of memory");
    for (size_t i = 0; i < n; i++)
        list[i].all = &all;
    while (again) {
        now = fbr_now_ms();
        rest = now + AGAIN_MS < until ? until - now : AGAIN_MS;
        send_all(&all, list, requests, n, patience < rest ? patience : rest);
        patience *= 2;
        if (all.back)
            until = begin + FBR_KUBE_STARTING_MS;
        again = all.left && fbr_now_ms() + AGAIN_MS < until;
        if (again && all.refused && !renewed)
            renewed = again = fbr_kube_creds_renew(a->creds, CLOSE_MS) || all.passing;
        else if (again && all.passing)
            poll(NULL, 0, AGAIN_MS);
        else
            again = false;
    }
    free(requests);
    return all.left;
}
