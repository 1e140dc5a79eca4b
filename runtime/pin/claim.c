/* claim.c - claims processors for runs of this user, with locks on the bytes of a file.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/pin/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
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

static bool has(const struct fbr_cpuset *set, unsigned cpu)
{
    return set->bits[cpu / 8] >> cpu % 8 & 1;
}

unsigned fbr_cpuset_count(const struct fbr_cpuset *set)
{
    unsigned n = 0;

    for (unsigned i = 0; i < sizeof(set->bits); i++)
        n += (unsigned)__builtin_popcount(set->bits[i]);
    return n;
}

bool fbr_cpuset_rest(const struct fbr_cpuset *set, char *list, unsigned size)
{
    unsigned at = 0;

    list[0] = '\0';
    for (unsigned first = 0, end; first < FBR_CLAIM_CPUS; first = end + 1) {
        for (end = first; end < FBR_CLAIM_CPUS && !has(set, end); end++)
            continue;
        if (end > first)
            at +=
                (unsigned)snprintf(list + at, size - at, "%s%u-%u", at ? "," : "", first, end - 1);
        if (at >= size)
            return false;
    }
    return at > 0;
}

void fbr_cpuset_allowed(struct fbr_cpuset *set)
{
    cpu_set_t *mask = CPU_ALLOC(FBR_CLAIM_CPUS);
    size_t size = CPU_ALLOC_SIZE(FBR_CLAIM_CPUS);

    if (mask && sched_getaffinity(0, size, mask) == 0)
        for (unsigned cpu = 0; cpu < FBR_CLAIM_CPUS; cpu++)
            if (!CPU_ISSET_S(cpu, size, mask))
                set->bits[cpu / 8] &= (uint8_t) ~(1u << cpu % 8);
    CPU_FREE(mask);
}

/* ---- Claims ---- */

int fbr_claim_open(const char *dir)
{
    char path[PATH_MAX];
    int fd;

    if ((size_t)snprintf(path, sizeof(path), "%s/cpus", dir) >= sizeof(path))
        return -ENAMETOOLONG;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : fd;
}

static int lock(int fd, int how, unsigned cpu, unsigned count)
{
    struct flock l = {
        .l_type = (short)how, .l_whence = SEEK_SET, .l_start = (off_t)cpu, .l_len = (off_t)count};

    return fcntl(fd, F_OFD_SETLK, &l) < 0 ? -errno : 0;
}

int fbr_claim_take(int fd, const struct fbr_cpuset *set)
{
    struct fbr_cpuset others;

    /* Check before locking, so that a partial claim must rarely be undone. */
    fbr_claim_others(fd, &others);
    for (unsigned i = 0; i < sizeof(set->bits); i++)
        if (set->bits[i] & others.bits[i])
            return -EAGAIN;
    for (unsigned cpu = 0; cpu < FBR_CLAIM_CPUS; cpu++) {
        if (!has(set, cpu) || lock(fd, F_WRLCK, cpu, 1) == 0)
            continue;
        for (unsigned done = 0; done < cpu; done++)
            if (has(set, done))
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
    for (unsigned cpu = 0; cpu < FBR_CLAIM_CPUS; cpu++) {
        struct flock one = {
            .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)cpu, .l_len = 1};

        if (fcntl(fd, F_OFD_GETLK, &one) == 0 && one.l_type != F_UNLCK)
            set->bits[cpu / 8] |= (uint8_t)(1u << cpu % 8);
    }
}
