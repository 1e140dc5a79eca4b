/* run_options_test.c - what mpirun's spellings and our own mean to a ring.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/run_options.h"

static struct run_options spec;
static struct cli_args args;
static struct fbr_error err;

/* Splits at blanks. What it gives lives until done(). */
static int make(const char *line)
{
    static char text[512];
    char *argv[40], *save = NULL;
    int argc = 0, rc;

    snprintf(text, sizeof(text), "%s", line);
    for (char *word = strtok_r(text, " ", &save); word && argc < 40;
         word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    memset(&err, 0, sizeof(err));
    rc = cli_parse(cli_command_find("run"), argc, argv, &args, &err);
    if (rc == 0) {
        rc = run_options_make(&spec, &args, &err);
        if (rc < 0)
            cli_args_fini(&args);
    }
    return rc;
}

static void done(void)
{
    run_options_fini(&spec);
    cli_args_fini(&args);
}

static void placement_is_understood_as_mpirun_writes_it(void **state)
{
    static const struct {
        const char *line, *bind, *map;
        int cpus, per_node;
    } cases[] = {
        {"-np 4 -bind-to socket p", "package", NULL, 0, 0},
        {"-np 4 --bind-to core -map-by slot p", "core", "compact", 0, 0},
        {"-np 4 --map-by slot:PE=2 p", NULL, "compact", 2, 0},
        {"-np 4 --map-by numa:pe=3:OVERSUBSCRIBE p", NULL, "numa", 3, 0},
        {"-np 4 --map-by slot:OVERSUBSCRIBE,PE=2 p", NULL, "compact", 2, 0},
        {"-np 8 --map-by ppr:2:node p", NULL, NULL, 0, 2},
        {"-np 8 --map-by ppr:2:node:SPAN,pe=3 p", NULL, NULL, 3, 2},
        {"-np 8 --map-by ppr:2:node:PE=4 p", NULL, NULL, 4, 2},
        {"-np 8 --map-by L3cache --bind-to l3cache p", "l3", "l3", 0, 0},
        {"-n 8 -ppn 4 p", NULL, NULL, 0, 4},
        {"-n 8 -N 4 --cpus-per-task 2 p", NULL, NULL, 2, 4},
        {"-n 2 --map-by :OVERSUBSCRIBE p", NULL, NULL, 0, 0},
        {"-n 2 --map-by :PE=2 p", NULL, NULL, 2, 0},
        {"-n 2 --bind-to none --map-by scatter p", "none", "spread", 0, 0},
        {"-n 2 --bind-to core:overload p", "core", NULL, 0, 0},
        {"-n 2 --bind-to hwthread:overload-allowed p", "hwthread", NULL, 0, 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(make(cases[i].line), 0);
        assert_int_equal(!spec.ring.bind_to, !cases[i].bind);
        if (cases[i].bind)
            assert_string_equal(spec.ring.bind_to, cases[i].bind);
        assert_int_equal(!spec.ring.map_by, !cases[i].map);
        if (cases[i].map)
            assert_string_equal(spec.ring.map_by, cases[i].map);
        assert_int_equal(spec.ring.cpus_per_rank, cases[i].cpus);
        assert_int_equal(spec.ring.per_node, cases[i].per_node);
        done();
    }
}

static void the_number_of_ranks_follows_from_nodes(void **state)
{
    assert_int_equal(make("p"), 0);
    assert_int_equal(spec.size, 1);
    done();
    assert_int_equal(make("--nnodes 3 --nproc_per_node 4 p"), 0);
    assert_int_equal(spec.size, 12);
    done();
    assert_int_equal(make("--nnodes 1:3 p"), -22);
    assert_non_null(strstr(err.text, "the size of a ring is fixed"));
    assert_int_equal(make("--nproc_per_node=2 p"), 0); /* torchrun */
    assert_int_equal(spec.size, 2);
    done();
    assert_int_equal(make("--map-by ppr:3:node p"), 0);
    assert_int_equal(spec.size, 3);
    done();
    assert_int_equal(make("--nodes 2 p"), 0); /* srun */
    assert_int_equal(spec.size, 2);
    done();
    assert_int_equal(make("--nodes 3 --per-node 4 -n 10 p"), 0);
    assert_int_equal(spec.size, 10);
    done();
    assert_int_equal(make("--nodes 2 --per-node 4 -n 10 p"), -22);
    assert_non_null(strstr(err.text, "do not fit"));
    assert_int_equal(make("--nodes 4 -n 2 p"), -22);
}

static void several_programs_stand_behind_one_another(void **state)
{
    const struct fiber_ring_program *p;

    assert_int_equal(
        make("-x C=d -wdir /x --mem 1G -n 2 a -n : b : --np 3 --allow-run-as-root -x A=b "
             "-mca pml ob1 b -n 4 : -n1 c : d"),
        0);
    p = spec.ring.programs;
    assert_int_equal(spec.size, 6);
    assert_int_equal(spec.ring.nprograms, 3);
    assert_null(spec.ring.job.command);
    assert_null(spec.ring.job.workdir);
    assert_string_equal(spec.ring.job.env[0], "C=d");
    assert_int_equal(p[0].count, 2);
    assert_string_equal(p[0].workdir, "/x");
    assert_string_equal(p[0].command[1], "-n");
    assert_string_equal(p[0].command[3], "b");
    assert_null(p[0].command[4]);
    assert_null(p[0].env);
    assert_int_equal(p[1].count, 3);
    assert_null(p[1].workdir);
    assert_string_equal(p[1].command[2], "4");
    assert_null(p[1].command[3]);
    assert_string_equal(p[1].env[0], "A=b");
    assert_string_equal(p[1].env[1], "OMPI_MCA_pml=ob1");
    assert_int_equal(p[2].count, 1);
    assert_string_equal(p[2].command[1], ":");
    assert_string_equal(p[2].command[2], "d");
    done();
    assert_int_equal(make("expr a : b"), 0); /* it is not an option that stands behind it */
    assert_int_equal(spec.ring.nprograms, 0);
    assert_string_equal(spec.ring.job.command[2], ":");
    done();
}

/* They would be letters with their values glued to them, else: -l -o calhost. */
static void what_means_nothing_here_is_passed_over(void **state)
{
    static const char *const lines[] = {"-localhost x p",
                                        "-order-nodes asc p",
                                        "-rmk slurm -topolib hwloc p",
                                        "-prefix /usr p",
                                        "-genvall -envall p",
                                        "--leave-session-attached p",
                                        "-launcher-exec ssh p",
                                        "-nameserver h:1 p",
                                        "--rdzv_id=1 --rdzv_conf a=b p",
                                        "--kill-on-bad-exit=1 p",
                                        "-print-all-exitcodes p",
                                        "--monitor_interval=1 --role x p",
                                        "--export=ALL p",
                                        "--signals_to_handle=SIGTERM,SIGUSR1 p"};

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        if (make(lines[i]) < 0)
            fail_msg("%s: %s", lines[i], err.text);
        assert_string_equal(spec.ring.job.command[0], "p");
        assert_int_equal(spec.size, 1);
        assert_null(spec.ring.output_dir);
        assert_int_equal(spec.ring.flags, FIBER_RING_STDIN);
        done();
    }
}

static void variables_go_to_the_ranks(void **state)
{
    setenv("RUN_SPEC_HERE", "yes", 1);
    assert_int_equal(make("-x RUN_SPEC_HERE -x A=b=c --mca pml ob1 -genv D e p"), 0);
    assert_string_equal(spec.ring.job.env[0], "RUN_SPEC_HERE=yes");
    assert_string_equal(spec.ring.job.env[1], "A=b=c");
    assert_string_equal(spec.ring.job.env[2], "OMPI_MCA_pml=ob1");
    assert_string_equal(spec.ring.job.env[3], "D=e");
    assert_null(spec.ring.job.env[4]);
    done();
    assert_int_equal(make("-x RUN_SPEC_NOWHERE p"), -22);
    assert_non_null(strstr(err.text, "-x RUN_SPEC_NOWHERE=VALUE"));
    assert_int_equal(make("-x =b p"), -22);
}

static void failures_are_met_as_asked_for(void **state)
{
    static const struct {
        const char *line;
        int policy, restarts;
    } cases[] = {
        {"p", FIBER_RING_ABORT, 0},
        {"--on-failure replace p", FIBER_RING_REPLACE, 0},
        {"--max-restarts 5 p", FIBER_RING_RESTART, 5},
        {"--max_restarts=2 --on-failure replace p", FIBER_RING_REPLACE, 2},
        {"--max-restarts 0 p", FIBER_RING_ABORT, 0},
        {"--on-failure restart --max-restarts 0 p", FIBER_RING_ABORT, 0},
        {"--on-failure replace --max-restarts 0 p", FIBER_RING_SHRINK, 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(make(cases[i].line), 0);
        assert_int_equal(spec.ring.on_failure, cases[i].policy);
        assert_int_equal(spec.ring.max_restarts, cases[i].restarts);
        done();
    }
}

static void output_and_input_are_flags(void **state)
{
    assert_int_equal(make("p"), 0);
    assert_int_equal(spec.ring.flags, FIBER_RING_STDIN);
    done();
    assert_int_equal(
        make("--stdin none -l --timestamp -q --report-bindings --oversubscribe -o dir p"), 0);
    assert_int_equal(spec.ring.flags, FIBER_RING_TAG | FIBER_RING_TIMESTAMP | FIBER_RING_QUIET |
                                          FIBER_RING_REPORT | FIBER_RING_OVERSUBSCRIBE);
    assert_string_equal(spec.ring.output_dir, "dir");
    done();
}

/* The ranks of each host, "a=2 b=1"; none where the backend is local. */
static const char *spread(void)
{
    static char text[256];
    int n = 0;

    text[0] = '\0';
    for (int i = 0; spec.ring.slots && i < spec.ring.nodes; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%s=%d", i ? " " : "",
                      spec.hosts.names[i], spec.ring.slots[i]);
    return text;
}

static void hosts_are_nodes(void **state)
{
    static const struct {
        const char *line, *spread;
        int size;
    } cases[] = {
        {"-H a,b:2 p", "a=1 b=2", 3},
        {"-host a:2,b:4 -np 4 p", "a=2 b=2", 4},
        {"-hosts a,b,c --per-node 2 p", "a=2 b=2 c=2", 6},
        {"-H a,b -ppn 2 -n 3 p", "a=2 b=1", 3},
        {"-H a,b --map-by ppr:2:node p", "a=2 b=2", 4},
        {"-H a:4,b:4 -n 4 --map-by node p", "a=2 b=2", 4},
        {"-H a:4,b:4 -n 4 --map-by slot p", "a=4", 4},
        {"-H a:2,b:2 -n 2 p", "a=2", 2},
        {"-H a -H b,a p", "a=2 b=1", 3},
        {"-w a,b,c --nodes 2 p", "a=1 b=1", 2},
        {"-H a,b:3 -n 8 --oversubscribe p", "a=3 b=5", 8},
        {"-H a -n 3 --map-by :OVERSUBSCRIBE p", "a=3", 3},
        {"-H a,localhost -b command p", "a=1 localhost=1", 2},
        {"-H localhost:2 -b command p", "localhost=2", 2},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (make(cases[i].line) < 0)
            fail_msg("%s: %s", cases[i].line, err.text);
        assert_string_equal(spread(), cases[i].spread);
        assert_int_equal(spec.size, cases[i].size);
        assert_string_equal(spec.ring.backend, "command");
        assert_int_equal(spec.ring.per_node, 0);
        done();
    }
}

/* mpirun -H localhost:4 needs no ssh. */
static void this_host_is_the_local_backend(void **state)
{
    static const struct {
        const char *line;
        int size, nodes, per_node;
    } cases[] = {
        {"-H localhost:4 p", 4, 0, 0},
        {"-H localhost,localhost p", 2, 0, 0},
        {"-H 127.0.0.1 -n 3 p", 3, 0, 0},
        {"-H localhost -b local -n 4 -N 2 p", 4, 0, 2},
        {"-H localhost:4 --nodes 2 -n 4 -b auto p", 4, 2, 0},
        {"-H localhost:4 --nodes 1 p", 4, 1, 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(make(cases[i].line), 0);
        assert_string_equal(spec.ring.backend, "local");
        assert_int_equal(spec.size, cases[i].size);
        assert_int_equal(spec.ring.nodes, cases[i].nodes);
        assert_int_equal(spec.ring.per_node, cases[i].per_node);
        assert_null(spec.ring.slots);
        assert_int_equal(spec.hosts.n, 0);
        done();
    }
    assert_int_equal(make("-n 2 p"), 0);
    assert_null(spec.ring.backend);
    done();
}

static void max_slots_hold_on_this_host_too(void **state)
{
    char path[] = "/tmp/run_spec-XXXXXX", line[64];
    int fd = mkstemp(path);

    assert_true(fd >= 0 && write(fd, "localhost slots=4 max_slots=8\n", 30) == 30);
    close(fd);
    snprintf(line, sizeof(line), "--hostfile %s -n 8 p", path);
    assert_int_equal(make(line), 0);
    assert_int_equal(spec.size, 8);
    done();
    snprintf(line, sizeof(line), "--hostfile %s -n 9 p", path);
    assert_int_equal(make(line), -22);
    assert_non_null(strstr(err.text, "max_slots=8"));
    unlink(path);
}

static void what_cannot_be_met_is_refused_with_what_to_do(void **state)
{
    static const struct {
        const char *line, *text;
    } cases[] = {
        {"--bind-to cor p", "did you mean core?"},
        {"--map-by sprd p", "did you mean spread?"},
        {"--map-by ppr:2:socket p", "only ppr:M:node"},
        {"--map-by ppr:x:node p", "\"x\" is not a number of ranks"},
        {"--map-by slot:PE=0 p", "\"0\" is not a number of processors"},
        {"--map-by slot:NOLOCAL p", "\":NOLOCAL\" is not known"},
        {"--bind-to core:overload-garbage p", "\":overload-garbage\" is not known after core"},
        {"--map-by slot:PE=1,garbage p", "\",garbage\" is not known"},
        {"--map-by slot:PE=1, p", "\",\" is not known"},
        {"--map-by ppr:2:nodefoo p", "ppr:2:nodefoo: only ppr:M:node is known"},
        {"--rank-by core p", "--map-by"},
        {"--genv A=b c p", "\"A=b\" is not a name"},
        {"--nodes 65536 --per-node 65536 p", "more than 1048576 ranks"},
        {"-H a,b -n 3 p", "3 ranks are more than the 2 slots of 2 hosts: add --oversubscribe"},
        {"-H a,b --per-node 2 -n 5 p", "do not fit on 2 hosts with 2 each"},
        {"--nodes 1 --per-node 1 -n 2 p", "2 ranks do not fit on --nodes 1 with --per-node 1"},
        {"--timeout 30000h p", "from 0ms to 576h"},
        {"--mem 4096 p", "--mem 4096 is less than 1 MiB: without a unit it is in bytes"},
        {"--export=NONE p", "env -i PATH="},
        {"-H a,b --nodes 3 p", "only 2 hosts are named"},
        {"-H a,-b p", "\"-b\" is not a host"},
        {"-H a -b docker p", "not for --backend docker"},
        {"-H a -b local p", "not for --backend local"},
        {"-w n1,n2 -b slurm p", "FIBER_SLURM_OPTIONS=--nodelist"},
        {"-H a --in-cluster p", "runs in pods"},
        {"-c 4 p", "--cpus-per-rank"},
        {"-pernode p", "--per-node 1"},
        {"-npersocket 2 p", "--map-by package"},
        {"-bynode p", "numbered host by host"},
        {"-membind numa p", "--bind-to package or numa"},
        {"-configfile f", "fiber run -n 1 A : -n 3 B"},
        {"-am f p", "--mca KEY VALUE"},
        {"-genvlist A,B p", "-x A -x B"},
        {"--env A 1 p", "use --env A=VALUE, or --genv VAR VALUE"},
        {"--export=A,B=1 p", "--export: \"A,B=1\" is not a name; use --export once for each"},
        {"--display bind p", "--report-bindings"},
        {"--output TAG,TIMESTAMP p", "use --tag"},
        {"--output tag p", "use --tag"},
        {"--tee 3 p", "--output DIR"},
        {"--constraint gpu p", "slurm_options"},
        {"--with-ft ulfm p", "--on-failure shrink"},
        {"-tv p", "fiber stack"},
        {"-iface eth0 p", "FIBER_BIND"},
        {"-m module p", "python3 -m"},
        {"--partition=x p", "slurm_partition"},
        {"--mail-type=END p", "slurm_options"},
        {"--signal=USR1@60 p", "slurm_options"},
        {"--ntasks-per-socket 2 p", "--map-by package"},
        {"--gpu-bind=closest p",
         "with --gpus-per-rank each rank sees only its own GPUs, the nearest"},
        {"--mem-per-cpu=1G p", "--mem, which is for all ranks of a job"},
        {"--mem-bind=local p", "also binds memory"},
        {"--wait=30 p", "the others run on"},
        {"-W 0 p", "the others run on"},
        {"--bcast=/tmp/p p", "the program and its files into a folder that the hosts share"},
        {"-path /opt/bin p", "-x PATH=DIR:$PATH"},
        {"--set-cwd-to-session-dir p", "--workdir"},
        {"-nolocal p", "-H or --hostfile"},
        {"-genvnone p", "env -i PATH="},
        {"--time=10x p", "not a time as srun has it"},
        {"--gres=gpu:1 p", "--gpus-per-rank"},
        {"a : -n 3 b", "the number of ranks of a is missing"},
        {"-n 2 a : -x A=b c", "the number of ranks of c is missing"},
        {"-n 2 : -n 3 b", "the program before ':' is missing"},
        {"-n 2 a :", "after ':': "},
        {"-n 2 a : -n 1 b :", "after ':': "},
        {"-n 2 : -n 3 : -n 4 b", "the program before ':' is missing"},
        {"-n 2 cut -d : -f 1 file", "use sh -c"},
        {"-n 2 a : -n 0 b", "after ':': -n is 0, "},
        {"-n 2 a : -n 3", "after ':': the program is missing"},
        {"-n 2 a : -n 3 --tag b", "--tag is for the whole run"},
        {"-n 2 a : --help", "put --help before"},
        {"-n 2 a : -n 3 -x A, b", "-x: \"A,\" is not a name; use -x once for each variable"},
        {"-n 1048576 a : -n 1048576 b", "at most 1048576 ranks"},
        {"--nodes 9 -n 2 a : -n 3 b", "9 nodes are more than 5 ranks"},
        {"--in-cluster -n 2 a : -n 3 -x A=b c", "put them before the first"},
        {"--master_addr h p", "omit it"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(make(cases[i].line), -22);
        assert_non_null(strstr(err.text, cases[i].text));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(placement_is_understood_as_mpirun_writes_it),
        cmocka_unit_test(the_number_of_ranks_follows_from_nodes),
        cmocka_unit_test(several_programs_stand_behind_one_another),
        cmocka_unit_test(what_means_nothing_here_is_passed_over),
        cmocka_unit_test(variables_go_to_the_ranks),
        cmocka_unit_test(failures_are_met_as_asked_for),
        cmocka_unit_test(output_and_input_are_flags),
        cmocka_unit_test(hosts_are_nodes),
        cmocka_unit_test(this_host_is_the_local_backend),
        cmocka_unit_test(max_slots_hold_on_this_host_too),
        cmocka_unit_test(what_cannot_be_met_is_refused_with_what_to_do),
    };

    return cmocka_run_group_tests_name("run_spec", tests, NULL, NULL);
}
