/* pmi1_spawn.h - reads the many-line request of PMI-1 that starts processes, line by line. Pure.
 *
 *     mcmd=spawn  nprocs=2  execname=./child  totspawns=1  spawnssofar=1  argcnt=1  arg1=x
 *     preput_num=1  preput_key_0=k  preput_val_0=v  info_num=1  info_key_0=wdir
 *     info_val_0=/tmp  endcmd
 *
 * each on its own line. A spawn of several programs repeats this, with spawnssofar counting up to
 * totspawns.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "mpi_bridge/bridge.h"

/* With their NUL, as get_maxes reports them. */
#define FBR_PMI1_KEY_MAX 64
#define FBR_PMI1_VALUE_MAX 1024
#define FBR_PMI2_KEY_MAX 65 /* as PMI-2 allows */
#define FBR_PMI2_VALUE_MAX 1025
#define FBR_PMI1_SPAWN_MAX 1048576 /* bytes of all lines of a spawn */

struct fbr_pmi1_spawn;

struct fbr_pmi1_spawn *fbr_pmi1_spawn_new(void); /* after "mcmd=spawn"; NULL without memory */
void fbr_pmi1_spawn_free(struct fbr_pmi1_spawn *s);
/* Takes the next line. Returns 1: the request is complete; 0: more lines follow; or -EPROTO,
 * -E2BIG, -ENOMEM. */
int fbr_pmi1_spawn_line(struct fbr_pmi1_spawn *s, const char *line);
/* The same for a line that is cut already, and for "endcmd". */
int fbr_pmi1_spawn_field(struct fbr_pmi1_spawn *s, const char *key, const char *value);
int fbr_pmi1_spawn_end(struct fbr_pmi1_spawn *s);

/* Returns the programs of a request that is complete, and stores its "key=value" lines. */
const struct fbr_bridge_app *fbr_pmi1_spawn_apps(const struct fbr_pmi1_spawn *s, size_t *n,
                                                 const char **preput);

/* True if PMI-2 allows the key: it has no control characters. NULL is none. */
bool fbr_pmi2_is_key(const char *key);
/* The text as a number; `otherwise` if it is NULL or no number. */
long fbr_pmi1_number(const char *text, long otherwise);
