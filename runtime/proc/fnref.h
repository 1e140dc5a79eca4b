/* fnref.h - a function pointer that survives the trip to another process, without a registry of
 * functions.
 *
 * A reference is the build-id of the ELF module (program or shared library) that holds the
 * function, and the function's offset from that module's load bias. Two processes that mapped the
 * same file agree on both, wherever the loader put it; any other build has another id and is
 * refused. So the module must carry a build-id: gcc and clang make one with -Wl,--build-id, which
 * many distributions turn on by default.
 *
 * A reference may name code in an executable segment of the program or of a shared library that is
 * loaded at that moment, but not of libc, the dynamic loader or the vdso. A function that a non-PIE
 * program borrows from a library has its address in the program (its PLT entry), and travels as
 * such. Code that was made at run time, such as the trampoline of a nested function, cannot travel.
 *
 * The check is against accidents (another build) and narrows what a peer can name; it is not a
 * sandbox. Resolve only what came from an authenticated peer.
 *
 * Cost: the modules are walked in load order under the loader's lock, the program first: about 0.1
 * us for a function of the program, and 0.05 us for each library before the one that holds it.
 * There is no cache here: an answer is good until its module is unloaded. Thread-safe; not for
 * signal handlers.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/buf.h"
#include "runtime/base/error.h"

#define FBR_FNREF_ID_MAX 32 /* sha1, the usual style, has 20 bytes */

struct fbr_fnref {
    uint8_t id_len, id[FBR_FNREF_ID_MAX]; /* build-id; id_len 1 to FBR_FNREF_ID_MAX */
    uint64_t offset;                      /* address minus the module's load bias */
};

/* Makes the reference of fn. 0, or, with ref all zero and a sentence in err:
 *   -EFAULT   fn is not in an executable segment of a loaded module
 *   -ENOEXEC  its module has no build-id, or one of more than FBR_FNREF_ID_MAX bytes
 *   -EPERM    its module is libc, the loader or the vdso */
int fbr_fnref_make(struct fbr_fnref *ref, void (*fn)(void), struct fbr_error *err);

/* Finds the function here; valid until its module is unloaded. 0, or, with *fn NULL and a sentence
 * in err:
 *   -ESTALE   no loaded module has that build-id: the peer runs another build
 *   -EFAULT   the offset is not in an executable segment of that module
 *   -EPERM    as above */
int fbr_fnref_resolve(const struct fbr_fnref *ref, void (**fn)(void), struct fbr_error *err);

/* On the wire: u8 id_len, id_len bytes of id, u64 offset. A length of 0 or above FBR_FNREF_ID_MAX
 * turns the cursor bad. */
void fbr_fnref_put(struct fbr_buf *b, const struct fbr_fnref *ref);
void fbr_fnref_get(struct fbr_cur *c, struct fbr_fnref *ref);
