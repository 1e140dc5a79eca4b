/* pause.c - the first process of each pod of the bed: holds its namespaces and reaps orphans.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int sig)
{
    _exit(0);
}

static void reap(int sig)
{
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

int main(void)
{
    struct sigaction quit = {.sa_handler = end};
    struct sigaction child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};

    sigaction(SIGINT, &quit, NULL);
    sigaction(SIGTERM, &quit, NULL);
    sigaction(SIGCHLD, &child, NULL);
    for (;;)
        pause();
}
