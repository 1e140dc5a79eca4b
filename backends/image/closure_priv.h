/* closure_priv.h - the data of a closure, which the files closure*.c share.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <limits.h>
#include <sys/stat.h>

#define HASH_NONFATAL_OOM 1 /* an entry that could not be added has hh.tbl == NULL */
#include <uthash.h>

#include "backends/image/closure.h"
#include "runtime/program/args.h"

struct closure_entry {
    struct fbr_file file;
    bool scanned; /* the libraries that it needs are entries, found without a DT_RPATH */
    bool known;   /* the files that it loads by itself are entries too */
    UT_hash_handle hh;
};

/* The name of a library that is in the closure. */
struct closure_name {
    char *name;
    UT_hash_handle hh;
};

struct fbr_closure {
    struct fbr_closure_options o;
    struct closure_entry *entries;
    struct closure_name *names;
    const struct fbr_file **sorted; /* NULL: not sorted yet */
    struct fbr_args notes;
    uint64_t bytes;
    struct fbr_args dirs; /* the directories of ld.so.conf, then the system's */
    char *mapped_path;    /* fbr_closure_mapped_path() */
    bool needs_cache;     /* only ld.so.cache leads to one of the libraries */
    bool as_data;         /* the folder that is being added was not named by the user */
};

/* The end of a path. */
struct closure_at {
    char path[PATH_MAX]; /* without links */
    struct stat st;      /* for a known directory only the type is set */
};

struct closure_entry *closure_find(struct fbr_closure *c, const char *path);
/* Adds the file, with the directories and links on the way; a missing file is an error. */
int closure_take_path(struct fbr_closure *c, const char *path, struct closure_at *at,
                      struct fbr_error *err);
/* Adds a file or directory that no file names; a missing file or library is at most noted. */
int closure_take_plugin(struct fbr_closure *c, const char *path, struct fbr_error *err);
void closure_note(struct fbr_closure *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* closure_elf.c. Adds the libraries of a program or library. -ENOEXEC, without a message, if the
 * file is neither. strict: a missing library is an error, not a note. */
int closure_libraries(struct fbr_closure *c, const char *path, const struct closure_at *at,
                      bool strict, struct fbr_error *err);

/* closure_known.c. Adds the files that a library or program loads by itself; `real` is its path
 * without links. */
int closure_known(struct fbr_closure *c, const char *name, const char *real, bool program,
                  struct fbr_error *err);
