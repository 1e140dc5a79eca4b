/* closure.h - the set of files that programs need, at the paths where they lie: the contents of an
 * image.
 *
 * For a program that is its interpreter and every library that it asks for, found as ld.so(8) would
 * find them in a container without this one's environment: DT_RPATH, `library_path`, DT_RUNPATH,
 * the directories of ld.so.conf, the system's. Nothing is run for that; the files are read
 * (runtime/program/elf.h). A script takes its interpreter along. A directory is taken whole, with
 * the files that its programs and libraries need.
 *
 * Two kinds of files are loaded without being asked for by name: the modules of Fiber
 * (runtime/program/module.h) and the plugins of some libraries, Open MPI's above all. Both are
 * known here and follow the library that loads them.
 *
 * A link stays a link, and its target is taken too, so that every path means what it means here.
 * Owners are not kept, nor are modes but for "everybody may read it" and "it may be run": the user
 * in the container is not the user that made the image.
 *
 * Any thread; it reads files, so not the loop's.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_CLOSURE_H
#define FBR_CLOSURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

enum fbr_file_kind { FBR_FILE_DIRECTORY, FBR_FILE_LINK, FBR_FILE_REGULAR };

struct fbr_file {
    const char *path; /* absolute, without links but for its last part */
    enum fbr_file_kind kind;
    unsigned mode;
    const char *target; /* of a link */
    /* what is in it, when that was made here; NULL: what is in the file of that path */
    const char *text;
    uint64_t size;
    int64_t mtime; /* in ns; 0 of what was made here */
};

struct fbr_closure_options {
    const char *library_path; /* LD_LIBRARY_PATH in the container; NULL */
    bool no_plugins;          /* without what libraries load by themselves */
    bool no_modules;          /* without Fiber's modules */
    bool cluster;             /* with Fiber's module "cluster", which masters need */
    const char *ld_so_conf;   /* NULL: /etc/ld.so.conf */
    /* Paths of libraries that this process has loaded, ending in NULL; NULL. One of them is taken
     * where a library is found nowhere else. */
    const char *const *mapped;
};

struct fbr_closure;

int fbr_closure_new(struct fbr_closure **out, const struct fbr_closure_options *o,
                    struct fbr_error *err);
void fbr_closure_free(struct fbr_closure *c); /* NULL is fine */

/* A program, a file or a directory; relative paths are meant from here. On failure, c can only be
 * freed. -ENOENT with a sentence that says which program needs which library, and where it was
 * looked for. */
int fbr_closure_add(struct fbr_closure *c, const char *path, struct fbr_error *err);
/* A file or directory that a program opens: what of it is not there, or what it needs, is noted at
 * most. */
int fbr_closure_add_data(struct fbr_closure *c, const char *path, struct fbr_error *err);
/* Those of `mapped` that are outside of the system's directories: who has loaded them by hand will
 * do so again. */
int fbr_closure_add_mapped(struct fbr_closure *c, struct fbr_error *err);
/* The directories of libraries that were taken from `mapped`, as of LD_LIBRARY_PATH; NULL: none
 * was. */
const char *fbr_closure_mapped_path(const struct fbr_closure *c);
/* Adds the other files of a system: directories, /etc/passwd with root and us, and the like. Files
 * that are there stay. */
int fbr_closure_add_system(struct fbr_closure *c, struct fbr_error *err);
/* A directory that is made when it is not there, with those above it. */
int fbr_closure_add_directory(struct fbr_closure *c, const char *path, unsigned mode,
                              struct fbr_error *err);

/* All of it, sorted by path, so that a directory stands before what is in it. Borrowed; until the
 * next change. */
const struct fbr_file *const *fbr_closure_files(struct fbr_closure *c, size_t *count);
uint64_t fbr_closure_bytes(const struct fbr_closure *c);
/* Returns a note for a person: libraries that plugins ask for and that are not here. NULL behind
 * the last. */
const char *fbr_closure_note(const struct fbr_closure *c, size_t i);

/* The next directory, or pattern of an `include`, of a text like ld.so.conf; for closure_elf.c, its
 * test and its fuzzer. *text moves on, `out` begins as zeros and is kept between the calls. False
 * at the end. */
struct fbr_ld_conf {
    bool include; /* word is a pattern of files to be read in its place */
    const char *word;
    size_t len;
    bool inside; /* private: of a line that has begun */
};
bool fbr_ld_conf_next(const char **text, const char *end, struct fbr_ld_conf *out);

#endif
