/* kube_state_fuzz.c - pods, lists of events and streams of logs from a hostile server.
 *
 * The first byte chooses the size of the pieces that a log comes in.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/http/json.h"
#include "backends/kubernetes/pod_log.h"
#include "backends/kubernetes/pod_state.h"
#include "runtime/proc/backend.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds)
        abort();
}

static void count(void *user, const void *data, size_t len)
{
    size_t *told = user;

    require(data && len);
    *told += len;
}

static void try_log(const uint8_t *data, size_t size, size_t piece)
{
    struct fbr_kube_lines l = {0};
    size_t told = 0, again = 0;

    for (size_t at = 0; at < size; at += piece)
        fbr_kube_lines_add(&l, data + at, size - at < piece ? size - at : piece, count, &told);
    require(told <= size);
    if (!fbr_kube_lines_resume(&l))
        return;
    fbr_kube_lines_add(&l, data, size, count, &again);
    require(again <= size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_t *pod = fbr_json_parse((const char *)data, size, NULL);
    struct fbr_kube_state s;
    char text[64];

    if (pod) {
        fbr_kube_state(&s, pod);
        require(memchr(s.text, '\0', sizeof(s.text)) != NULL);
        require(s.phase <= FBR_KUBE_ENDED && s.wait <= FBR_KUBE_WAIT_NEVER);
        require(s.code == FBR_EXIT_UNKNOWN || (s.code >= -31 && s.code <= 255));
        fbr_kube_newest_event(pod, text, sizeof(text));
        fbr_json_free(pod);
    }
    if (size)
        try_log(data + 1, size - 1, (size_t)data[0] % 64 + 1);
    return 0;
}
