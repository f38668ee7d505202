/* From a variable's identifier to its place in a table of an end (sender or receiver).
 *
 * Open addressing, at most half full, never shrinking. The hash keeps neighbouring identifiers in
 * neighbouring entries: brokers lease them in blocks, and a sweep over a block then reads the table
 * from front to back. One writer at a time, any reader: an entry is one 64-bit word.
 */
#ifndef GS_VARIABLE_INDEX_H
#define GS_VARIABLE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "platform.h"

#define GS_NO_PLACE UINT32_MAX

typedef struct {
    uint64_t *entries; /* variable_id << 32 | place + 1; 0: empty. */
    uint32_t mask;
} gs_variable_index;

static inline bool gs_variable_index_open(gs_variable_index *index, uint32_t variables_max)
{
    uint32_t entries = 16;
    while (entries < 2 * variables_max)
        entries *= 2;
    index->entries = gs_lazy_allocate(entries * sizeof *index->entries);
    index->mask = entries - 1;
    return index->entries != NULL;
}

static inline void gs_variable_index_close(gs_variable_index *index)
{
    gs_lazy_release(index->entries, ((size_t)index->mask + 1) * sizeof *index->entries);
    index->entries = NULL;
}

static inline uint32_t gs_variable_hash(uint32_t variable_id)
{
    return variable_id ^ (variable_id >> 16) * 0x9E3779B1U;
}

static inline uint32_t gs_variable_index_find(const gs_variable_index *index, uint32_t variable_id)
{
    for (uint32_t at = gs_variable_hash(variable_id);; at++) {
        uint64_t entry = __atomic_load_n(&index->entries[at & index->mask], __ATOMIC_ACQUIRE);
        if (entry >> 32 == variable_id && entry != 0)
            return (uint32_t)entry - 1;
        if (entry == 0)
            return GS_NO_PLACE;
    }
}

/* Adds or replaces; the caller has filled the place, and never adds more than `variables_max`. */
static inline void gs_variable_index_put(gs_variable_index *index, uint32_t variable_id,
                                         uint32_t place)
{
    uint64_t entry = (uint64_t)variable_id << 32 | (place + 1);
    uint32_t at = gs_variable_hash(variable_id);
    while (index->entries[at & index->mask] != 0 &&
           index->entries[at & index->mask] >> 32 != variable_id)
        at++;
    __atomic_store_n(&index->entries[at & index->mask], entry, __ATOMIC_RELEASE);
}

#endif
