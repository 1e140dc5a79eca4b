/* engine_codec_fuzz.c - what a Docker engine may send: frames, lines, versions; and where we are, and names of images.
 *
 * The first byte says how many bytes come at a time.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "backends/docker/engine_codec.h"

static void on_piece(void *user, int stream, const void *data, size_t len)
{
    size_t *sum = user;

    if (stream < 1 || stream > 2 || len == 0)
        abort();
    *sum += len + ((const uint8_t *)data)[len - 1] % 2;
}

static void on_line(void *user, const struct json_t *j)
{
    size_t *sum = user;

    *sum += (size_t)fbr_docker_code(fbr_json_int(j, 0, "code", NULL));
}

static void play_texts(const char *text)
{
    struct fbr_error err;
    char id[65] = "", use[16], repo[64], tag[64];

    if (fbr_docker_own_id(text, id) && strlen(id) != 64)
        abort();
    if (fbr_docker_version("1.12", text, use, &err) == 0)
        fbr_docker_version(text, "1.44", use, &err);
    fbr_docker_split_image(text, repo, tag, sizeof(repo));
}

static void play_job(char *text)
{
    char *const words[] = {"x", text, NULL};
    const struct fbr_docker_wishes w = {.caps = text, .mounts = text, .network = text};
    const struct fbr_job job = {
        .name = text, .run_uid = "1a2b3c4d", .file = text, .argv = words, .added_env = words};
    char name[FBR_DOCKER_NAME_MAX];
    struct json_t *body;

    fbr_docker_name(&job, name);
    if (strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") !=
        strlen(name))
        abort();
    body = fbr_docker_body(&job, &w, "image", NULL, text);
    if (!body || fbr_json_count(fbr_json_at(body, "Cmd", NULL)) != 1)
        abort();
    fbr_json_free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fbr_docker_frames f = {0};
    struct fbr_json_lines l = {0};
    size_t step, sum = 0;
    char *text;

    if (size == 0)
        return 0;
    step = 1 + data[0];
    data++;
    size--;
    for (size_t at = 0; at < size; at += step)
        if (!fbr_docker_frames(&f, data + at, size - at < step ? size - at : step, on_piece, &sum))
            break;
    for (size_t at = 0; at < size; at += step)
        fbr_json_lines(&l, data + at, size - at < step ? size - at : step, on_line, &sum);
    fbr_buf_fini(&l.line);
    text = calloc(1, size + 1);
    memcpy(text, data, size);
    play_texts(text);
    play_job(text);
    free(text);
    return 0;
}
