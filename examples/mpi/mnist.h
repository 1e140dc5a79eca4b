/* mnist.h - the common parts of the mixed example's programs: the images, the network, and a
 * simulator of handwriting.
 *
 * The network is 784 - 256 relu - 10 softmax. The simulator redraws a training image as another
 * person might have written it: turned, scaled, slanted and moved a little, and bent by a smooth
 * random field (P. Simard, D. Steinkraus, J. Platt: Best practices for convolutional neural
 * networks applied to visual document analysis, ICDAR 2003). The same seed draws the same image on
 * every host.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EXAMPLE_MNIST_H
#define EXAMPLE_MNIST_H

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define SIDE 28
#define PIXELS (SIDE * SIDE)
#define DIGITS 10
#define HIDDEN 256
#define IMAGES 5000
#define TEST (IMAGES / 5) /* every fifth image of a digit is held out */
#define TRAIN (IMAGES - TEST)

struct image {
    unsigned char pixel[PIXELS], label;
};

struct mnist {
    struct image train[TRAIN], test[TEST];
};

/* Only floats, so that a sum can treat the model as an array of PARAMS floats. */
struct model {
    float w1[PIXELS][HIDDEN], b1[HIDDEN], w2[HIDDEN][DIGITS], b2[DIGITS];
};
#define PARAMS ((int)(sizeof(struct model) / sizeof(float)))

#define SHEET 200 /* images that the pool draws in one task */

struct sheet {
    struct image image[SHEET];
};

/* The ring's state, which it saves after each epoch. */
struct checkpoint {
    char magic[8];           /* CHECKPOINT_MAGIC */
    uint32_t epochs, sheets; /* epochs done; sheets taken from the feed, about */
    struct model model, momentum;
};
#define CHECKPOINT_MAGIC "sgdring1"

static inline uint64_t draw(uint64_t *state) /* splitmix64 (Steele, Lea, Flood 2014) */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline float draw_between(uint64_t *state, float low, float high)
{
    return low + (high - low) * (float)(draw(state) >> 40) / (float)(1u << 24);
}

/* ---- The images ---- */

static inline int mnist_parse(const char *line, struct image *image)
{
    long value;
    char *end;

    for (int i = 0; i <= PIXELS; i++, line = end + 1) {
        value = strtol(line, &end, 10);
        if (end == line || *end != (i < PIXELS ? ',' : '\n') || value < 0 ||
            value > (i < PIXELS ? 255 : 9))
            return -EBADMSG;
        *(i < PIXELS ? &image->pixel[i] : &image->label) = (unsigned char)value;
    }
    return 0;
}

/* Reads lines of 784 grey values and a digit, plain or gzip. -EBADMSG: the file has another
 * content. */
static inline int mnist_load(struct mnist *m, const char *path)
{
    int seen[DIGITS] = {0}, train = 0, test = 0, rc = 0;
    struct image image;
    char line[PIXELS * 4 + 8];
    gzFile file = gzopen(path, "r");

    if (!file)
        return errno ? -errno : -ENOMEM;
    while (rc == 0 && gzgets(file, line, sizeof(line))) {
        rc = mnist_parse(line, &image);
        if (rc == 0 && ++seen[image.label] % 5 == 0 && test < TEST)
            m->test[test++] = image;
        else if (rc == 0 && train < TRAIN)
            m->train[train++] = image;
        else
            rc = -EBADMSG;
    }
    gzclose(file);
    return rc == 0 && (train < TRAIN || test < TEST) ? -EBADMSG : rc;
}

/* ---- The network ---- */

/* Computes the hidden layer and the likelihood of each digit. Returns the most likely digit. */
static inline int model_run(const struct model *m, const struct image *image,
                            float *restrict hidden, float *restrict out)
{
    float sum = 0, top;
    int best = 0;

    memcpy(hidden, m->b1, sizeof(m->b1));
    for (int i = 0; i < PIXELS; i++) {
        float x = (float)image->pixel[i] / 255;

        /* skips black pixels, about four fifths of them */
        if (x == 0)
            continue;
        for (int h = 0; h < HIDDEN; h++)
            hidden[h] += x * m->w1[i][h];
    }
    memcpy(out, m->b2, sizeof(m->b2));
    for (int h = 0; h < HIDDEN; h++) {
        hidden[h] = hidden[h] > 0 ? hidden[h] : 0;
        for (int k = 0; k < DIGITS; k++)
            out[k] += hidden[h] * m->w2[h][k];
    }
    for (int k = 1; k < DIGITS; k++)
        best = out[k] > out[best] ? k : best;
    top = out[best];
    for (int k = 0; k < DIGITS; k++)
        sum += out[k] = expf(out[k] - top);
    for (int k = 0; k < DIGITS; k++)
        out[k] /= sum;
    return best;
}

/* Returns how many of the images the network recognizes. */
static inline int model_count(const struct model *m, const struct image *images, int n)
{
    float hidden[HIDDEN], out[DIGITS];
    int right = 0;

    for (int i = 0; i < n; i++)
        right += model_run(m, &images[i], hidden, out) == images[i].label;
    return right;
}

/* ---- The simulator ---- */

/* Makes a smooth field of about `strength` pixels: noise, averaged five times by rows and
 * columns. */
static inline void draw_field(float field[SIDE][SIDE], float strength, uint64_t *random)
{
    float line[SIDE], scale = 0;

    for (int i = 0; i < PIXELS; i++)
        field[i / SIDE][i % SIDE] = draw_between(random, -1, 1);
    for (int pass = 0; pass < 10; pass++)
        for (int a = 0; a < SIDE; a++) {
            float *at = pass % 2 ? &field[0][a] : field[a];
            int step = pass % 2 ? SIDE : 1;

            for (int b = 0; b < SIDE; b++)
                line[b] = at[b * step];
            for (int b = 0; b < SIDE; b++) {
                float sum = 0;

                for (int c = b - 3; c <= b + 3; c++)
                    sum += line[c < 0 ? 0 : c >= SIDE ? SIDE - 1 : c];
                at[b * step] = sum / 7;
            }
        }
    for (int i = 0; i < PIXELS; i++)
        scale += field[i / SIDE][i % SIDE] * field[i / SIDE][i % SIDE];
    scale = strength / sqrtf(scale / PIXELS + 1e-12f);
    for (int i = 0; i < PIXELS; i++)
        field[i / SIDE][i % SIDE] *= scale;
}

static inline float pick(const struct image *in, int x, int y)
{
    return x < 0 || y < 0 || x >= SIDE || y >= SIDE ? 0 : in->pixel[y * SIDE + x];
}

static inline void redraw(const struct image *in, struct image *out, uint64_t seed)
{
    float dx[SIDE][SIDE], dy[SIDE][SIDE], mid = (SIDE - 1) / 2.0f;
    uint64_t random = seed;
    float turn = draw_between(&random, -0.25f, 0.25f), slant = draw_between(&random, -0.2f, 0.2f);
    float wide = draw_between(&random, 0.87f, 1.15f), high = draw_between(&random, 0.87f, 1.15f);
    float left = draw_between(&random, -2, 2), up = draw_between(&random, -2, 2);
    float cs = cosf(turn), sn = sinf(turn);

    draw_field(dx, 1.2f, &random);
    draw_field(dy, 1.2f, &random);
    out->label = in->label;
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) { /* the position of this pixel in the original */
            float u = ((float)x - mid) * wide, v = ((float)y - mid) * high, fx, fy;
            float sx = cs * u - sn * v + slant * v + mid + left + dx[y][x];
            float sy = sn * u + cs * v + mid + up + dy[y][x];
            int ix = (int)floorf(sx), iy = (int)floorf(sy);

            fx = sx - (float)ix;
            fy = sy - (float)iy;
            out->pixel[y * SIDE + x] = (unsigned char)((1 - fy) * ((1 - fx) * pick(in, ix, iy) +
                                                                   fx * pick(in, ix + 1, iy)) +
                                                       fy * ((1 - fx) * pick(in, ix, iy + 1) +
                                                             fx * pick(in, ix + 1, iy + 1)) +
                                                       0.5f);
        }
}

#endif
