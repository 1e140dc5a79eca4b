/* cp.c - `fiber cp`: copies a file or a directory to or from a job of a run, through the run's
 * launcher.
 *
 * It works in the same way on every backend: the bytes go through the connection between each job
 * and its launcher (runtime/inspect/message.h, runtime/proc/tunnel.h), not through the engine.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/run_client.h"
#include "cli/cp.h"
#include "cli/orphans.h"
#include "cli/option.h"
#include "runtime/base/printable.h"
#include "runtime/inspect/tree.h"

bool cp_place(const char *typed, struct cp_place *p)
{
    size_t len = strcspn(typed, ":"), run = strcspn(typed, "/:");

    *p = (struct cp_place){.path = typed};
    if (!typed[len] || run == 0 || run >= CP_NAME || len - run > CP_NAME || typed[0] == '.' ||
        (run < len && memchr(typed + run + 1, '/', len - run - 1)))
        return false;
    memcpy(p->job, typed, len);
    p->path = typed + len + 1;
    return true;
}

/* ---- The other end ---- */

struct cp {
    struct run_client run;
    struct fbr_msg m;
    struct cp_place there;
    const char *here;
    bool put;
};

/* Sends a request; *i becomes the answer of the other end. */
static int ask(struct cp *c, enum fbr_msg_kind kind, uint32_t mode, const char *name,
               struct fbr_msg_item *i, struct fbr_error *err)
{
    int rc = fbr_msg_send_item(c->run.fd, kind, mode, name, c->there.path);

    if (rc == -ENAMETOOLONG)
        return fbr_fail(err, rc, "the path is too long");
    rc = fbr_msg_expect(c->run.fd, &c->m, FBR_MSG_READY, err);
    return rc < 0 || fbr_msg_get_item(&c->m.body, i) ? rc : fbr_msg_malformed(err);
}

/* Reads the last answer; `text` becomes the list of the files that the other end has left out. */
static int done(struct cp *c, char text[FBR_MSG_TEXT], struct fbr_error *err)
{
    int rc = fbr_msg_expect(c->run.fd, &c->m, FBR_MSG_DONE, err), code;

    return rc < 0 || fbr_msg_get_done(&c->m.body, &code, text) ? rc : fbr_msg_malformed(err);
}

/* All was sent (rc 0), or the transfer broke off. If a file could not be read here, the other end
 * is notified; else the other end reports why it hung up (for instance, a full disk). */
static int put_done(struct cp *c, int rc, const struct fbr_error *why, char text[FBR_MSG_TEXT],
                    struct fbr_error *err)
{
    int said;

    if (rc == -EIO) {
        fbr_msg_send_done(c->run.fd, rc, why->text);
        return fbr_fail(err, rc, "%.300s: %s", c->here, why->text);
    }
    said = done(c, text, err);
    return said < 0 || rc == 0 ? said : fbr_fail(err, rc, "%s", fbr_strerror(rc));
}

/* Reports the files that the other end and this end have left out. */
static void print_left(const char *text, unsigned links, unsigned specials)
{
    char plain[FBR_MSG_TEXT], left[200];

    fbr_printable_plain(plain, sizeof(plain), text);
    if (plain[0])
        fprintf(stderr, "fiber: %s\n", plain);
    fbr_tree_describe_left(left, sizeof(left), links, specials);
    if (left[0])
        fprintf(stderr, "fiber: %s\n", left);
}

static int put_it(struct cp *c, struct fbr_error *err)
{
    struct fbr_error why = {0, ""};
    char name[FBR_MSG_NAME], text[FBR_MSG_TEXT];
    struct fbr_msg_item i;
    unsigned specials = 0;
    uint32_t mode = 0;
    int fd = fbr_tree_open(c->here, &mode, name, err), rc;

    if (fd < 0)
        return fd;
    rc = ask(c, FBR_MSG_PUT, mode, name, &i, err);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    rc = put_done(c, fbr_tree_send(c->run.fd, fd, mode, &specials, &why), &why, text, err);
    if (rc < 0)
        return rc;
    print_left(text, 0, specials);
    return 0;
}

/* A file gets the name that was asked for, whatever the other end calls it. */
static int get_it(struct cp *c, struct fbr_error *err)
{
    char text[FBR_MSG_TEXT];
    struct fbr_msg_item i;
    struct fbr_tree t;
    const char *name;
    int rc = ask(c, FBR_MSG_GET, 0, "", &i, err);

    if (rc < 0)
        return rc;
    name = i.mode & FBR_MSG_IS_TREE ? i.name : basename(c->there.path);
    if ((rc = fbr_tree_begin(&t, c->here, name, i.mode, err)) < 0 ||
        (rc = fbr_tree_recv(&t, c->run.fd, err)) < 0)
        return rc;
    rc = done(c, text, err);
    if (rc < 0) {
        fbr_tree_drop(&t);
        return rc;
    }
    rc = fbr_tree_commit(&t, err);
    if (rc == 0 && i.mode & FBR_MSG_IS_TREE) /* a file is all there, or not at all */
        print_left(text, t.links, 0);
    return rc;
}

/* ---- The command ---- */

/* Copies, after the run was found. */
static int copy_there(struct cp *c, const char *typed, struct fbr_error *err)
{
    int job = -1, rc;

    if (typed[0] && (job = run_client_job(typed, &c->run, err)) < 0)
        return err->code;
    rc = run_client_tunnel(&c->run, job, err);
    if (rc < 0)
        return rc;
    return c->put ? put_it(c, err) : get_it(c, err);
}

static int copy(struct cp *c, struct fbr_error *err)
{
    const char *job;
    int rc = orphan_run_here(c->there.job, "cp", &c->run, &job, err);

    if (rc < 0)
        return rc;
    rc = copy_there(c, job, err);
    fbr_buf_fini(&c->m.bytes);
    run_client_free(&c->run);
    return rc;
}

static int run_cp(const struct cli_args *args)
{
    struct fbr_error err = {0, ""};
    struct cp c = {.here = args->operands[1]};
    struct cp_place to;
    bool from_there = cp_place(args->operands[0], &c.there);

    c.put = cp_place(args->operands[1], &to);
    if (from_there == c.put) {
        fbr_fail(&err, -EINVAL,
                 from_there ? "one of SRC and DST must be a file of this host; if its name has a "
                              "colon, use ./NAME"
                            : "one of SRC and DST must be RUN:PATH or RUN/JOB:PATH");
        return cli_usage(args->command, &err);
    }
    if (c.put) {
        c.there = to;
        c.here = args->operands[0];
    }
    return copy(&c, &err) < 0 ? cli_failed(1, "%s", err.text) : 0;
}

static const struct cli_option options[] = {
    {"recursive", 'r', CLI_NOTHING, .also = "R",
     .hidden = true}, /* directories are always copied with their contents */
};

const struct cli_command cli_cp = {
    .name = "cp",
    .operands = "SRC DST",
    .kind = CLI_FILES,
    .about = "Copies a file or a directory to a job of a run, or from it",
    .text =
        "One of SRC and DST is a file or a directory of this host, the other RUN/JOB:PATH. RUN is "
        "as in ps; JOB is the number of a rank, a worker or a process, as top shows it; without "
        "it, rank 0, or the only worker or process, is used. A PATH that does not begin with / is "
        "relative to the job's working directory. If DST is a directory, the copy gets the name of "
        "SRC in it, as by cp -r.\n\n"
        "The file goes through the run's launcher, so this works on every backend, but only while "
        "the run goes on. The file is copied with its permissions, completely or not at all; it "
        "replaces an existing file when it is complete.\n\n"
        "A directory is copied with its contents, completely or not at all, and replaces nothing "
        "but an empty directory. Permissions are kept; owners and times are not. Symbolic links "
        "are copied as links, and none is followed; links that lead out of the "
        "directory, devices, sockets and FIFOs are skipped with a message. An incomplete directory "
        "is called .fiber-cp-BOOT-XXXXXX; if the copy is killed, the next copy into the same "
        "folder removes it.",
    .examples = "fiber cp train.cfg train/3:/tmp/\tto the host or container of rank 3\n"
                "fiber cp train:out/loss.csv .\tfrom rank 0, or the only worker\n"
                "fiber cp 3fa9/7:core.123 .\tfrom worker 7 of a pool\n"
                "fiber cp train/0:checkpoints .\ta directory",
    .options = options,
    .count = sizeof(options) / sizeof(options[0]),
    .least = 2,
    .most = 2,
    .run = run_cp,
};
