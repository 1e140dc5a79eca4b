/* yaml.h - YAML as Kubernetes reads it: one document, as a JSON value.
 *
 * Scalars are those of YAML 1.1, as kubectl takes them: an unquoted 0400 is octal, yes and off are
 * booleans. Anchors and merge keys work; what they may blow a document up to is limited.
 *
 * libyaml is known to yaml.c alone.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_KUBE_YAML_H
#define FBR_KUBE_YAML_H

#include <stddef.h>

#include "runtime/base/error.h"

struct json_t;

/* A value for fbr_json_free(). `name` is the file's, for the sentence. An empty document is an
 * empty object. NULL and a sentence. */
struct json_t *fbr_kube_yaml(const char *text, size_t len, const char *name, struct fbr_error *err);
/* The same of a file; -ENOENT when there is none. */
struct json_t *fbr_kube_yaml_file(const char *path, struct fbr_error *err);

/* Returns the contents of a file, NUL-terminated, for free(); NULL and a sentence. */
char *fbr_kube_read(const char *path, size_t *len, struct fbr_error *err);

#endif
