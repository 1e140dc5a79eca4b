/* docker_login_fuzz.c - files of logins and what helpers print, from hostile text. The first line is the image.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/docker/login.h"
#include "backends/image/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds)
        abort();
}

static void try_header(const struct fbr_docker_login *l, const char *registry)
{
    char *header = fbr_docker_login_header(l, registry);

    require(header && !strpbrk(header, "\r\n"));
    free(header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(1, size + 1), *rest, registry[FBR_DOCKER_REGISTRY_MAX];
    struct fbr_error err = {0, ""};
    struct fbr_docker_login l;
    struct json_t *j;
    size_t len;
    int rc;

    memcpy(text, data, size);
    rest = strchr(text, '\n');
    rest = rest ? rest : text + strlen(text);
    if (*rest)
        *rest++ = '\0';
    len = size - (size_t)(rest - text);
    fbr_docker_registry(text, registry);
    require(registry[0] && !strchr(registry, '/'));
    fbr_image_refused(rest);
    j = fbr_json_parse(rest, len, &err);
    rc = j ? fbr_docker_login_find(&l, j, text, &err) : 0;
    if (rc > 0) {
        require(l.helper || l.token || l.user);
        require(!l.helper || !strchr(l.helper, '/'));
        try_header(&l, registry);
        fbr_docker_login_fini(&l);
    } else {
        require(rc == 0 || err.text[0]);
    }
    fbr_json_free(j);
    if (fbr_docker_login_parse(&l, rest, len, &err) == 0) {
        require(l.token || l.user);
        try_header(&l, registry);
        fbr_docker_login_fini(&l);
    }
    free(text);
    return 0;
}
