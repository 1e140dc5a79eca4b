/* replay.c - a main() for fuzzers where there is no libFuzzer: runs the kept corpus.
 *
 *     <unit>_fuzz <file or folder>...
 *
 * Each input is run as it is, and so is every shorter beginning of it (of a long input, the first
 * PREFIXES ones): a message that was cut off is what a parser most often gets wrong. Each run has
 * its own exact allocation, so that AddressSanitizer sees a read behind the end. A folder that does
 * not exist is an empty corpus.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIXES 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t inputs, runs;

static void run_once(const uint8_t *data, size_t size)
{
    uint8_t *copy = calloc(1, size ? size : 1);

    if (!copy)
        abort();
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    runs++;
}

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    long size = f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    uint8_t *data = size >= 0 ? malloc((size_t)size + 1) : NULL;
    int rc = -errno;

    if (data) {
        rewind(f);
        rc = fread(data, 1, (size_t)size, f) == (size_t)size ? 0 : -EIO;
    }
    if (f)
        fclose(f);
    for (size_t n = 0; rc == 0 && n < (size_t)size && n < PREFIXES; n++)
        run_once(data, n);
    if (rc == 0)
        run_once(data, (size_t)size);
    free(data);
    inputs++;
    return rc;
}

static int run_folder(const char *path)
{
    struct dirent *e;
    DIR *dir = opendir(path);
    char file[4096];
    int rc = 0;

    if (!dir)
        return errno == ENOENT ? 0 : -errno;
    while (!rc && (e = readdir(dir))) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
        rc = run_file(file);
    }
    closedir(dir);
    return rc;
}

int main(int argc, char **argv)
{
    run_once((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        int rc = run_folder(argv[i]);

        if (rc == -ENOTDIR)
            rc = run_file(argv[i]);
        if (rc) {
            fprintf(stderr, "%s: %s\n", argv[i], strerror(-rc));
            return 1;
        }
    }
    printf("%zu inputs, %zu runs\n", inputs, runs);
    return 0;
}
