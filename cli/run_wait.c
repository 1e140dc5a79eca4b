/* run_wait.c - waits for a ring, and handles signals meanwhile.
 *
 * The signals are blocked in every thread and read from a descriptor, so their handlers are
 * ordinary code.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_wait.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "ring/ring.h"
#include "runtime/base/fds.h"
#include "runtime/base/log.h"
#include "runtime/proc/context.h"

#define LOOK_MS 500      /* between two checks whether the ring waits */
#define PATIENCE_MS 2000 /* a wait is not reported before this time */
#define CHANGED_MS 5000  /* time to the next report, if the reason has changed */
#define AGAIN_MS 30000   /* time to the next report, if it has not */
#define TWICE_MS 200     /* timeout(1) signals us, then our group: both count as one */
#define WRITE_MS 100     /* between two looks at signals while output is written */
#define IDLE_MS 1000     /* a reader that takes nothing for so long does not delay a stop */

struct wait {
    struct fiber_ring *ring;
    bool quiet;
    int stopped_by; /* the signal */
    uint64_t stopped_at;
    bool killed;
    char waiting[480];    /* the reason of the wait */
    char shown[480];      /* the reason that was reported last */
    uint64_t since, said; /* fbr_now_ms(); said 0: not reported yet */
};

/* nohup and the shell's & ignore some signals, which must stay ignored. */
sigset_t run_wait_unignored(const int *list, size_t n)
{
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < n; i++) {
        struct sigaction a;

        if (sigaction(list[i], NULL, &a) == 0 && a.sa_handler != SIG_IGN)
            sigaddset(&set, list[i]);
    }
    return set;
}

static sigset_t our_signals(void)
{
    static const int list[] = {SIGINT,  SIGTERM, SIGHUP,  SIGUSR1,
                               SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH};

    return run_wait_unignored(list, sizeof(list) / sizeof(list[0]));
}

void run_wait_prepare(void)
{
    struct fbr_runtime *rt;
    sigset_t set = our_signals();

    pthread_sigmask(SIG_BLOCK, &set, NULL);
    rt = fbr_rt(); /* threads exist only from here on */
    /* run_wait() reports the waits itself */
    if (rt)
        rt->pending.quiet = true;
}

/* A third signal ends us at once: the kernel then ends the ranks of this host. */
static void stop_or_kill(struct wait *w, int sig)
{
    sigset_t set;

    if (w->stopped_by && fbr_now_ms() - w->stopped_at < TWICE_MS)
        return;
    if (w->stopped_by) {
        sigemptyset(&set);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGTERM);
        fiber_ring_signal(w->ring, SIGKILL);
        fbr_log_status_end();
        if (!w->quiet && !w->killed)
            fprintf(stderr, "fiber: killing all ranks\n");
        w->killed = true;
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
        return;
    }
    fbr_log_status_end();
    w->stopped_by = sig;
    fiber_ring_stop(w->ring);
    w->stopped_at = fbr_now_ms(); /* signals that came meanwhile belong to the first one */
    if (!w->quiet && isatty(STDERR_FILENO))
        fprintf(stderr, "fiber: stopping; press Ctrl-C again to kill\n");
}

static bool is_stop(int sig)
{
    return sig == SIGINT || sig == SIGTERM || sig == SIGHUP;
}

static void on_signal(struct wait *w, int sig)
{
    switch (sig) {
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
        stop_or_kill(w, sig);
        break;
    case SIGTSTP:
        fbr_ring_suspend(w->ring, true);
        fbr_log_status_end();
        raise(SIGSTOP);
        break;
    case SIGWINCH:
        fbr_ring_resize(w->ring);
        break;
    case SIGCONT:
        fbr_ring_suspend(w->ring, false);
        break;
    default:
        fiber_ring_signal(w->ring, sig);
    }
}

/* Reports a wait: on a terminal in one line, which is replaced; else in a new line for each change,
 * at intervals. */
static void look(struct wait *w)
{
    struct fbr_run_facts f;
    uint64_t now = fbr_now_ms();
    char line[540];

    memset(&f, 0, sizeof(f));
    fbr_ring_facts(w->ring, &f);
    /* A wait whose reason changes goes on: its first delay is already over. */
    if (!f.waiting[0] != !w->waiting[0])
        w->since = now;
    if (!f.waiting[0] || !w->waiting[0])
        w->said = 0;
    snprintf(w->waiting, sizeof(w->waiting), "%s", f.waiting);
    if (!f.waiting[0])
        fbr_log_status_end();
    if (!f.waiting[0] || w->quiet || now - w->since < PATIENCE_MS)
        return;
    snprintf(line, sizeof(line), "fiber: waiting for %llu s: %s",
             (unsigned long long)((now - w->since) / 1000), f.waiting);
    if (fbr_log_status(line) ||
        (w->said && now - w->said < (strcmp(f.waiting, w->shown) != 0 ? CHANGED_MS : AGAIN_MS)))
        return;
    snprintf(w->shown, sizeof(w->shown), "%s", f.waiting);
    w->said = now;
    fprintf(stderr, "%s\n", line);
}

/* The reader may have our standard error, too: then our own messages do not wait for it either. */
static void give_up_output(struct wait *w)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    int null;

    fbr_ring_give_up_output(w->ring, w->stopped_by);
    if (poll(&p, 1, 0) > 0 && (p.revents & POLLOUT)) {
        if (!w->quiet)
            fprintf(stderr,
                    "fiber: some output of the ranks is lost: its reader did not take it\n");
        return;
    }
    null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, STDERR_FILENO);
        close(null);
    }
}

/* Takes the signals that have come. Returns true if one of them ends the wait for the reader. */
static bool read_stop(struct wait *w, int fd)
{
    struct signalfd_siginfo s;
    bool stop = false;

    while (read(fd, &s, sizeof(s)) == (ssize_t)sizeof(s)) {
        if (!is_stop((int)s.ssi_signo))
            on_signal(w, (int)s.ssi_signo);
        else if (!w->stopped_by || fbr_now_ms() - w->stopped_at >= TWICE_MS) {
            w->stopped_by = w->stopped_by ? w->stopped_by : (int)s.ssi_signo;
            stop = true;
        }
    }
    return stop;
}

/* The ring has ended. Waits for the reader of its output, who may look at it page by page. */
static void write_output(struct wait *w, int fd)
{
    uint64_t moved_at = fbr_now_ms();
    bool moved;

    while (!fbr_ring_wait_output(w->ring, WRITE_MS, &moved)) {
        if (moved)
            moved_at = fbr_now_ms();
        if (read_stop(w, fd) || (w->stopped_by && fbr_now_ms() - moved_at >= IDLE_MS)) {
            give_up_output(w);
            return;
        }
    }
}

int run_wait(struct fiber_ring *ring, bool quiet)
{
    struct wait w = {.ring = ring, .quiet = quiet, .since = fbr_now_ms()};
    sigset_t set = our_signals();
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    struct pollfd p[2] = {{.fd = fiber_ring_sentinel(ring), .events = POLLIN},
                          {.fd = fd, .events = POLLIN}};
    int code;

    while (fiber_ring_exitcode(ring, &code) == -EAGAIN) {
        struct signalfd_siginfo s;

        if (poll(p, 2, LOOK_MS) < 0 && errno != EINTR)
            break;
        while (read(fd, &s, sizeof(s)) == (ssize_t)sizeof(s))
            on_signal(&w, (int)s.ssi_signo);
        look(&w);
    }
    fbr_log_status_end();
    write_output(&w, fd);
    fiber_ring_wait(ring, -1);
    fbr_fds_close(fd);
    return w.stopped_by;
}

void run_wait_die(int sig)
{
    sigset_t set;

    fflush(NULL);
    signal(sig, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, sig);
    raise(sig);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    _exit(128 + sig);
}
