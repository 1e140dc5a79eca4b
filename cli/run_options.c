/* run_options.c - the options of `fiber run`, and their meaning for a ring.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_options.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "mpi_bridge/host_env.h"
#include "ring/ring.h"
#include "runtime/pin/cgroup.h"
#include "runtime/pin/pin.h"
#include "runtime/proc/context.h"

/* ---- The table ---- */

const struct cli_option run_option_table[RUN_OPTIONS] = {
    [RUN_N] = {"np", 'n', CLI_INT, "N", .min = 1, .max = RUN_RANKS_MAX,
               .also = "n ranks ntasks nproc",
               .help = "number of ranks; default: that of the allocation (Slurm, PBS, LSF, SGE, "
                       "Flux), else --nodes times --per-node, each of which is 1 if it is not "
                       "given"},
    [RUN_PER_NODE] =
        {"per-node", 'N', CLI_INT, "M", .min = 1, .max = 1 << 16, .words = "auto cpu gpu",
         .also =
             "npernode ppn perhost ntasks-per-node tasks-per-node nproc_per_node nproc-per-node",
         .help = "ranks of one job on one host; default: that of the allocation, else as many as a "
                 "host has processors for (slurm, kubernetes), or all (local, docker)"},
    [RUN_NODES] = {"nodes", 0, CLI_INT, "K", .min = 1, .max = 1 << 16, .also = "nnodes",
                   .hint = "the size of a ring is fixed; --on-failure restart starts all ranks "
                           "again, with as many, when one is lost",
                   .help =
                       "number of jobs, each on a host of its own (with local all here); default: "
                       "as many as the ranks need"},
    [RUN_HOSTS] = {"host", 'H', CLI_LIST, "HOST[:M],...", .also = "hosts nodelist w",
                   .help = "runs on these hosts, by ssh: up to M ranks on each, or 1, host by "
                           "host; without -n as many as fit. fiber and the program need the same "
                           "paths there. This host alone needs no ssh"},
    [RUN_HOSTFILE] = {"hostfile", 0, CLI_LIST, "FILE",
                      .also = "machinefile f machine default-hostfile",
                      .help = "the same from a file: lines HOST slots=M or HOST:M, # before a "
                              "comment; if no line has a number, ranks are spread evenly. With -H: "
                              "only those hosts of the file"},
    [RUN_BACKEND] = {"backend", 'b', CLI_WORD, "B", .words = fbr_backend_words, .config = "backend",
                     .help = "what starts jobs"},
    [RUN_IMAGE] = {"image", 0, CLI_TEXT, "IMAGE",
                   .help =
                       "container image; default: the one that fiber runs in, else, with docker, a "
                       "new one with the program and its libraries"},
    [RUN_IN_CLUSTER] =
        {"in-cluster", 0, CLI_FLAG,
         .help = "runs the master in a pod of Kubernetes, too, if pods cannot reach this host: its "
                 "output is printed here, and Ctrl-C ends it. Program and files come from the "
                 "image"},
    [RUN_BIND_TO] =
        {"bind-to", 0, CLI_TEXT, "X", .words = "core hwthread l3 numa package none",
         .also = "cpu-bind",
         .help =
             "what to bind each rank to; default: core, or none with more ranks than processors"},
    [RUN_MAP_BY] = {"map-by", 0, CLI_TEXT, "X", .words = "compact spread core l3 numa package gpu",
                    .help = "order of ranks on the processors of a host, default compact; slot, "
                            "socket, ppr:M:node and :PE=C mean the same as in mpirun"},
    [RUN_CPUS] = {"cpus-per-rank", 0, CLI_INT, "C", .min = 1, .max = 4096,
                  .also = "cpus-per-proc cpus-per-task",
                  .help = "processors for each rank; pods request them"},
    [RUN_GPUS] = {"gpus-per-rank", 0, CLI_INT, "G", .min = 0, .max = 16,
                  .also = "gpus-per-proc gpus-per-task",
                  .help = "number of GPUs for each rank, the nearest by PCI locality; sets "
                          "CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES or ZE_AFFINITY_MASK"},
    [RUN_MEM] = {"mem", 0, CLI_SIZE, "SIZE", .also = "memory",
                 .help = "memory of each job, such as 12Gi"},
    [RUN_ENV] = {"env", 'x', CLI_LIST, "VAR[=VALUE]", .also = "x export",
                 .help = "a variable for the ranks; without =VALUE, with its value here; may be "
                         "repeated. Ranks on this host and on slurm have all variables of this "
                         "shell, others only these"},
    [RUN_ENV_FILE] = {"env-file", 0, CLI_LIST, "FILE", .also = "envfile",
                      .help = "a file of variables for the ranks: lines NAME=VALUE, or NAME with "
                              "its value here, or # and a comment; --env overrides it. May be "
                              "repeated"},
    [RUN_WORKDIR] = {"workdir", 0, CLI_DIR, "DIR", .also = "wdir wd chdir D",
                     .help = "working directory of the ranks; default: the current directory"},
    [RUN_NAME] = {"name", 0, CLI_TEXT, "NAME", .also = "job-name J",
                  .help = "name of the run for fiber ps; default: the program's name, train for "
                          "./train and for python3 train.py"},
    [RUN_NAMESPACE] = {"namespace", 0, CLI_TEXT, "S", .config = "kubernetes_namespace",
                       .help = "namespace of Kubernetes for the pods; default: that of the "
                               "context"},
    [RUN_ON_FAILURE] =
        {"on-failure", 0, CLI_WORD, "WHAT", .words = "abort restart shrink replace",
         .help =
             "if a rank fails: end the others, start all again, go on without it, or start a new "
             "process in its place, which an MPI program must support"},
    [RUN_MAX_RESTARTS] =
        {"max-restarts", 0, CLI_INT, "K", .min = 0, .max = 1000000, .also = "max_restarts",
         .help =
             "limit of restarts; default 3. 0 turns restart into abort, and replace into shrink. "
             "Without --on-failure it means restart. Disruptions by the cluster (evicted, "
             "preempted, a lost node) count separately, up to 100"},
    [RUN_TIMEOUT] = {"timeout", 0, CLI_MS, "T", .max = 24 * 24 * 3600000,
                     .help = "ends the run after this time, such as 90s or 2h, with exit code 124"},
    [RUN_GRACE] = {"grace", 0, CLI_MS, "T", .config = "grace",
                   .also = "shutdown-timeout shutdown_timeout",
                   .help = "time between asking ranks to end (SIGTERM) and killing them"},
    [RUN_TAG] = {"tag", 'l', CLI_FLAG, .also = "tag-output prepend-rank label",
                 .help = "puts the rank in front of each line"},
    [RUN_TIMESTAMP] = {"timestamp", 0, CLI_FLAG, .also = "timestamp-output",
                       .help = "puts the time in front of each line"},
    [RUN_OUTPUT] =
        {"output", 'o', CLI_DIR, "DIR|PATTERN",
         .also = "output-filename output-dir log-dir log_dir outfile-pattern",
         .help = "also writes the output of each rank to DIR/<run>/RANK.out and RANK.err, with "
                 "DIR/latest as a link to DIR/<run>; or to the files of a pattern: %t or %r is the "
                 "rank, %h its host, %j the run"},
    [RUN_STDIN] = {"stdin", 0, CLI_TEXT, "R", .words = "0 none", .also = "i input",
                   .help = "which rank reads standard input"},
    [RUN_PTY] = {"pty", 0, CLI_FLAG, .max = RUN_RANKS_MAX,
                 .help = "a terminal for the only rank, or for rank N: for gdb, python -i, a "
                         "shell. Ctrl-C goes to the rank"},
    [RUN_REPORT] = {"report-bindings", 0, CLI_FLAG, .also = "print-rank-map",
                    .help = "shows where each rank was bound, as reported by the kernel"},
    [RUN_MAP] = {"display-map", 0, CLI_FLAG,
                 .also = "display-allocation display-topo display-devel-map display-diffable-map",
                 .help = "shows a map of the machine with the ranks before the start"},
    [RUN_DRY_RUN] =
        {"dry-run", 0, CLI_FLAG, .words = "client server", .also = "do-not-launch",
         .help =
             "shows what would start where, with kubernetes the pod's manifest, with slurm and "
             "command the command line, and starts nothing, as does =client; =server also asks the "
             "cluster whether it would accept the pod"},
    [RUN_JSON] = {"json", 0, CLI_FLAG,
                  .help =
                      "with --dry-run: the plan as JSON; else the result, as one line of JSON on "
                      "standard error"},
    [RUN_OVERSUBSCRIBE] = {"oversubscribe", 0, CLI_FLAG, .also = "O overcommit",
                           .help = "allows more ranks than processors without a warning"},
    [RUN_VERBOSE] =
        {"verbose", 'v', CLI_FLAG,
         .help = "prints what fiber does and which variables it sets; twice: also what each rank "
                 "does; three times: also each fence of MPI between hosts"},
    [RUN_QUIET] = {"quiet", 'q', CLI_FLAG,
                   .help = "prints no summary of a failure and no waiting messages, but still an "
                           "error if a program cannot start"},
    [RUN_MCA] = {"mca", 0, CLI_PAIR, "KEY VALUE", .also = "gmca omca",
                 .help = "a parameter of Open MPI: sets " FBR_MCA_PREFIX "KEY"},
    [RUN_GENV] = {"genv", 0, CLI_PAIR, "VAR VALUE", .also = "-env",
                  .help = "the same as -x VAR=VALUE"},
    [RUN_NOTHING] = {"allow-run-as-root", 0, CLI_NOTHING,
                     .also =
                         "nooversubscribe standalone no_python "
                         "no-python use_env use-env bind-to-core byslot bycore disable-recovery "
                         "noprefix genvall envall get-stack-traces leave-session-attached "
                         "show-progress "
                         "report-state-on-timeout report-child-jobs-separately do-not-resolve "
                         "print-all-exitcodes pmi-port enable-x disable-x unbuffered u run_path "
                         "run-path novm use-regexp",
                     .help = "has no effect"},
    [RUN_NOTHING_ARGUMENT] =
        {"mpi", 0, CLI_NOTHING, "X",
         .also = "rdzv-backend rdzv_backend rdzv-id rdzv_id rdzv-conf rdzv_conf role "
                 "monitor-interval monitor_interval start-method start_method "
                 "local-addr local_addr personality launcher launcher-exec "
                 "launch-agent prefix rmk topolib demux usize order-nodes "
                 "localhost nameserver stream-buffering signals-to-handle signals_to_handle "
                 "event-log-handler event_log_handler logs-specs logs_specs",
         .help = "has no effect; all bootstraps of MPI are always available"},
    [RUN_KILL] = {"kill-on-bad-exit", 0, CLI_FLAG, .max = 1, .foreign = true, .also = "K",
                  .help = "ranks are ended when one fails; use --on-failure shrink to let the "
                          "others go on"},
    [RUN_HWTHREADS] = {"use-hwthread-cpus", 0, CLI_FLAG, .foreign = true,
                       .help = "--bind-to hwthread, unless another one is given"},
    [RUN_TIME] = {"time", 't', CLI_TEXT, "T", .foreign = true, .also = "t",
                  .help = "minutes, minutes:seconds, hours:minutes:seconds, "
                          "days-hours[:minutes[:seconds]], as in srun: sets --timeout of the run; "
                          "FIBER_SLURM_TIME limits its jobs"},
    [RUN_REFUSED] =
        {"rank-by", 0, CLI_REFUSED, "X",
         .help =
             "ranks are numbered host by host, as by slot: omit it. To spread them over a host use "
             "--map-by"},
    {"cpu-list", 0, CLI_REFUSED, "LIST", .also = "cpu-set slot-list rankfile rf",
     .help = "use --bind-to, --map-by and --cpus-per-rank. To use only some "
             "processors of this machine: taskset -c LIST fiber run ..."},
    {"node-rank", 0, CLI_REFUSED, "R", .also = "node_rank",
     .help = "one `fiber run` starts the ranks of all hosts: use --nodes and --per-node"},
    {"master-addr", 0, CLI_REFUSED, "A",
     .also = "master_addr master-port master_port rdzv-endpoint rdzv_endpoint",
     .help = "ranks find each other without it: omit it"},
    {"c", 0, CLI_REFUSED, "N",
     .help = "use -n for ranks, as -c of mpirun; --cpus-per-rank for "
             "processors, as -c of srun"},
    {"pernode", 0, CLI_REFUSED, .help = "use --per-node 1, with --nodes"},
    {"hint", 0, CLI_REFUSED, "X",
     .help = "use --bind-to core for nomultithread, --bind-to hwthread for multithread"},
    {"nolocal", 0, CLI_REFUSED, .help = "name the other hosts with -H or --hostfile"},
    {"bynode", 0, CLI_REFUSED, .also = "distribution",
     .help = "ranks are numbered host by host. For fewer on each host, use --per-node or "
             "--map-by node"},
    {"bind-to-socket", 0, CLI_REFUSED,
     .also = "npersocket ntasks-per-socket ppr membind bysocket mem-bind numa-binding "
             "numa_binding",
     .help = "use --bind-to package or numa, which also binds memory, --map-by "
             "package, or --map-by ppr:M:node"},
    {"app", 0, CLI_REFUSED, "FILE", .also = "configfile multi-prog",
     .help = "separate several programs by ':': fiber run -n 1 A : -n 3 B"},
    {"tune", 0, CLI_REFUSED, "FILE", .also = "am",
     .help = "use --mca KEY VALUE for each parameter in it"},
    {"pmixmca", 0, CLI_REFUSED, "KEY VALUE", .also = "gpmixca prtemca",
     .help = "it is for mpirun itself, which Fiber does not use: omit it"},
    {"genvlist", 0, CLI_REFUSED, "A,B", .also = "envlist", .help = "use -x for each: -x A -x B"},
    {"genvnone", 0, CLI_REFUSED, .also = "envnone",
     .help = "ranks of this host get the whole environment; to start with an empty "
             "one: env -i PATH=\"$PATH\" fiber run ..."},
    {"preload-binary", 0, CLI_REFUSED, .also = "s preload-files bcast send-libs",
     .help = "put the program and its files into a folder that the hosts share, or into the image"},
    {"path", 0, CLI_REFUSED, "DIR", .help = "use -x PATH=DIR:$PATH, or name the program with DIR"},
    {"set-cwd-to-session-dir", 0, CLI_REFUSED, .help = "use --workdir DIR"},
    {"display", 0, CLI_REFUSED, "X",
     .help = "use --display-map for the plan, --report-bindings for the result"},
    {"tee", 0, CLI_REFUSED, "X",
     .also = "redirects r e error errfile-pattern prepend-pattern merge-stderr-to-stdout "
             "xml xterm local-ranks-filter local_ranks_filter",
     .help = "use --output DIR for files, --tag and --timestamp to label lines, 2>&1 for one "
             "stream"},
    {"disable-auto-cleanup", 0, CLI_REFUSED, .also = "with-ft enable-recovery continuous",
     .help = "use --on-failure shrink, so that the others go on without a failed "
             "rank, or replace"},
    {"debug", 0, CLI_REFUSED, .also = "tv debugger d debug-daemons",
     .help = "use `fiber stack RUN` to see what ranks are doing, or gdb -p with "
             "the process id that `fiber top` shows"},
    {"detach", 0, CLI_REFUSED, .also = "background",
     .help = "use nohup fiber run ... &, which outlives the terminal; `fiber ps`, "
             "`fiber logs -f RUN` and `fiber kill RUN` find it"},
    {"iface", 0, CLI_REFUSED, "X", .help = "use FIBER_BIND=X fiber run ..."},
    {"m", 0, CLI_REFUSED, "MODULE", .also = "module",
     .help = "for torchrun's module use the program: fiber run ... python3 -m MODULE; "
             "for srun's distribution use --per-node"},
    {"partition", 0, CLI_REFUSED, "X",
     .also = "p account A qos exclusive reservation constraint C exclude "
             "dependency comment contiguous licenses begin immediate exact overlap "
             "mail-type mail-user signal nice hold deadline threads-per-core ntasks-per-core "
             "mincpus switches tmp wckey cpu-freq gres-flags core-spec S time-min",
     .help = "use the settings slurm_partition, slurm_account and slurm_qos, and slurm_options for "
             "all others: FIBER_SLURM_OPTIONS=\"--nice=5 --comment=X\" fiber run ..."},
    {"report-pid", 0, CLI_REFUSED, "X", .also = "report-uri",
     .help = "the process is `fiber run` itself: $! in the shell, and `fiber ps` shows "
             "it"},
    {"gpus", 0, CLI_REFUSED, "N", .also = "gres G gpus-per-node gpus-per-socket",
     .help = "use --gpus-per-rank"},
    {"gpu-bind", 0, CLI_REFUSED, "X", .also = "virtual-local-rank virtual_local_rank",
     .help =
         "with --gpus-per-rank each rank sees only its own GPUs, the nearest to its processors: "
         "omit it"},
    {"cpus-per-gpu", 0, CLI_REFUSED, "N", .also = "mem-per-gpu mem-per-cpu",
     .help = "use --cpus-per-rank, and --mem, which is for all ranks of a job"},
    {"wait", 0, CLI_REFUSED, "SECONDS", .also = "W",
     .help = "when a rank has ended, the others run on, as with --wait 0; they are ended when one "
             "fails: omit it. To limit the whole run use --timeout"},
};

/* ---- Placement ---- */

/* Translates other launchers' words; NULL if the word is one of ours, or unknown: the plan checks
 * those. */
static const char *our_word(const char *word, size_t len)
{
    static const char *const words[][2] = {
        {"socket", "package"},  {"sockets", "package"},
        {"l3cache", "l3"},      {"slot", "compact"},
        {"slots", "compact"},   {"node", "compact"},
        {"cores", "core"},      {"threads", "hwthread"},
        {"thread", "hwthread"}, {"hwthreads", "hwthread"},
        {"ldoms", "numa"},      {"no", "none"},
        {"numa", "numa"},       {"core", "core"},
        {"package", "package"}, {"l3", "l3"},
        {"none", "none"},       {"hwthread", "hwthread"},
        {"compact", "compact"}, {"spread", "spread"},
        {"gpu", "gpu"},         {"scatter", "spread"},
        {"bunch", "compact"},
    };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strlen(words[i][0]) == len && !strncasecmp(words[i][0], word, len))
            return words[i][1];
    return NULL;
}

#define BIND_WORDS run_option_table[RUN_BIND_TO].words
#define MAP_WORDS run_option_table[RUN_MAP_BY].words

static int take_bind(struct run_options *s, const char *text, struct fbr_error *err)
{
    size_t len = strcspn(text, ":");
    const char *word = our_word(text, len);

    if (!word || fbr_word_index(BIND_WORDS, word) < 0)
        return cli_bad_word("--bind-to", text, len, BIND_WORDS, err);
    if (!strcasecmp(text + len, ":overload-allowed") || !strcasecmp(text + len, ":overload"))
        s->ring.flags |= FIBER_RING_OVERSUBSCRIBE;
    else if (text[len] && strcasecmp(text + len, ":if-supported") != 0)
        return fbr_fail(err, -EINVAL, "--bind-to: \"%.64s\" is not known after %.*s", text + len,
                        (int)len, text);
    s->ring.bind_to = word;
    return 0;
}

static int take_count(const char *text, size_t len, const char *what, int *out,
                      struct fbr_error *err)
{
    char *end;
    long v = strtol(text, &end, 10);

    if (end == text || end != text + len || v < 1 || v > 65536)
        return fbr_fail(err, -EINVAL, "--map-by: \"%.*s\" is not a number of %s", (int)len, text,
                        what);
    *out = (int)v;
    return 0;
}

/* Parses ":PE=2:OVERSUBSCRIBE", or ":PE=2,OVERSUBSCRIBE" as Open MPI 4 writes it. */
static int take_modifiers(struct run_options *s, const char *at, struct fbr_error *err)
{
    int rc = 0;

    while (*at && rc == 0) {
        size_t len = strcspn(++at, ":,");

        if (!strncasecmp(at, "pe=", 3))
            rc = take_count(at + 3, len - 3, "processors", &s->ring.cpus_per_rank, err);
        else if (len == 13 && !strncasecmp(at, "oversubscribe", len))
            s->ring.flags |= FIBER_RING_OVERSUBSCRIBE;
        else if (!(len == 15 && !strncasecmp(at, "nooversubscribe", len)) &&
                 !(len == 4 && !strncasecmp(at, "span", len)))
            rc = fbr_fail(err, -EINVAL,
                          "--map-by: \"%.*s\" is not known; use :PE=N or :OVERSUBSCRIBE",
                          (int)(len < 40 ? len + 1 : 41), at - 1);
        at += len;
    }
    return rc;
}

static int take_map(struct run_options *s, const char *text, struct fbr_error *err)
{
    size_t len = strcspn(text, ":");
    const char *word;
    int rc;

    if (text[0] == ':') /* :OVERSUBSCRIBE */
        return take_modifiers(s, text, err);
    if (len == 3 && !strncasecmp(text, "ppr", 3) && text[3]) { /* ppr:M:node */
        const char *count = text + 4, *what = count + strcspn(count, ":");

        rc = take_count(count, (size_t)(what - count), "ranks", &s->ring.per_node, err);
        if (rc < 0)
            return rc;
        if (strncasecmp(what, ":node", 5) != 0 || (what[5] && what[5] != ':'))
            return fbr_fail(
                err, -EINVAL,
                "--map-by %s: only ppr:M:node is known; to spread ranks over a host use --map-by "
                "numa or package",
                text);
        return take_modifiers(s, what + 5, err);
    }
    word = our_word(text, len);
    if (!word || fbr_word_index(MAP_WORDS, word) < 0)
        return cli_bad_word("--map-by", text, len, MAP_WORDS, err);
    s->by_node = len == 4 && !strncasecmp(text, "node", 4);
    if (s->by_node)
        snprintf(s->note, sizeof(s->note),
                 "--map-by node: Fiber fills one host after the other; for fewer ranks on each, "
                 "use --per-node");
    s->ring.map_by = word;
    return take_modifiers(s, text + len, err);
}

/* ---- All of it ---- */

/* Open MPI 5 accepts other words after --output, where Fiber expects a directory. */
static int check_output(const char *dir, struct fbr_error *err)
{
    static const char *const words[] = {"tag", "timestamp", "xml", "merge", "rank"};

    for (size_t i = 0; dir && i < sizeof(words) / sizeof(words[0]); i++)
        if (!strncasecmp(dir, words[i], strlen(words[i])) &&
            strchr(",:", dir[strlen(words[i])])) /* also matches the NUL */
            return fbr_fail(err, -EINVAL,
                            "--output: a directory was expected; for %s use --tag or --timestamp, "
                            "for a directory of that name ./%.64s",
                            dir, dir);
    return 0;
}

static int asked_size(const struct run_options *s, const struct cli_args *args)
{
    const struct cli_value *n = &args->values[RUN_N];

    return s->programs.count ? run_apps_ranks(&s->programs) : n->text ? (int)n->number : 0;
}

static int take_size(struct run_options *s, const struct cli_args *args, struct fbr_error *err)
{
    int nodes = s->ring.nodes, per_node = s->ring.per_node, asked = asked_size(s, args);
    long long most = (long long)nodes * per_node;

    if (most > RUN_RANKS_MAX && !asked)
        return fbr_fail(err, -EINVAL, "%d nodes with %d ranks each are more than %d ranks", nodes,
                        per_node, RUN_RANKS_MAX);
    s->sized = asked;
    s->size = asked ? asked : most ? (int)most : nodes || per_node ? nodes + per_node : 1;
    if (most > 0 && s->size > most)
        return fbr_fail(err, -EINVAL,
                        "%d ranks do not fit on --nodes %d with --per-node %d; omit one of the "
                        "three options",
                        s->size, nodes, per_node);
    if (nodes > s->size)
        return fbr_fail(err, -EINVAL, "%d nodes are more than %d ranks", nodes, s->size);
    return 0;
}

/* Reads --hostfile, and -H, which selects among the hosts of the files if there are any. */
static int take_names(struct run_options *s, const struct cli_args *args, struct fbr_error *err)
{
    const struct cli_value *list = &args->values[RUN_HOSTS], *files = &args->values[RUN_HOSTFILE];
    struct run_hosts only = {0};
    int rc = 0;

    for (size_t i = 0; i < files->count; i++)
        if (run_hosts_read(&s->hosts, files->list[i], err) < 0)
            return fbr_wrap(err, "--hostfile");
    for (size_t i = 0; i < list->count; i++)
        if ((rc = run_hosts_list(files->count ? &only : &s->hosts, list->list[i], err)) < 0)
            goto done;
    if (only.n)
        rc = run_hosts_choose(&s->hosts, &only, err);
done:
    run_hosts_fini(&only);
    return rc;
}

/* The backend `command` reaches other hosts, `local` this one. */
static int check_backend(struct run_options *s, const struct cli_args *args, struct fbr_error *err)
{
    const char *asked = args->values[RUN_BACKEND].text;
    const struct fbr_backend_about *about = asked ? fbr_backend_about(asked) : NULL;
    bool command = asked && !strcmp(asked, RUN_HOSTS_BACKEND), here = run_hosts_here(&s->hosts);

    if (args->values[RUN_IN_CLUSTER].number)
        return fbr_fail(err, -EINVAL,
                        "-H and --hostfile name hosts for ssh, and --in-cluster runs in pods: omit "
                        "one of them");
    s->ring.backend = here && !command ? FBR_BACKEND_LOCAL : RUN_HOSTS_BACKEND;
    if (asked && !command && strcmp(asked, "auto") != 0 && strcmp(asked, s->ring.backend) != 0)
        return fbr_fail(err, -EINVAL,
                        "-H and --hostfile name hosts for ssh (--backend command), and not for "
                        "--backend %s: omit one of them%s",
                        asked, about && about->hosts ? about->hosts : "");
    return 0;
}

/* Whether the user has not chosen where jobs run. A rank of a ring has its place already. */
static bool may_be_allocated(const struct cli_args *args)
{
    const char *asked = args->values[RUN_BACKEND].text;
    const struct fbr_runtime *rt = fbr_rt_any();

    return (!asked || !strcmp(asked, "auto")) && !args->values[RUN_IN_CLUSTER].number &&
           !getenv("FIBER_RANK") &&
           (!rt || (!strcmp(fbr_config_str(rt->config, "backend"), "auto") &&
                    !strcmp(fbr_rt_backend_name(rt, NULL), FBR_BACKEND_LOCAL)));
}

/* All hosts are this host: no ssh is needed, and of the slots only max_slots is a limit. */
static int take_local(struct run_options *s, const struct cli_args *args, struct fbr_error *err)
{
    int64_t slots = run_hosts_slots(&s->hosts), most = run_hosts_most(&s->hosts);
    int rc;

    run_hosts_fini(&s->hosts);
    rc = take_size(s, args, err);
    if (rc < 0)
        return rc;
    if (!s->sized && s->ring.nodes <= 1 && !s->ring.per_node)
        s->size = slots < RUN_RANKS_MAX ? (int)slots : RUN_RANKS_MAX;
    if (most && s->size > most)
        return fbr_fail(err, -EINVAL, "%d ranks are more than max_slots=%lld of this host", s->size,
                        (long long)most);
    return 0;
}

/* The hosts of an allocation become the ring's nodes. */
static int take_allocation(struct run_options *s, const struct cli_args *args,
                           struct fbr_error *err)
{
    struct fiber_ring_options *o = &s->ring;
    struct run_allocation a;
    int rc = run_allocation_find(&a, err);

    if (rc < 0 || !a.hosts.n)
        return rc < 0 ? rc : take_size(s, args, err);
    s->hosts = a.hosts;
    s->size = asked_size(s, args);
    if (run_hosts_here(&s->hosts) && (s->size || a.copies < 2)) {
        o->backend = FBR_BACKEND_LOCAL;
        return take_local(s, args, err);
    }
    o->backend = RUN_HOSTS_BACKEND;
    s->sized = true;
    s->start = a.start;
    if ((rc = run_allocation_room(&a, &s->room.room, err)) < 0 ||
        (rc = fbr_ring_capacity_use(&s->room, &s->size, o, err)) < 0)
        return rc;
    s->names = (const char *const *)s->room.room.names;
    run_hosts_cut(&s->hosts, (size_t)o->nodes);
    return 0;
}

static int take_hosts(struct run_options *s, const struct cli_args *args, struct fbr_error *err)
{
    struct fiber_ring_options *o = &s->ring;
    struct run_hosts_wish wish = {.size = asked_size(s, args),
                                  .nodes = o->nodes,
                                  .per_node = o->per_node,
                                  .even = s->by_node,
                                  .oversubscribe = o->flags & FIBER_RING_OVERSUBSCRIBE};
    int rc = take_names(s, args, err);

    if (rc < 0)
        return rc;
    if (!s->hosts.n)
        return may_be_allocated(args) ? take_allocation(s, args, err) : take_size(s, args, err);
    rc = check_backend(s, args, err);
    if (rc < 0)
        return rc;
    if (!strcmp(o->backend, FBR_BACKEND_LOCAL))
        return take_local(s, args, err);
    s->size = run_hosts_fit(&s->hosts, &wish, err);
    o->nodes = (int)s->hosts.n;
    o->slots = s->hosts.ranks;
    s->names = s->hosts.names;
    s->sized = true;
    o->per_node = 0;
    if (s->by_node)
        snprintf(s->note, sizeof(s->note),
                 "--map-by node: the ranks are spread evenly, but numbered host by host");
    return s->size < 0 ? s->size : 0;
}

static int take_programs(struct run_options *s, const struct cli_args *args, struct fbr_error *err)
{
    struct fiber_ring_options *o = &s->ring;

    o->programs = s->programs.list;
    o->nprograms = s->programs.count;
    if (o->nprograms == 0)
        o->job.command = (const char *const *)args->operands;
    /* --workdir applies to the first program, as in mpirun */
    else
        o->job.workdir = NULL;
    if (!args->operands[0][0])
        return fbr_fail(err, -EINVAL, "the program's name is empty");
    return 0;
}

static unsigned flags_of(const struct cli_value *v)
{
    return (v[RUN_TAG].number ? FIBER_RING_TAG : 0) |
           (v[RUN_TIMESTAMP].number ? FIBER_RING_TIMESTAMP : 0) |
           (v[RUN_REPORT].number ? FIBER_RING_REPORT : 0) |
           (v[RUN_STDIN].text && !strcmp(v[RUN_STDIN].text, "none") ? 0 : FIBER_RING_STDIN) |
           (v[RUN_PTY].text ? FIBER_RING_PTY : 0) |
           (v[RUN_QUIET].number || (v[RUN_JSON].number && !v[RUN_DRY_RUN].number) ? FIBER_RING_QUIET
                                                                                  : 0) |
           (v[RUN_OVERSUBSCRIBE].number ? FIBER_RING_OVERSUBSCRIBE : 0);
}

static void take_pty(struct run_options *s, const struct cli_value *v)
{
    s->pty_named = v->text && v->text[0];
    s->ring.pty_rank = s->pty_named ? (int)v->number : 0;
}

/* ---- Options of mpirun, srun and torchrun, in their own words and units ---- */

static unsigned count_gpus(void)
{
    struct fbr_error err = {0, ""};
    const struct fbr_pin_ops *pin = fbr_pin_load(&err);
    struct fbr_topology_facts facts = {0};
    struct fbr_topology *t;

    if (!pin || pin->open(&t, NULL, FBR_TOPOLOGY_DEVICES, &err) < 0)
        return 0;
    pin->facts(t, &facts);
    pin->close(t);
    return facts.gpus;
}

static unsigned count_cpus(void)
{
    struct fbr_cgroup limits;

    fbr_cgroup_read(&limits);
    return fbr_cgroup_cpus(&limits);
}

/* Parses the ranks on each host: a number, or torchrun's auto, cpu, gpu, which are counted here.
 * -EINVAL. */
static int foreign_per_node(const struct cli_value *v, int *per_node, struct fbr_error *err)
{
    unsigned gpus;

    if (!v->text)
        return 0;
    if (!isalpha((unsigned char)v->text[0])) {
        *per_node = (int)v->number;
        return 0;
    }
    gpus = strcmp(v->text, "cpu") != 0 ? count_gpus() : 0;
    if (!strcmp(v->text, "gpu") && gpus == 0)
        return fbr_fail(err, -EINVAL, "--per-node gpu: there is no GPU here; use a number");
    *per_node = (int)(gpus ? gpus : count_cpus());
    return 0;
}

/* Parses a time of sbatch(1): minutes, minutes:seconds, hours:minutes:seconds, days-hours,
 * days-hours:minutes, days-hours:minutes:seconds. -1: none of these. */
static int64_t srun_seconds(const char *text)
{
    static const int64_t of_days[] = {3600, 60, 1}, of_two[] = {60, 1};
    const char *dash = strchr(text, '-'), *at = dash ? dash + 1 : text;
    const int64_t *unit;
    int64_t part[3], all = 0;
    int n = 0;

    for (bool more = true; more; at += more) {
        char *end;

        if (n == 3 || !isdigit((unsigned char)*at))
            return -1;
        part[n] = strtoll(at, &end, 10);
        if (part[n++] > INT32_MAX)
            return -1;
        at = end;
        more = *at == ':';
    }
    if (*at || (dash && (dash == text || dash - text > 4)))
        return -1;
    for (const char *d = text; dash && d < dash; d++) {
        if (!isdigit((unsigned char)*d))
            return -1;
        all = all * 10 + (*d - '0');
    }
    unit = dash || n == 3 ? of_days : of_two;
    all *= 86400;
    for (int i = 0; i < n; i++)
        all += part[i] * unit[i];
    return all;
}

static int take_time(struct run_options *s, const struct cli_args *args, struct fbr_error *err)
{
    const char *text = args->values[RUN_TIME].text;
    int64_t seconds = text ? srun_seconds(text) : 0;

    if (!text)
        return 0;
    if (seconds <= 0 || seconds > INT32_MAX / 1000)
        return fbr_fail(err, -EINVAL,
                        "--time: \"%.64s\" is not a time as srun has it (minutes, hours:minutes:"
                        "seconds, days-hours), up to 24 days; --timeout takes 90s or 2h",
                        text);
    if (args->values[RUN_TIMEOUT].text)
        return 0;
    s->ring.timeout_ms = (int)seconds * 1000;
    snprintf(s->note, sizeof(s->note), "--time %.32s is read as in srun: --timeout %llds", text,
             (long long)seconds);
    return 0;
}

static int check_stdin(const char *text, struct fbr_error *err)
{
    if (!text || !strcmp(text, "0") || !strcmp(text, "none"))
        return 0;
    return fbr_fail(err, -EINVAL,
                    "--stdin %.64s: only rank 0 can read standard input; to give other ranks a "
                    "file, use sh -c 'exec PROGRAM <FILE'",
                    text);
}

/* Applies the other foreign options that were given. -EINVAL and a message. */
static int foreign_take(struct run_options *s, const struct cli_args *args, struct fbr_error *err)
{
    const struct cli_value *v = args->values;
    int rc;

    if ((rc = take_time(s, args, err)) < 0 || (rc = check_stdin(v[RUN_STDIN].text, err)) < 0)
        return rc;
    if (v[RUN_KILL].text && !strcmp(v[RUN_KILL].text, "0"))
        return fbr_fail(err, -EINVAL,
                        "--kill-on-bad-exit=0: use --on-failure shrink to let the others go on "
                        "when a rank fails");
    if (v[RUN_MEM].number > 0 && v[RUN_MEM].number < 1 << 20)
        return fbr_fail(err, -EINVAL,
                        "--mem %.32s is less than 1 MiB: without a unit it is in bytes, and not in "
                        "MiB as in srun; use Mi or Gi",
                        v[RUN_MEM].text);
    if (v[RUN_HWTHREADS].text && !s->ring.bind_to)
        s->ring.bind_to = "hwthread";
    return 0;
}

/* ---- All of it ---- */

int run_options_make(struct run_options *s, const struct cli_args *args, struct fbr_error *err)
{
    const struct cli_value *v = args->values;
    struct fiber_ring_options *o = &s->ring;
    int rc;

    memset(s, 0, sizeof(*s));
    o->size = sizeof(*o);
    o->flags = flags_of(v);
    o->job.image = v[RUN_IMAGE].text;
    o->job.memory = (uint64_t)v[RUN_MEM].number;
    o->job.name = v[RUN_NAME].text;
    o->job.workdir = v[RUN_WORKDIR].text;
    o->nodes = (int)v[RUN_NODES].number;
    o->gpus_per_rank = (int)v[RUN_GPUS].number;
    o->on_failure = v[RUN_ON_FAILURE].text       ? (enum fiber_ring_policy)v[RUN_ON_FAILURE].number
                    : v[RUN_MAX_RESTARTS].number ? FIBER_RING_RESTART
                                                 : FIBER_RING_ABORT;
    o->max_restarts = (int)v[RUN_MAX_RESTARTS].number;
    o->timeout_ms = (int)v[RUN_TIMEOUT].number;
    o->output_dir = v[RUN_OUTPUT].text;
    /* no restarts; for the ring 0 means the default */
    if (v[RUN_MAX_RESTARTS].text && !o->max_restarts) {
        if (o->on_failure == FIBER_RING_RESTART)
            o->on_failure = FIBER_RING_ABORT;
        else if (o->on_failure == FIBER_RING_REPLACE)
            o->on_failure = FIBER_RING_SHRINK;
    }
    take_pty(s, &v[RUN_PTY]);
    if ((rc = check_output(o->output_dir, err)) < 0 ||
        (v[RUN_BIND_TO].text && (rc = take_bind(s, v[RUN_BIND_TO].text, err)) < 0) ||
        (v[RUN_MAP_BY].text && (rc = take_map(s, v[RUN_MAP_BY].text, err)) < 0) ||
        (rc = foreign_take(s, args, err)) < 0 ||
        (rc = foreign_per_node(&v[RUN_PER_NODE], &o->per_node, err)) < 0)
        goto fail;
    if (v[RUN_CPUS].text)
        o->cpus_per_rank = (int)v[RUN_CPUS].number;
    if ((rc = run_apps_take(&s->programs, args, err)) < 0 ||
        (rc = take_programs(s, args, err)) < 0 || (rc = take_hosts(s, args, err)) < 0 ||
        (rc = run_env_take(&s->env, args, err)) < 0)
        goto fail;
    o->job.env = (const char *const *)s->env.list;
    return 0;
fail:
    run_options_fini(s);
    return rc;
}

static int check_pty(const struct run_options *s, struct fbr_error *err)
{
    if (!(s->ring.flags & FIBER_RING_PTY))
        return 0;
    if (!s->pty_named && s->size > 1)
        return fbr_fail(err, -EINVAL,
                        "--pty: only one of the %d ranks can have the terminal; choose it with "
                        "--pty=RANK",
                        s->size);
    return s->ring.pty_rank < s->size
               ? 0
               : fbr_fail(err, -EINVAL, "--pty=%d: there is no such rank; the %d ranks start at 0",
                          s->ring.pty_rank, s->size);
}

int run_options_resolve(struct run_options *s, struct fbr_error *err)
{
    int size = s->sized ? s->size : 0, rc = fbr_ring_capacity_ask(&s->room, &size, &s->ring, err);

    if (rc < 0)
        return rc;
    s->size = size ? size : s->size;
    if (s->room.slots)
        s->names = (const char *const *)s->room.room.names;
    if (s->room.note[0])
        snprintf(s->note, sizeof(s->note), "%s", s->room.note);
    if (s->ring.output_dir && (rc = fbr_ring_output_check(s->ring.output_dir, s->size, err)) < 0)
        return rc;
    return check_pty(s, err);
}

void run_options_fini(struct run_options *s)
{
    fbr_ring_capacity_fini(&s->room);
    run_apps_fini(&s->programs);
    fbr_env_fini(&s->env);
    run_hosts_fini(&s->hosts);
}
