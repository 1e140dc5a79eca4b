/* stack_fuzz.c - records of processes, from a job or from fiber-stack; what could be read is written and read again,
 * and must be the same. The texts of /proc likewise.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "runtime/inspect/stack.h"

static void check_records(const uint8_t *data, size_t size)
{
    struct fbr_cur c = fbr_cur(data, size), in;
    struct fbr_stack_process p, again;
    struct fbr_buf a, b;
    int rc;

    while ((rc = fbr_stack_get(&c, &p)) > 0) {
        fbr_buf_init(&a);
        fbr_buf_init(&b);
        fbr_stack_put(&a, &p);
        in = fbr_cur(a.data, a.len);
        if (a.failed || fbr_stack_get(&in, &again) != 1 || fbr_cur_left(&in))
            abort();
        fbr_stack_put(&b, &again);
        if (a.len != b.len || memcmp(a.data, b.data, a.len) != 0)
            abort();
        fbr_stack_take_frames(&p, &again);
        fbr_buf_fini(&a);
        fbr_buf_fini(&b);
        fbr_stack_fini(&p);
        fbr_stack_fini(&again);
    }
    if (p.threads)
        abort();
}

static void check_texts(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), call[32];
    struct fbr_stack_stat s;

    if (!text)
        return;
    memcpy(text, data, size);
    text[size] = '\0';
    if (fbr_stack_stat(text, &s) && (!s.state || strlen(s.name) >= sizeof(s.name)))
        abort();
    fbr_stack_call(text, call, sizeof(call));
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_records(data, size);
    check_texts(data, size);
    return 0;
}
