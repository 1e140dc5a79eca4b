/* yaml.h - YAML as Kubernetes reads it: one document, as a JSON value.
 *
 * Scalars are those of YAML 1.1, as in kubectl: an unquoted 0400 is octal, yes and off are
 * booleans. Anchors and merge keys work; the size of the expanded document is limited.
 *
 * Only yaml.c uses libyaml.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "runtime/base/error.h"

struct json_t;

/* Returns a value for fbr_json_free(). `name` is the file's name, for messages. An empty document
 * is an empty object. NULL and a message. */
struct json_t *fbr_kube_yaml(const char *text, size_t len, const char *name, struct fbr_error *err);
/* The same for a file; -ENOENT if it does not exist. */
struct json_t *fbr_kube_yaml_file(const char *path, struct fbr_error *err);
