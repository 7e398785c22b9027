/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/units.c as it is, but a unit that is freed loses its contents at once: the books are plain
 * numbers that the engine does not watch, and a unit that is freed and taken again between two jobs
 * would keep what it held.
 */
#define units_unref units_unref_plain
#include "engine/units.c"
#undef units_unref

#include "tests/fake_engine_private.h"

void units_unref(struct units *u, uint32_t unit);

void units_unref(struct units *u, uint32_t unit)
{
    units_unref_plain(u, unit);
    if (u->refs[unit] == 0)
        fake_unit_freed(u, unit);
}
