/* By which channels the copies of a row's events came. */
#include <string.h>

#include "forwarding_table.h"

#define JOIN_TRIES_MAX 1000U

static bool is_taken(const gs_row_copies *copies, uint32_t way)
{
    return way < copies->window.way_count && !gs_copies_is_idle(&copies->window.ways[way]);
}

/* A channel that brings nothing any more gives its place, and what it counted, to the new one. */
uint32_t gs_row_copies_join(gs_row_copies *copies, uint32_t channel_id)
{
    uint32_t way = (uint32_t)copies->window.way_count;
    for (uint32_t i = 0; way == GS_COPY_WAYS && i < GS_COPY_WAYS; i++)
        if (!is_taken(copies, i))
            way = i;
    if (way == GS_COPY_WAYS)
        return way;
    uint64_t joins = copies->joins;
    __atomic_store_n(&copies->joins, joins + 1, __ATOMIC_RELAXED);
    gs_copies_begin_way(&copies->window, way);
    __atomic_store_n(&copies->channel_ids[way], channel_id, __ATOMIC_RELEASE);
    __atomic_store_n(&copies->joins, joins + 2, __ATOMIC_RELEASE);
    return way;
}

bool gs_row_copies_tell(const gs_row_copies *copies, const gs_period *period,
                        gs_row_copy_facts *facts)
{
    for (uint32_t tries = 0; tries < JOIN_TRIES_MAX; tries++) {
        uint64_t joins = __atomic_load_n(&copies->joins, __ATOMIC_ACQUIRE);
        uint32_t every = copies->divisor.every;
        gs_copy_facts found = gs_copies_tell(&copies->window, period, every);
        *facts = (gs_row_copy_facts){.every = every, .passed = found.passed};
        facts->way_count = (uint32_t)found.way_count;
        for (uint32_t i = 0; i < GS_COPY_WAYS; i++)
            facts->channel_ids[i] = __atomic_load_n(&copies->channel_ids[i], __ATOMIC_ACQUIRE);
        memcpy(facts->came, found.came, sizeof facts->came);
        memcpy(facts->first, found.first, sizeof facts->first);
        if (joins % 2 == 0 && __atomic_load_n(&copies->joins, __ATOMIC_RELAXED) == joins)
            return true;
    }
    return false;
}

bool gs_table_copies(const gs_table *table, uint32_t variable_id, gs_row_copy_facts *facts)
{
    const gs_row *row = gs_table_row(table, variable_id);
    if (row == NULL || !(row->flags & GS_ROW_COUNTS_COPIES))
        return false;
    return gs_row_copies_tell(gs_row_copies_of(row), &row->period, facts);
}
