/* From a variable's identifier to its place in a table of an end (sender or receiver).
 *
 * Brokers lease identifiers in blocks. Sixteen neighbours share a cache line of places, and the
 * lines lie in the order they were first needed, so a sweep reads them from front to back. A hash
 * of the upper bits finds the line. It mixes all of them: one that kept a lease together would make
 * of it a run of full entries, which every search that ends behind it had to walk. A search tries
 * the eight entries of its own cache line before the next.
 *
 * The hash table is at most half full and doubles, so that few variables stay within few pages of
 * memory. One array holds the tables of all sizes, that of n entries from entry n on; a reader of
 * the old one misses nothing but what is being added. One writer at a time, any reader.
 */
#ifndef GS_VARIABLE_INDEX_H
#define GS_VARIABLE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "platform.h"

#define GS_NO_PLACE       UINT32_MAX
#define GS_BLOCK_PLACES   16U
#define GS_SEARCH_ENTRIES 8U

typedef struct {
    uint64_t *blocks; /* variable_id / 16 << 32 | line + 1; 0: empty. */
    uint32_t *places; /* Lines of 16, each place + 1; 0: none. */
    uint32_t size;    /* Atomic: entries of the present table. */
    uint32_t size_max;
    uint32_t lines_max, line_count;
} gs_variable_index;

/* Result of a search: the block's entry, or the empty one where it would be. */
typedef struct {
    uint64_t *at;
    uint64_t entry;
    uint32_t passed; /* Entries of other blocks that were passed. */
} gs_block_search;

static inline size_t gs_variable_index_blocks_bytes(const gs_variable_index *index)
{
    return (size_t)index->size_max * 2 * sizeof *index->blocks;
}

static inline size_t gs_variable_index_places_bytes(const gs_variable_index *index)
{
    return (size_t)index->lines_max * GS_BLOCK_PLACES * sizeof *index->places;
}

static inline bool gs_variable_index_open(gs_variable_index *index, uint32_t variables_max)
{
    uint32_t size = 2 * GS_SEARCH_ENTRIES;
    *index = (gs_variable_index){.size = size, .size_max = size, .lines_max = variables_max};
    while (index->size_max < 2 * variables_max)
        index->size_max *= 2;
    index->blocks = gs_lazy_allocate(gs_variable_index_blocks_bytes(index));
    index->places = gs_lazy_allocate(gs_variable_index_places_bytes(index));
    return index->blocks != NULL && index->places != NULL;
}

/* Called before the first variable by a writer that must neither meet untouched pages nor grow the
 * table. */
static inline void gs_variable_index_widen(gs_variable_index *index)
{
    index->size = index->size_max;
    memset(index->blocks, 0, gs_variable_index_blocks_bytes(index));
    memset(index->places, 0, gs_variable_index_places_bytes(index));
}

static inline void gs_variable_index_close(gs_variable_index *index)
{
    gs_lazy_release(index->blocks, gs_variable_index_blocks_bytes(index));
    gs_lazy_release(index->places, gs_variable_index_places_bytes(index));
    *index = (gs_variable_index){0};
}

/* One multiplication spreads leases but not every stride; the second one does. */
static inline uint32_t gs_block_hash(uint32_t block)
{
    uint64_t mixed = block * 0x9E3779B97F4A7C15ULL;
    mixed ^= mixed >> 32;
    return (uint32_t)(mixed * 0xD6E8FEB86659FD93ULL >> 32);
}

static inline gs_block_search gs_block_search_in(const gs_variable_index *index, uint32_t size,
                                                 uint32_t block)
{
    uint32_t hash = gs_block_hash(block);
    uint32_t in_line = GS_SEARCH_ENTRIES - 1;
    for (uint32_t passed = 0;; passed++) {
        uint32_t line = (hash + (passed & ~in_line)) & (size - 1) & ~in_line;
        uint64_t *at = &index->blocks[size | line | ((hash + passed) & in_line)];
        uint64_t entry = __atomic_load_n(at, __ATOMIC_ACQUIRE);
        if (entry == 0 || entry >> 32 == block)
            return (gs_block_search){.at = at, .entry = entry, .passed = passed};
    }
}

static inline gs_block_search gs_variable_index_search(const gs_variable_index *index,
                                                       uint32_t variable_id)
{
    uint32_t size = __atomic_load_n(&index->size, __ATOMIC_ACQUIRE);
    return gs_block_search_in(index, size, variable_id / GS_BLOCK_PLACES);
}

static inline uint32_t *gs_variable_index_place(const gs_variable_index *index, uint64_t entry,
                                                uint32_t variable_id)
{
    size_t line = (uint32_t)entry - 1;
    return &index->places[line * GS_BLOCK_PLACES + variable_id % GS_BLOCK_PLACES];
}

static inline uint32_t gs_variable_index_find(const gs_variable_index *index, uint32_t variable_id)
{
    uint64_t entry = gs_variable_index_search(index, variable_id).entry;
    if (entry == 0)
        return GS_NO_PLACE;
    uint32_t *place = gs_variable_index_place(index, entry, variable_id);
    return __atomic_load_n(place, __ATOMIC_ACQUIRE) - 1; /* 0 becomes GS_NO_PLACE. */
}

static inline void gs_variable_index_double(gs_variable_index *index)
{
    uint32_t size = index->size;
    for (uint32_t i = size; i < 2 * size; i++) {
        uint64_t entry = index->blocks[i];
        if (entry != 0)
            *gs_block_search_in(index, 2 * size, (uint32_t)(entry >> 32)).at = entry;
    }
    __atomic_store_n(&index->size, 2 * size, __ATOMIC_RELEASE);
}

/* True if there is a free line for the variable's block, or it has one already. */
static inline bool gs_variable_index_has_line(const gs_variable_index *index, uint32_t variable_id)
{
    return index->line_count < index->lines_max ||
           gs_variable_index_search(index, variable_id).entry != 0;
}

/* The line stays: a reader may be about to read it. */
static inline void gs_variable_index_remove(gs_variable_index *index, uint32_t variable_id)
{
    uint64_t entry = gs_variable_index_search(index, variable_id).entry;
    if (entry != 0)
        __atomic_store_n(gs_variable_index_place(index, entry, variable_id), 0, __ATOMIC_RELEASE);
}

/* Adds or replaces; the caller has filled the place, and never adds more than `variables_max`. */
static inline void gs_variable_index_put(gs_variable_index *index, uint32_t variable_id,
                                         uint32_t place)
{
    if (2 * (index->line_count + 1) > index->size && index->size < index->size_max)
        gs_variable_index_double(index);
    gs_block_search found = gs_variable_index_search(index, variable_id);
    uint64_t entry = found.entry;
    if (entry == 0)
        entry = (uint64_t)(variable_id / GS_BLOCK_PLACES) << 32 | ++index->line_count;
    __atomic_store_n(gs_variable_index_place(index, entry, variable_id), place + 1,
                     __ATOMIC_RELEASE);
    __atomic_store_n(found.at, entry, __ATOMIC_RELEASE);
}

#endif
