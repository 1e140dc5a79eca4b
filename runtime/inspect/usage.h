/* usage.h - the processor time and memory of a process, as the kernel counts them.
 *
 * Reads only /proc. Any thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_USAGE_H
#define FBR_USAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Processor time of all its threads in nanoseconds, and resident bytes. False: there is no such
 * process. */
bool fbr_usage_read(pid_t pid, uint64_t *cpu_ns, uint64_t *resident);

#endif
