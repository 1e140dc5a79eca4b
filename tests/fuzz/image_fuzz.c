/* image_fuzz.c - names of images: what is taken is safe to put into a path and a document, and is taken again.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/image/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *name = calloc(1, size + 1), again[FBR_IMAGE_NAME_MAX], same[FBR_IMAGE_NAME_MAX];
    char tagged[FBR_IMAGE_NAME_MAX], whole[FBR_IMAGE_NAME_MAX];
    struct fbr_error err = {0, ""};
    const char *colon, *dots;

    if (!name)
        return 0;
    if (size)
        memcpy(name, data, size);
    if (fbr_image_name(name, tagged, whole, &err) < 0) {
        if (!err.text[0])
            abort();
    } else {
        for (const char *c = whole; *c; c++)
            if (*c <= ' ' || *c > '~' || strchr("\"'\\@%&?#", *c))
                abort();
        colon = strrchr(whole, ':');
        dots = strstr(whole, ".."); /* a tag may have them */
        if (!colon || (dots && dots < colon))
            abort();
        if (fbr_image_name(whole, again, same, &err) < 0 || strcmp(again, whole) != 0 ||
            strcmp(same, whole) != 0)
            abort();
    }
    free(name);
    return 0;
}
