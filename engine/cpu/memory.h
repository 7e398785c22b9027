/* SPDX-License-Identifier: Apache-2.0 */
/* What the CPU backend allocates: all of it at open, nothing in a step but growing logits and
 * attention lists. */
#ifndef ENGINE_CPU_MEMORY_H
#define ENGINE_CPU_MEMORY_H

struct backend;
struct engine;
struct engine_options;
struct engine_plan;
struct err_text;
struct layout;
struct model;

/* Adds sequence_bytes and workspace_bytes to *p, whose other fields are set. */
int cpu_memory_plan(const struct model *m, const struct engine_options *o, const struct layout *l,
                    struct engine_plan *p, struct err_text *e);
int cpu_memory_open(struct engine *engine, const struct model *m, const struct engine_options *o,
                    const struct layout *l, const struct engine_plan *p, struct backend **ret,
                    struct err_text *e);
void cpu_memory_close(struct backend *b);

#endif
