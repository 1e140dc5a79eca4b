/* http_priv.h - the state of the HTTP client, which http.c (the line, the loop) and http_attempt.c
 * (one attempt) share.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <curl/curl.h>

#include "backends/http/http.h"
#include "runtime/base/buf.h"

/*     WAITING    for its turn, or for the end of a pause before a repetition
 *     RUNNING    libcurl has it
 *     ENDED      answered or cancelled; freed when libcurl has released it */
enum fbr_http_state { FBR_HTTP_WAITING, FBR_HTTP_RUNNING, FBR_HTTP_ENDED };

struct fbr_http_call {
    struct fbr_http_call *next, *prev;
    struct fbr_http *h;
    CURL *easy;
    struct curl_slist *headers;
    enum fbr_http_state state;
    struct fbr_http_request r; /* with a copy of its body */
    char *url;
    int64_t body_at;            /* position in body_fd at which the body begins */
    uint64_t until, not_before; /* clock of fbr_now_ms() */
    unsigned attempts;
    struct fbr_buf answer;
    char why[CURL_ERROR_SIZE];
    bool paused, resume, too_long;
    bool headed; /* all headers of this attempt's answer have arrived */
};

struct fbr_http {
    struct fbr_loop *loop;
    CURLM *multi;
    /* timer: libcurl's; later: ours, for repetitions and the requests of callbacks */
    struct fbr_timer timer, later;
    struct fbr_http_call *calls;
    unsigned running; /* streams not counted */
    int inside;       /* depth of calls inside libcurl */
    bool blind;       /* a socket that libcurl waits for is not watched, for lack of memory */
    const struct fbr_http_options *o;
    unsigned parallel;
    char *renamed; /* the URL with the name of the server; NULL: that of `o` */
    char connect_to[512];
    struct curl_slist connect_to_list; /* for connect_to, while requests run */
    struct fbr_http_stats stats;
};

struct fbr_http_call *fbr_http_make(struct fbr_http *h, const struct fbr_http_request *r);
void fbr_http_free(struct fbr_http_call *c);
/* Adds the call to `multi`. Negative: libcurl has no memory for it. */
int fbr_http_begin(struct fbr_http_call *c, CURLM *multi);
void fbr_http_detach(struct fbr_http_call *c, CURLM *multi);
/* Fills *a with the result of an attempt that libcurl has ended with `code`; the call owns the
 * texts. */
void fbr_http_answer(struct fbr_http_call *c, CURLcode code, struct fbr_http_answer *a);
