/* parts.h - the parts of the extension, one line each: PART(name) needs fpy_<name>_add() in
 * the file of that part, which adds the types and functions of that part to the module.
 *
 * SPDX-License-Identifier: Apache-2.0 */
PART(library)
PART(process)
PART(ctrl_c)
PART(pipe)
PART(queue)
PART(ring)
PART(shared)
PART(pool)
PART(objects)
PART(trylock)
