/* sgd_ring.c - data-parallel SGD on MNIST: each rank has a part of each batch, and MPI_Allreduce
 * sums the gradients.
 *
 * This is an ordinary MPI program: it does not use Fiber, and runs in the same way under mpirun,
 * srun or `fiber run`. Only rank 0 uses files, so only its host needs them:
 *
 *     data        read once; the training images are scattered anew, in another order, for each
 *                 epoch
 *     checkpoint  read at the start, when it is there, and replaced after each epoch: who starts
 *                 the program again has lost the epoch that was under way and nothing else
 *     feed        a folder where somebody else may leave sheets of training images, numbered from 0
 *                 (sheet.0 ...); an epoch takes what is new there and fills up with what it has:
 *                 older sheets, then the images of `data`. It never waits for a sheet. The newest
 *                 REPLAY of them stay there, and a restart finds them again
 *     log         a line per epoch
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

#include "mnist.h"

#ifndef EXAMPLE_DATA
#define EXAMPLE_DATA "examples/data"
#endif
#define BATCH 128  /* images in a step, for all ranks together */
#define RATE 0.05f /* learning rate at the start; it falls to zero along a cosine */
#define MOMENTUM 0.9f
#define DECAY 1e-4f
#define REPLAY 100 /* sheets */

struct run {
    int rank, size;
    int epochs, seed, redraw;
    char data[PATH_MAX], checkpoint[PATH_MAX], feed[PATH_MAX], log[PATH_MAX];
    FILE *out;                   /* of rank 0 */
    struct mnist *mnist;         /* training images, only in rank 0 */
    struct sheet *replay;        /* rank 0: sheet i at i % REPLAY */
    int first, next;             /* sheets: the oldest in the folder, the next to come */
    struct image *epoch, *share; /* all images, in rank 0; this rank's part of them */
    int share_n;
    struct checkpoint *now;
    struct model *gradient;
};

/* Ends all ranks, because one rank cannot end alone. The exit code tells the launcher that the
 * program failed. */
static void fail(const char *what, const char *path, const char *why)
{
    fprintf(stderr, "sgd_ring: %s %s: %s.\n", what, path, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void *allocate(size_t size)
{
    void *p = calloc(1, size);

    if (!p)
        fail("cannot get", "memory", "there is not enough");
    return p;
}

/* ---- Rank 0's files ---- */

static void load_data(struct run *run)
{
    int rc = mnist_load(run->mnist, run->data);

    if (rc)
        fail("cannot read", run->data,
             rc == -EBADMSG ? "it is not 5,000 lines of 784 grey values and a digit, with commas"
                            : strerror(-rc));
}

/* Writes a temporary file and renames it, so that readers see the old checkpoint or the new one. */
static void save_checkpoint(struct run *run)
{
    char path[PATH_MAX + 8];
    FILE *file;
    int ok;

    if (!run->checkpoint[0])
        return;
    snprintf(path, sizeof(path), "%s.new", run->checkpoint);
    file = fopen(path, "wb");
    ok = file && fwrite(run->now, sizeof(*run->now), 1, file) == 1;
    ok = file && fclose(file) == 0 && ok;
    if (!ok || rename(path, run->checkpoint))
        fail("cannot write", run->checkpoint, strerror(errno));
}

static void load_checkpoint(struct run *run)
{
    FILE *file = run->checkpoint[0] ? fopen(run->checkpoint, "rb") : NULL;
    int whole;

    if (!file && (!run->checkpoint[0] || errno == ENOENT))
        return;
    if (!file)
        fail("cannot read", run->checkpoint, strerror(errno));
    whole = fread(run->now, sizeof(*run->now), 1, file) == 1 && getc(file) == EOF;
    fclose(file);
    if (!whole || memcmp(run->now->magic, CHECKPOINT_MAGIC, 8) != 0)
        fail("cannot resume from", run->checkpoint,
             "it is not a checkpoint of this program; move it away");
    run->next = run->first = run->now->sheets > REPLAY ? (int)run->now->sheets - REPLAY : 0;
    fprintf(run->out, "resumed after epoch %u of %d\n", run->now->epochs, run->epochs);
}

static int read_sheet(const struct run *run, int number, struct sheet *sheet)
{
    char path[PATH_MAX + 32];
    FILE *file;
    int ok;

    snprintf(path, sizeof(path), "%s/sheet.%d", run->feed, number);
    file = fopen(path, "rb");
    if (!file)
        return 0;
    ok = fread(sheet, sizeof(*sheet), 1, file) == 1 && getc(file) == EOF;
    fclose(file);
    for (int i = 0; ok && i < SHEET; i++)
        ok = sheet->image[i].label < DIGITS;
    if (!ok)
        fail("cannot use", path, "it is not a sheet of images");
    return 1;
}

/* Takes the new sheets. Returns how many are new. */
static int take_sheets(struct run *run)
{
    int had = (int)run->now->sheets;

    while (run->feed[0] && read_sheet(run, run->next, &run->replay[run->next % REPLAY]))
        run->next++;
    run->now->sheets = (uint32_t)run->next;
    return run->next > had ? run->next - had : 0; /* a restart reads some sheets again */
}

/* Removes the sheets that a restart from the checkpoint does not need. */
static void drop_sheets(struct run *run)
{
    char path[PATH_MAX + 32];

    for (; run->first < run->next - REPLAY; run->first++) {
        snprintf(path, sizeof(path), "%s/sheet.%d", run->feed, run->first);
        unlink(path);
    }
}

/* Collects the images of an epoch, in random order: those of sheets, the newest first, then those
 * of the data set. Returns how many come from sheets. */
static int mix_epoch(struct run *run, uint64_t random)
{
    int oldest = run->next > REPLAY ? run->next - REPLAY : 0, n = 0, drawn;

    for (int i = run->next; i-- > (oldest > run->first ? oldest : run->first) && n + SHEET <= TRAIN;
         n += SHEET)
        memcpy(run->epoch + n, &run->replay[i % REPLAY], sizeof(struct sheet));
    for (drawn = n; n < TRAIN; n++)
        run->epoch[n] = run->mnist->train[draw(&random) % TRAIN];
    for (int i = TRAIN - 1; i > 0; i--) {
        int other = (int)(draw(&random) % (uint64_t)(i + 1));
        struct image kept = run->epoch[i];

        run->epoch[i] = run->epoch[other];
        run->epoch[other] = kept;
    }
    return drawn;
}

/* ---- Training ---- */

static void init_model(struct run *run)
{
    uint64_t random = (uint64_t)run->seed;
    struct model *m = &run->now->model;
    float in = sqrtf(6.0f / PIXELS), mid = sqrtf(6.0f / HIDDEN);

    memcpy(run->now->magic, CHECKPOINT_MAGIC, 8);
    for (int i = 0; i < PIXELS * HIDDEN; i++)
        m->w1[i / HIDDEN][i % HIDDEN] = draw_between(&random, -in, in);
    for (int i = 0; i < HIDDEN * DIGITS; i++)
        m->w2[i / DIGITS][i % DIGITS] = draw_between(&random, -mid, mid);
}

/* Adds an image's gradient of the cross entropy. Returns the loss of the image. */
static float add_gradient(const struct model *m, struct model *g, const struct image *image)
{
    float hidden[HIDDEN], out[DIGITS], back[HIDDEN], loss;

    model_run(m, image, hidden, out);
    loss = -logf(out[image->label] + 1e-12f);
    out[image->label] -= 1;
    for (int h = 0; h < HIDDEN; h++) {
        float sum = 0;

        for (int k = 0; k < DIGITS; k++) {
            sum += out[k] * m->w2[h][k];
            g->w2[h][k] += out[k] * hidden[h];
        }
        back[h] = hidden[h] > 0 ? sum : 0;
        g->b1[h] += back[h];
    }
    for (int k = 0; k < DIGITS; k++)
        g->b2[k] += out[k];
    for (int i = 0; i < PIXELS; i++) {
        float x = (float)image->pixel[i] / 255;

        if (x == 0)
            continue;
        for (int h = 0; h < HIDDEN; h++)
            g->w1[i][h] += x * back[h];
    }
    return loss;
}

/* All ranks apply the same sum, so they keep the same network. */
static float train_batch(struct run *run, const struct image *images, int n, float rate)
{
    float *restrict w = (float *)&run->now->model, *restrict v = (float *)&run->now->momentum;
    float *restrict g = (float *)run->gradient, loss = 0, part = 1.0f / (float)(n * run->size);

    memset(g, 0, sizeof(*run->gradient));
    for (int i = 0; i < n; i++)
        loss += add_gradient(&run->now->model, run->gradient, &images[i]);
    MPI_Allreduce(MPI_IN_PLACE, g, PARAMS, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < PARAMS; i++) {
        v[i] = MOMENTUM * v[i] + part * g[i] + DECAY * w[i];
        w[i] -= rate * v[i];
    }
    return loss;
}

static void train_epoch(struct run *run)
{
    uint32_t epoch = run->now->epochs;
    uint64_t random = (uint64_t)run->seed << 32 | epoch;
    int fresh = 0, drawn = 0, per = BATCH / run->size, mine = TEST / run->size;
    float rate, sum[2] = {0, 0};
    double begun = MPI_Wtime();

    if (run->rank == 0) {
        fresh = take_sheets(run);
        drawn = mix_epoch(run, random);
    }
    MPI_Scatter(run->epoch, run->share_n * (int)sizeof(struct image), MPI_BYTE, run->share,
                run->share_n * (int)sizeof(struct image), MPI_BYTE, 0, MPI_COMM_WORLD);
    for (int i = 0; run->redraw && i < run->share_n; i++) {
        struct image kept = run->share[i];

        redraw(&kept, &run->share[i], random << 20 | (uint64_t)(run->rank * run->share_n + i));
    }
    for (int i = 0; i + per <= run->share_n; i += per) {
        float done = ((float)epoch + (float)i / (float)run->share_n) / (float)run->epochs;

        rate = RATE * 0.5f * (1 + cosf(3.14159265f * done));
        sum[0] += train_batch(run, run->share + i, per, rate);
    }
    sum[0] /= (float)(run->share_n / per * per);
    sum[1] = (float)model_count(&run->now->model, run->mnist->test + run->rank * mine,
                                run->rank == run->size - 1 ? TEST - run->rank * mine : mine);
    MPI_Allreduce(MPI_IN_PLACE, sum, 2, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    run->now->epochs++;
    if (run->rank)
        return;
    save_checkpoint(run);
    drop_sheets(run);
    fprintf(run->out, "epoch %u/%d loss %.3f held out %.1f %% %.2f s", run->now->epochs,
            run->epochs, sum[0] / (float)run->size, 100 * sum[1] / TEST, MPI_Wtime() - begun);
    if (run->feed[0])
        fprintf(run->out, " drawn %d %% new %d sheets %d", 100 * drawn / TRAIN, fresh * SHEET,
                run->next);
    fputc('\n', run->out);
    fflush(run->out);
}

/* ---- The run ---- */

static void open_run(struct run *run)
{
    run->mnist = allocate(sizeof(*run->mnist));
    run->now = allocate(sizeof(*run->now));
    run->gradient = allocate(sizeof(*run->gradient));
    run->share_n = TRAIN / run->size;
    run->share = allocate((size_t)run->share_n * sizeof(struct image));
    init_model(run);
    if (run->rank == 0) {
        run->epoch = allocate(TRAIN * sizeof(struct image));
        run->replay = allocate(REPLAY * sizeof(struct sheet));
        run->out = run->log[0] ? fopen(run->log, "a") : stdout;
        if (!run->out)
            fail("cannot write", run->log, strerror(errno));
        load_data(run);
        load_checkpoint(run);
    }
    MPI_Bcast(run->mnist->test, (int)sizeof(run->mnist->test), MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Bcast(run->now, (int)sizeof(*run->now), MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void close_run(struct run *run)
{
    if (run->out && run->out != stdout)
        fclose(run->out);
    free(run->mnist);
    free(run->now);
    free(run->gradient);
    free(run->share);
    free(run->epoch);
    free(run->replay);
}

static const char help[] =
    "Usage: mpirun -np 4 sgd_ring [options], or: fiber run -n 4 sgd_ring [options]\n"
    "Trains a network on 4,000 images of MNIST, and measures it on 1,000 others.\n"
    "  --epochs N         (40)\n"
    "  --seed N           (1)\n"
    "  --data FILE        lines of 784 grey values and a digit, gzip or plain\n"
    "  --checkpoint FILE  resumes from it, and replaces it after each epoch\n"
    "  --feed FOLDER      takes more images from sheets that come in there\n"
    "  --redraw           each rank draws its images anew for each epoch, by itself\n"
    "  --log FILE         the lines of the epochs go to its end, not to standard output\n";

/* Reads the options: the same in every rank, but only rank 0 prints. Returns 0, or the exit code
 * plus 1. */
static int parse_options(struct run *run, int argc, char **argv)
{
    static const struct option options[] = {
        {"epochs", 1, NULL, 0},     {"seed", 1, NULL, 1},   {"data", 1, NULL, 2},
        {"checkpoint", 1, NULL, 3}, {"feed", 1, NULL, 4},   {"log", 1, NULL, 5},
        {"redraw", 0, NULL, 'r'},   {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0}};
    int *number[] = {&run->epochs, &run->seed}, c;
    char *text[] = {NULL, NULL, run->data, run->checkpoint, run->feed, run->log}, *end = NULL;

    opterr = 0;
    while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0 && c != '?') {
        long value = c < 2 ? strtol(optarg, &end, 10) : 1;

        if (c == 'h') {
            if (run->rank == 0)
                fputs(help, stdout);
            return 1;
        }
        run->redraw |= c == 'r';
        if (c > 1 && c < 6)
            snprintf(text[c], PATH_MAX, "%s", optarg);
        if (c > 1)
            continue;
        *number[c] = (int)value;
        if (*end || value < 1 || value > 1000000) {
            if (run->rank == 0)
                fprintf(stderr, "sgd_ring: --%s wants a number from 1 to 1000000, not \"%s\".\n",
                        options[c].name, optarg);
            return 3;
        }
    }
    if (c != '?' && optind == argc)
        return 0;
    if (run->rank == 0)
        fprintf(
            stderr,
            "sgd_ring: \"%s\" is not an option, or lacks its value; --help lists the options.\n",
            argv[c == '?' ? optind - 1 : optind]);
    return 3;
}

int main(int argc, char **argv)
{
    static struct run run = {.epochs = 40, .seed = 1};
    int rc;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &run.size);
    snprintf(run.data, sizeof(run.data), "%s/mnist_5k.csv.gz", EXAMPLE_DATA);
    rc = parse_options(&run, argc, argv);
    if (rc == 0 && run.size > BATCH) {
        if (run.rank == 0)
            fprintf(stderr, "sgd_ring: %d ranks are too many for batches of %d images.\n", run.size,
                    BATCH);
        rc = 3;
    }
    if (rc == 0) {
        open_run(&run);
        while (run.now->epochs < (uint32_t)run.epochs)
            train_epoch(&run);
        close_run(&run);
    }
    MPI_Finalize();
    return rc ? rc - 1 : 0;
}
