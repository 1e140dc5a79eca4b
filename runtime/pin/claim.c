/* claim.c - claims processors for runs of this user, with locks on the bytes of a file.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/pin/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/pin/pin.h"

/* ---- Sets ---- */

int fbr_cpuset_add(struct fbr_cpuset *set, const char *list)
{
    struct fbr_cpuset more = {{0}};
    int n = fbr_pin_mask(list, more.bits, sizeof(more.bits));

    for (int i = 0; i < n; i++)
        set->bits[i] |= more.bits[i];
    return n < 0 ? n : 0;
}

bool fbr_cpuset_rest(const struct fbr_cpuset *set, char *list, unsigned size)
{
    struct fbr_cpulist rest = {.out = list, .size = size};

    for (unsigned cpu = 0; cpu < FBR_CPUSET_MAX; cpu++)
        if (!fbr_cpuset_has(set, cpu))
            fbr_cpulist_add(&rest, cpu);
    return fbr_cpulist_end(&rest) == 0 && list[0];
}

void fbr_cpuset_allowed(struct fbr_cpuset *set)
{
    struct fbr_cpuset ours;

    if (fbr_cpuset_read(&ours, 0) == 0)
        for (unsigned i = 0; i < sizeof(set->bits); i++)
            set->bits[i] &= ours.bits[i];
}

/* ---- Claims ---- */

static int lock(int fd, int how, unsigned cpu, unsigned count)
{
    struct flock l = {
        .l_type = (short)how, .l_whence = SEEK_SET, .l_start = (off_t)cpu, .l_len = (off_t)count};

    return fcntl(fd, F_OFD_SETLK, &l) < 0 ? -errno : 0;
}

int fbr_claim_open(const char *dir)
{
    char path[PATH_MAX];
    int fd, rc;

    if ((size_t)snprintf(path, sizeof(path), "%s/cpus", dir) >= sizeof(path))
        return -ENAMETOOLONG;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    rc = lock(fd, F_UNLCK, 0, 0); /* some kernels and file systems have no such locks */
    if (rc < 0)
        close(fd);
    return rc < 0 ? rc : fd;
}

int fbr_claim_take(int fd, const struct fbr_cpuset *set)
{
    struct fbr_cpuset others;

    /* Check before locking, so that a partial claim must rarely be undone. */
    fbr_claim_others(fd, &others);
    for (unsigned i = 0; i < sizeof(set->bits); i++)
        if (set->bits[i] & others.bits[i])
            return -EAGAIN;
    for (unsigned cpu = 0; cpu < FBR_CPUSET_MAX; cpu++) {
        if (!fbr_cpuset_has(set, cpu) || lock(fd, F_WRLCK, cpu, 1) == 0)
            continue;
        for (unsigned done = 0; done < cpu; done++)
            if (fbr_cpuset_has(set, done))
                lock(fd, F_UNLCK, done, 1);
        return -EAGAIN;
    }
    return 0;
}

void fbr_claim_drop(int fd)
{
    lock(fd, F_UNLCK, 0, 0);
}

void fbr_claim_others(int fd, struct fbr_cpuset *set)
{
    struct flock any = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    memset(set, 0, sizeof(*set));
    /* The usual case: no other run has a claim. */
    if (fcntl(fd, F_OFD_GETLK, &any) < 0 || any.l_type == F_UNLCK)
        return;
    for (unsigned cpu = 0; cpu < FBR_CPUSET_MAX; cpu++) {
        struct flock one = {
            .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)cpu, .l_len = 1};

        if (fcntl(fd, F_OFD_GETLK, &one) == 0 && one.l_type != F_UNLCK)
            set->bits[cpu / 8] |= (uint8_t)(1u << cpu % 8);
    }
}
