/* closure_priv.h - what the files of closure.h share.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_CLOSURE_PRIV_H
#define FBR_CLOSURE_PRIV_H

#include <limits.h>
#include <sys/stat.h>

#define HASH_NONFATAL_OOM 1 /* an entry that could not be added has hh.tbl NULL */
#include <uthash.h>

#include "backends/image/closure.h"

struct closure_entry {
    struct fbr_file file;
    bool scanned; /* what its libraries need is there, as found without a DT_RPATH */
    bool known;   /* what is loaded by it is there too */
    UT_hash_handle hh;
};

struct closure_name { /* of a library that is there */
    char *name;
    UT_hash_handle hh;
};

struct fbr_closure {
    struct fbr_closure_options o;
    struct closure_entry *entries;
    struct closure_name *names;
    const struct fbr_file **sorted; /* NULL: not made yet */
    char **notes;
    size_t nnotes;
    uint64_t bytes;
    char **dirs; /* of ld.so.conf, then the system's */
    size_t ndirs;
    bool dirs_read;
    char *mapped_path; /* fbr_closure_mapped_path() */
    bool needs_cache;  /* a library was found where only ld.so.cache leads to */
};

/* Where a path leads to. */
struct closure_at {
    char path[PATH_MAX]; /* without links */
    struct stat st;      /* of a directory that was there already only the type */
};

struct closure_entry *closure_find(struct fbr_closure *c, const char *path);
/* Takes the file, with the directories and links on the way; its absence is an error. */
int closure_take_path(struct fbr_closure *c, const char *path, struct closure_at *at,
                      struct fbr_error *err);
/* A file or directory that is not asked for by name: what cannot be found for it is noted at
 * most. */
int closure_take_plugin(struct fbr_closure *c, const char *path, struct fbr_error *err);
void closure_note(struct fbr_closure *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* closure_elf.c. Takes the libraries of a program or library. -ENOEXEC when it is none, without a
 * sentence. strict: a missing library is an error, not a note. */
int closure_libraries(struct fbr_closure *c, const char *path, const struct closure_at *at,
                      bool strict, struct fbr_error *err);
void closure_dirs_free(struct fbr_closure *c);

/* closure_known.c. Takes the files that the library (or program) of that name at that path without
 * links loads by itself. */
int closure_known(struct fbr_closure *c, const char *name, const char *real, bool program,
                  struct fbr_error *err);

#endif
