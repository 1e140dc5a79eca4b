/* run.c - `fiber run`: a ring of any program.
 *
 * Only the output of the ranks, or the plan of --dry-run, is written to standard output.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/command/settings.h"
#include "cli/in_cluster.h"
#include "cli/option.h"
#include "cli/screen.h"
#include "cli/run_image.h"
#include "cli/run_plan.h"
#include "cli/run_options.h"
#include "cli/run_wait.h"
#include "fiber.h"
#include "ring/apps.h"
#include "ring/ring.h"
#include "runtime/proc/context.h"

#define COULD_NOT_START 125
/* The same as in backends/command/templates/ssh.ini. */
#define SSH                                                                   \
    "ssh -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15 " \
    "-o ServerAliveCountMax=3 {host}"

/* Shows the plan on standard error, before the start. */
static int show_map(const struct run_options *s)
{
    char *text = fbr_ring_plan_text(s->size, &s->ring, s->names);

    if (!text)
        return -1;
    fputs(text, stderr);
    free(text);
    return 0;
}

static void show_end(struct fiber_ring *ring, int code, double seconds)
{
    struct fbr_run_facts f;
    struct fbr_json j = {0};

    memset(&f, 0, sizeof(f));
    fbr_ring_facts(ring, &f);
    fbr_json_object(&j);
    fbr_json_str(&j, "uid", fbr_ring_about(ring)->uid);
    fbr_json_int(&j, "code", code);
    fbr_json_double(&j, "seconds", seconds);
    fbr_json_int(&j, "size", f.size);
    fbr_json_int(&j, "restarts", f.restarts);
    fbr_json_str(&j, "report", fiber_ring_report(ring));
    fbr_json_end_object(&j);
    cli_print_json(stderr, &j);
}

static int run_ring(const struct run_options *s, const struct cli_args *args)
{
    bool quiet = args->values[RUN_QUIET].number > 0 || args->values[RUN_JSON].number > 0;
    uint64_t began = fbr_now_ms();
    struct fiber_ring *ring;
    int code = COULD_NOT_START, sig;

    run_wait_prepare();
    if (fiber_ring_start(&ring, s->size, NULL, NULL, 0, &s->ring) < 0)
        return cli_failed(COULD_NOT_START, "%s", fiber_last_error());
    sig = run_wait(ring, quiet);
    if (fiber_ring_exitcode(ring, &code) < 0)
        code = COULD_NOT_START;
    if (args->values[RUN_JSON].number)
        show_end(ring, code, (double)(fbr_now_ms() - began) / 1000);
    else if (quiet && !sig && code == COULD_NOT_START) /* no rank has reported the reason */
        cli_failed(code, "%.*s", (int)strcspn(fiber_ring_report(ring), "\n"),
                   fiber_ring_report(ring));
    fiber_ring_close(ring);
    if (sig) {
        fiber_fini();
        run_wait_die(sig);
    }
    return code;
}

/* Returns the name of the other launcher with which a command begins, "mpirun" or
 * "torch.distributed.run"; NULL: none. */
static const char *launcher_of(const char *const *command)
{
    const char *base = basename(command[0]);

    if (!strncmp(base, "python", 6) && command[1] && !strcmp(command[1], "-m") && command[2] &&
        (!strcmp(command[2], "torch.distributed.run") ||
         !strcmp(command[2], "torch.distributed.launch")))
        return command[2];
    return fbr_word_index(cli_launchers, base) >= 0 ? base : NULL;
}

/* Such a command is allowed, because a user may intend it. */
static void warn_of_launcher(const struct run_options *s)
{
    for (int i = 0; i < fbr_ring_apps_count(&s->ring); i++) {
        struct fiber_ring_program p = fbr_ring_app(&s->ring, s->size, i);
        const char *name = launcher_of(p.command);

        if (name && p.count > 1)
            cli_failed(0,
                       "%s is a launcher itself, and each of the %d ranks starts a run of its own: "
                       "omit %s, and use fiber run -n %d PROGRAM instead",
                       name, p.count, name, p.count);
    }
}

/* Applies the settings for the named hosts; a start command that the user has set stays. */
static int set_hosts(const struct run_options *s, struct fbr_error *err)
{
    static const char origin[] = "the named hosts";
    struct fbr_config *config = fbr_rt()->config;
    struct fbr_command_settings settings;
    int rc = s->ring.backend ? fbr_config_set(config, "backend", s->ring.backend, origin, err) : 0;
    char *list;

    if (rc < 0 || !s->hosts.n)
        return rc;
    list = run_hosts_setting(&s->hosts);
    rc = list ? fbr_config_set(config, "command_hosts", list, origin, err)
              : fbr_fail(err, -ENOMEM, "out of memory");
    free(list);
    if (rc < 0)
        return rc;
    if (!*fbr_config_str(config, "command_start") && !*fbr_config_str(config, "command_file"))
        rc = fbr_config_set(config, "command_start", s->start ? s->start : SSH, origin, err);
    if (rc < 0 || (rc = fbr_command_settings_load(&settings, config, err)) < 0)
        return rc;
    if (!fbr_template_has(&settings.start, "{host}"))
        rc = fbr_fail(err, -EINVAL,
                      "%s: the command that starts jobs has no {host}, which -H and --hostfile "
                      "need: add {host}, or omit these options",
                      settings.origin);
    fbr_command_settings_fini(&settings);
    return rc;
}

/* Jobs with a foreign image start in the image's working directory, so relative names of programs
 * are made absolute. */
static int name_programs(struct run_options *s, const struct cli_args *args, struct fbr_error *err)
{
    const struct fbr_backend_about *about =
        fbr_backend_about(fbr_config_str(fbr_rt()->config, "backend"));

    if (!args->values[RUN_IN_CLUSTER].number &&
        !(about && about->in_images && !about->makes_images))
        return 0;
    return run_apps_whole(&s->programs, args, err);
}

/* Completes the options with facts of the backend, which is known now. */
static int complete(struct run_options *s, const struct cli_args *args, struct fbr_error *err)
{
    int rc;

    if ((rc = set_hosts(s, err)) < 0 || (rc = name_programs(s, args, err)) < 0)
        return rc;
    return args->values[RUN_IN_CLUSTER].number ? 0 : run_options_resolve(s, err);
}

static int run_run(const struct cli_args *args)
{
    static const char *const levels[] = {"warn", "info", "debug", "trace"};
    int64_t verbose = args->values[RUN_VERBOSE].number;
    struct fbr_error err = {0, ""};
    struct run_options spec;
    int code;

    if (run_options_make(&spec, args, &err) < 0)
        return cli_usage(args->command, &err);
    if (!fbr_rt()) {
        run_options_fini(&spec);
        return cli_failed(COULD_NOT_START, "%s", fiber_last_error());
    }
    if (complete(&spec, args, &err) < 0) {
        run_options_fini(&spec);
        return cli_usage(args->command, &err);
    }
    if (verbose)
        fiber_config_set("log_level", levels[verbose < 3 ? verbose : 3]);
    if (spec.note[0] && !args->values[RUN_QUIET].number)
        cli_failed(0, "%s", spec.note);
    if (!args->values[RUN_QUIET].number)
        warn_of_launcher(&spec);
    if (args->values[RUN_DRY_RUN].number)
        code = run_plan_show(&spec, args);
    else if (args->values[RUN_IN_CLUSTER].number && args->values[RUN_PTY].text)
        code =
            cli_failed(2, "--pty: a master in the cluster has no terminal; omit --in-cluster, and "
                          "use -b kubernetes to run the ranks in pods");
    else if (args->values[RUN_IN_CLUSTER].number)
        code = in_cluster_run(&spec, args);
    else if (args->values[RUN_MAP].number && show_map(&spec) < 0)
        code = cli_failed(COULD_NOT_START, "%s", fiber_last_error());
    else if (run_image_prepare(&spec.ring, &err) < 0)
        code = cli_failed(COULD_NOT_START, "%s", err.text);
    else
        code = run_ring(&spec, args);
    run_options_fini(&spec);
    return code;
}

const struct cli_command cli_run = {
    .name = "run",
    .operands = "PROGRAM [ARGUMENT...] [: -n N PROGRAM...]...",
    .kind = CLI_PROGRAM,
    .about = "Starts a ring: ranks of an unmodified program, with MPI, torch, Horovod or none",
    .text =
        "Each rank is an ordinary process. Fiber sets what Open MPI, MPICH, torch.distributed and "
        "Horovod need, all at once, so no option selects one; mpirun, ssh and torchrun are not "
        "needed. FIBER_RANK is the rank's number, FIBER_SIZE the number of ranks.\n\n"
        "Several programs make one ring if they are separated by ':', as in mpirun: after a ':' "
        "come -n, then --workdir or variables for that program alone, and the program. Variables "
        "before the first program are for all programs, --workdir there is for the first one only. "
        "FIBER_APPNUM is the number of a rank's program, from 0, and FIBER_APP_SIZES has the "
        "number of ranks of each, as in 1,8.\n\n"
        "Lines of ranks are never mixed. An unfinished line (a prompt, a progress bar) is shown "
        "when nothing has followed it for 100 ms, or 1 s if several ranks write to a pipe or a "
        "file; at once for a single rank, and for the rank that reads the terminal. The next line "
        "of another rank then begins on a new line. On a terminal the control sequences of ranks "
        "are removed, except colours; pipes and files get each byte. A rank writes to a pipe: what "
        "Python prints is seen at once (PYTHONUNBUFFERED=1), but the C library keeps up to 4096 "
        "bytes. Call fflush(), or put stdbuf -oL before the program.\n\n"
        "Ctrl-C asks the ranks to end, a second Ctrl-C kills them. The common options of mpirun, "
        "srun and torchrun mean the same here: `fiber help mpirun`.\n\n"
        "--backend docker needs no image: if none is named, and fiber itself does not run in a "
        "container, Fiber makes an image of the program, its libraries and interpreter, and the "
        "script that a shell reads. For Python and Perl it also has their library, the packages "
        "that they find (of a virtual environment, too) and the folder of the script. image_add "
        "(FIBER_IMAGE_ADD=\"/bin/sleep /data\") names other files that the program calls or reads, "
        "and docker_mounts makes folders of this host visible in it; see fiber-image(1).",
    .examples =
        "fiber run -n 4 ./train\tfour ranks on this machine\n"
        "fiber run ./train\tin an allocation of Slurm, PBS, LSF, SGE or Flux: all its ranks\n"
        "fiber run -H h1:8,h2:8 ./train\t16 ranks on two hosts that ssh reaches\n"
        "fiber run -n 8 --gpus-per-rank 1 python3 train.py\teach with the GPU nearest to it\n"
        "fiber run -n 1 ./learner : -n 8 ./actor\ttwo programs in one MPI_COMM_WORLD\n"
        "fiber run --nodes 4 --per-node 8 -b slurm ./train\t32 ranks on four hosts\n"
        "fiber run -n 4 -b docker ./train\tfour ranks in a container\n"
        "fiber run --in-cluster --image reg/x:1 -n 8 ./train\tfrom a laptop: the master is a pod\n"
        "fiber run -n 1 --pty gdb ./train\ta terminal for the rank: debuggers, shells\n"
        "fiber run -n 64 --on-failure restart ./train\tall start again when one fails\n"
        "fiber run -n 16 --dry-run ./train\tshow the plan only\n"
        "fiber run -n 16 --dry-run=server -b kubernetes ./train\task the cluster, start nothing",
    .exit = "0\tevery rank ended well\n"
            "1-255\tof the first rank that failed; 128 + N when signal N ended it\n"
            "2\tthe options or the configuration are wrong\n"
            "124\tthe time limit (--timeout) was over\n"
            "125\tit could not be started",
    .options = run_option_table,
    .count = RUN_OPTIONS,
    .least = 1,
    .most = -1,
    .stops = true,
    .run = run_run,
};
