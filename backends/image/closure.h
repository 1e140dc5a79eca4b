/* closure.h - the set of files that programs need, at their paths on this machine: the contents of
 * an image.
 *
 * For a program these files are its interpreter and every library that it needs, found as ld.so(8)
 * would find them in a container without this process's environment: DT_RPATH, `library_path`,
 * DT_RUNPATH, the directories of ld.so.conf, the system's directories. Nothing is run for that; the
 * files are read (runtime/program/elf.h). A script adds its interpreter. A directory is added
 * whole, with the files that its programs and libraries need.
 *
 * Two kinds of files are loaded although no file names them: the modules of Fiber
 * (runtime/program/module.h) and the plugins of some libraries, Open MPI's above all. Both are
 * known here and follow the library that loads them.
 *
 * A link stays a link, and its target is added too, so a path has the same meaning in the image.
 * The user in the container is not the user that made the image. So owners are not kept, and modes
 * keep only two facts: "all users may read it" and "it is executable".
 *
 * Any thread but the loop thread, because the functions read files.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "runtime/base/error.h"

enum fbr_file_kind { FBR_FILE_DIRECTORY, FBR_FILE_LINK, FBR_FILE_REGULAR };

struct fbr_file {
    const char *path; /* absolute, without links except in its last part */
    enum fbr_file_kind kind;
    unsigned mode;
    const char *target; /* for a link */
    /* contents that were made here; NULL: the contents of the file at `path` */
    const char *text;
    uint64_t size;
    int64_t mtime; /* in ns; 0 if made here */
};

/* Texts and lists are valid until nothing more is added to the closure. */
struct fbr_closure_options {
    const char *library_path; /* LD_LIBRARY_PATH in the container; NULL: not set */
    bool no_plugins;          /* without the plugins that libraries load */
    bool no_modules;          /* without Fiber's modules */
    bool cluster;             /* with Fiber's module "cluster", which masters need */
    const char *ld_so_conf;   /* NULL: /etc/ld.so.conf */
    /* Paths of libraries that this process has loaded, NULL-terminated; NULL: none. Used for a
     * library that is found nowhere else. */
    const char *const *mapped;
};

struct fbr_closure;

int fbr_closure_new(struct fbr_closure **out, const struct fbr_closure_options *o,
                    struct fbr_error *err);
void fbr_closure_free(struct fbr_closure *c); /* NULL is allowed */

/* Adds a program, a file or a directory; a relative path starts at the working directory. After a
 * failure, c can only be freed. -ENOENT, with a message that names the program, the missing library
 * and the places that were searched. */
int fbr_closure_add(struct fbr_closure *c, const char *path, struct fbr_error *err);
/* Adds a file or directory that a program opens, without histories (.git, .hg, .svn). A missing
 * file, one that we may not read, or a missing library of it, is at most noted. */
int fbr_closure_add_data(struct fbr_closure *c, const char *path, struct fbr_error *err);
/* Adds the libraries of `mapped` that lie outside of the system's directories: a program that has
 * loaded them by hand will load them again. */
int fbr_closure_add_mapped(struct fbr_closure *c, struct fbr_error *err);
/* Returns the directories of the libraries that were taken from `mapped`, as in LD_LIBRARY_PATH;
 * NULL: none. */
const char *fbr_closure_mapped_path(const struct fbr_closure *c);
/* Adds the other files of a system: directories, /etc/passwd with root and this user, and the like.
 * Existing entries stay. */
int fbr_closure_add_system(struct fbr_closure *c, struct fbr_error *err);
/* Adds a directory if it is missing, and the directories above it. */
int fbr_closure_add_directory(struct fbr_closure *c, const char *path, unsigned mode,
                              struct fbr_error *err);

/* Returns all files, sorted by path, so that a directory comes before its contents. Borrowed; valid
 * until the next change. */
const struct fbr_file *const *fbr_closure_files(struct fbr_closure *c, size_t *count);
/* Takes files that have become longer since they were added as they are now. */
void fbr_closure_measure(struct fbr_closure *c);
/* The time of the last change as in struct fbr_file. */
int64_t fbr_file_mtime(const struct stat *st);
uint64_t fbr_closure_bytes(const struct fbr_closure *c);
/* Returns the notes for the user, NULL-terminated: libraries that plugins need and that are missing
 * here. NULL: none. */
char *const *fbr_closure_notes(const struct fbr_closure *c);

/* Makes a path absolute, for free(); NULL, and a message. */
char *fbr_path_absolute(const char *path, struct fbr_error *err);
/* Whether `dir`, of `len` bytes, is in a search path, which may be NULL. Pure. */
bool fbr_path_has(const char *path, const char *dir, size_t len);
/* Adds it, unless it is there. -ENOMEM. Pure. */
int fbr_path_add(char **path, const char *dir, size_t len);
