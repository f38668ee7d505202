/* The forwarding table: variable -> row, read by the forwarding thread as a snapshot.
 *
 * The root points to small hash pages, the pages to rows. A commit copies only the root and the
 * pages that it touches, then swaps one pointer. The old ones are freed once the forwarding thread
 * has passed a quiet point (it processes no event) or sleeps. Windows, rings and paces live outside
 * the snapshot, so a change of routes resets none of them.
 *
 * A row is laid out for one pass: its distinct terms (a divisor and the modes in which it holds),
 * each tested once an event, each with a bitmap of the outputs that want it. The union of the
 * bitmaps of the due terms is the set of channels that get a copy. S0's "close" layout tests every
 * interval of every channel, its "sparse" layout marks channels while it goes; this one does
 * neither (ADR-0008, benchmarks/micro/table_layouts.py).
 */
#ifndef GS_FORWARDING_TABLE_H
#define GS_FORWARDING_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "copies.h"
#include "duplicates.h"
#include "newest.h"
#include "policing.h"
#include "rate_law.h"
#include "sources.h"

#define GS_DIVISORS_MAX 64

enum {
    GS_ROW_PERIODIC = 1,
    GS_ROW_URGENT = 2,
    GS_ROW_STAMP_EXEMPT = 4,
    GS_ROW_PLAIN = 8, /* One channel and one term, nothing else: most rows of most routers. */
    GS_ROW_KEEPS_NEWEST = 16,
    GS_ROW_PLAIN_BUT_KEEPS = 32, /* Plain, except that it keeps the newest event or counts. */
    GS_ROW_COUNTS_COPIES = 64,
    GS_ROW_STAMP_BOUNDED = 128, /* Has bounds of its own on stamps; never with STAMP_EXEMPT. */
};

/* GS_TERM_WORDS: words of a term before its bitmap. GS_PLAIN_OUTPUT: position of a plain row's only
 * output. GS_MAP_WORDS_MAX: words of a bitmap that are decided in one pass; longer bitmaps take
 * several. */
enum { GS_TERM_WORDS = 4, GS_PLAIN_OUTPUT = GS_TERM_WORDS + 1, GS_MAP_WORDS_MAX = 16 };

typedef struct {
    uint64_t modes;
    uint32_t every;
} gs_term;

typedef struct {
    uint32_t channel_index;
    uint32_t event_class;
    uint32_t term_first;
    uint32_t term_count;
} gs_route;

typedef struct {
    uint64_t modes;
    uint32_t level;
    uint32_t every; /* 0 and 1: every slot. */
} gs_flood;

/* Row of one variable as the writer passes it. */
typedef struct {
    uint32_t variable_id;
    uint32_t flags;
    uint32_t seconds, per_seconds;
    uint64_t phase_ns;
    uint64_t interval_ns_min;
    uint32_t source;
    uint32_t newest_options_max;  /* Options kept with the newest event. */
    uint32_t counted_every;       /* Divisor of the slots whose copies are counted. */
    gs_stamp_bounds stamp_bounds; /* Of a row with GS_ROW_STAMP_BOUNDED. */
    uint32_t route_count;
    uint32_t flood_count;
    const gs_route *routes;
    const gs_term *terms;
    const gs_flood *floods;
} gs_row_spec;

/* Row as the forwarding thread reads it. `program` begins a cache line and holds, in 64-bit words:
 *   the terms, fastest divisor first: { gs_row_term, a bitmap over the outputs, 64 to a word },
 *   from outputs_at on the outputs, two to a word: an output is channel_index << 4 | class,
 *   then flood_count times { modes, every << 32 | level },
 *   then, in a row that keeps the newest event, a pointer to it,
 *   then, in a row that counts copies, a pointer to the counts,
 *   then, in a periodic row that is exempt from the bound on stamps, the interval of its pace, or
 *   in a row with bounds of its own on stamps, those: at most one of the two. */
typedef struct {
    uint32_t variable_id;
    uint32_t state; /* Index of the window and the pace, or the ring. */
    uint32_t source;
    uint16_t flags;
    uint16_t flood_count;
    uint32_t output_count;
    uint32_t outputs_at;
    union {
        gs_period period;
        struct {
            uint64_t interval_ns_min, tolerance_ns; /* Pace of an aperiodic row. */
        };
    };
    uint64_t program[];
} gs_row;

typedef struct {
    gs_divisor divisor;
    uint64_t modes;
} gs_row_term;

_Static_assert(sizeof(gs_row) == 64, "the program begins a cache line");
_Static_assert(sizeof(gs_row_term) == GS_TERM_WORDS * sizeof(uint64_t), "terms are words");

static inline uint32_t gs_row_map_words(const gs_row *row)
{
    return (row->output_count + 63) / 64;
}

static inline const uint64_t *gs_row_floods(const gs_row *row)
{
    return row->program + row->outputs_at + (row->output_count + 1) / 2;
}

/* Word that points to the newest event; only in a row that keeps it. */
static inline uint64_t *gs_row_newest_word(gs_row *row)
{
    return row->program + row->outputs_at + (row->output_count + 1) / 2 + 2UL * row->flood_count;
}

static inline gs_newest *gs_row_newest(const gs_row *row)
{
    return (gs_newest *)(uintptr_t)gs_row_floods(row)[2UL * row->flood_count];
}

/* Copies of a row's due events by incoming channel; channel 0 is the publisher's own. */
typedef struct {
    gs_divisor divisor;
    uint32_t channel_ids[GS_COPY_PATHS];
    gs_copy_window window;
    uint64_t joins; /* Odd while a channel takes a path index. */
} gs_row_copies;

static inline uint64_t *gs_row_copies_word(gs_row *row)
{
    return gs_row_newest_word(row) + ((row->flags & GS_ROW_KEEPS_NEWEST) != 0);
}

static inline gs_row_copies *gs_row_copies_of(const gs_row *row)
{
    const uint64_t *at = gs_row_floods(row) + 2UL * row->flood_count;
    return (gs_row_copies *)(uintptr_t)at[(row->flags & GS_ROW_KEEPS_NEWEST) != 0];
}

static inline bool gs_row_is_paced(uint32_t flags)
{
    return (flags & (GS_ROW_PERIODIC | GS_ROW_STAMP_EXEMPT)) ==
           (GS_ROW_PERIODIC | GS_ROW_STAMP_EXEMPT);
}

/* Shortest average interval between two events, 0 if it is not bounded; only of a periodic row that
 * is exempt from the bound on stamps. */
static inline uint64_t *gs_row_interval_word(gs_row *row)
{
    return gs_row_copies_word(row) + ((row->flags & GS_ROW_COUNTS_COPIES) != 0);
}

static inline uint64_t gs_row_interval_ns(const gs_row *row)
{
    const uint64_t *at = gs_row_floods(row) + 2UL * row->flood_count;
    at += (row->flags & GS_ROW_KEEPS_NEWEST) != 0;
    return at[(row->flags & GS_ROW_COUNTS_COPIES) != 0];
}

static inline const gs_stamp_bounds *gs_row_stamp_bounds(const gs_row *row)
{
    const uint64_t *at = gs_row_floods(row) + 2UL * row->flood_count;
    at += (row->flags & GS_ROW_KEEPS_NEWEST) != 0;
    at += (row->flags & GS_ROW_COUNTS_COPIES) != 0;
    return (const gs_stamp_bounds *)(const void *)at;
}

/* Return the path index of a channel that brings its first copy, or GS_COPY_PATHS if all are in
 * use. */
uint32_t gs_row_copies_join(gs_row_copies *copies, uint32_t channel_id);

/* Count one copy that came from this source; only for a row that counts copies. */
static inline void gs_row_note_copy(const gs_row *row, const gs_source *source, int64_t slot,
                                    bool is_first)
{
    gs_row_copies *copies = gs_row_copies_of(row);
    uint32_t channel_id = source->is_publisher ? 0 : source->channel_id, path = 0;
    uint64_t due;
    if (!gs_copies_due(slot, &copies->divisor, &due))
        return;
    while (path < copies->window.path_count && copies->channel_ids[path] != channel_id)
        path++;
    if (__builtin_expect(path == copies->window.path_count, 0))
        path = gs_row_copies_join(copies, channel_id);
    if (path < GS_COPY_PATHS)
        gs_copies_note(&copies->window, path, due, is_first);
}

static inline bool gs_term_is_due(const uint64_t *at, uint64_t active, uint64_t magnitude)
{
    const gs_row_term *term = (const gs_row_term *)(const void *)at;
    return (term->modes & active) != 0 && gs_is_multiple(magnitude, &term->divisor);
}

/* Return, as bits, the outputs that get the event of this slot, for a row with at most 64 outputs.
 * The loop ends early once every output is due. */
static inline uint64_t gs_row_due(const gs_row *row, uint64_t active, int64_t slot)
{
    const uint64_t *at = row->program, *end = at + row->outputs_at;
    uint64_t magnitude = gs_slot_magnitude(slot), all = UINT64_MAX >> (-row->output_count & 63);
    uint64_t due = 0;
    for (; at != end && due != all; at += GS_TERM_WORDS + 1)
        due |= at[GS_TERM_WORDS] & (0 - (uint64_t)gs_term_is_due(at, active, magnitude));
    return due;
}

/* Write the due outputs from 64 * `first` on into `count` words of bits, for a row of any size. */
static inline void gs_row_due_wide(const gs_row *row, uint64_t active, int64_t slot, uint32_t first,
                                   uint32_t count, uint64_t *due)
{
    const uint64_t *at = row->program, *end = at + row->outputs_at;
    uint64_t magnitude = gs_slot_magnitude(slot);
    for (uint32_t i = 0; i < count; i++)
        due[i] = 0;
    for (; at != end; at += GS_TERM_WORDS + gs_row_map_words(row))
        if (gs_term_is_due(at, active, magnitude))
            for (uint32_t i = 0; i < count; i++)
                due[i] |= at[GS_TERM_WORDS + first + i];
}

static inline const uint32_t *gs_row_outputs(const gs_row *row)
{
    return (const uint32_t *)(const void *)(row->program + row->outputs_at);
}

typedef struct {
    uint32_t variable_id;
    uint32_t state;
    const gs_row *row;
} gs_slot;

typedef struct {
    uint32_t mask;
    uint32_t count;
    uint64_t reserved; /* Keeps each slot within one cache line. */
    gs_slot slots[];
} gs_page;

typedef struct {
    uint32_t count;
    struct gs_flood_output {
        uint32_t channel_index;
        uint32_t channel_id;
        uint32_t level;
    } outputs[];
} gs_flood_set;

typedef struct {
    uint32_t page_shift;
    gs_source_set *sources;
    gs_flood_set *floods;
    gs_page *pages[];
} gs_root;

/* State of variables that outlives the versions of their rows. */
typedef struct {
    gs_window *windows;
    gs_ring *rings;
    uint64_t *paces; /* By window: when the next event is due; only for rows with a pace. */
} gs_states;

typedef struct gs_table gs_table;

/* NULL when the variable has more distinct divisors than GS_DIVISORS_MAX. */
gs_row *gs_row_make(const gs_row_spec *spec, uint32_t state);

typedef enum {
    GS_COMMITTED = 0,
    GS_TOO_MANY_VARIABLES,
    GS_TOO_MANY_RINGS,
    GS_TOO_MANY_DIVISORS,
    GS_NO_MEMORY,
} gs_commit_result;

gs_table *gs_table_open(uint32_t variables_max, uint32_t rings_max);
void gs_table_close(gs_table *table);

/* The writer's side. A delta becomes visible as a whole or not at all. */
gs_commit_result gs_table_commit(gs_table *table, const gs_row_spec *upserts, uint32_t upsert_count,
                                 const uint32_t *removals, uint32_t removal_count);
void gs_table_set_sources(gs_table *table, const gs_source *sources, uint32_t count);
const gs_source_set *gs_table_sources(const gs_table *table);
void gs_table_set_floods(gs_table *table, const struct gs_flood_output *outputs, uint32_t count);

/* Copies of a variable by incoming channel. */
typedef struct {
    uint32_t every, path_count;
    uint32_t channel_ids[GS_COPY_PATHS];
    uint64_t passed, came[GS_COPY_PATHS], first[GS_COPY_PATHS];
} gs_row_copy_facts;

/* False if channels change so often that no consistent copy could be read. */
bool gs_row_copies_read(const gs_row_copies *copies, const gs_period *period,
                        gs_row_copy_facts *facts);
bool gs_table_copies(const gs_table *table, uint32_t variable_id, gs_row_copy_facts *facts);

/* Copy the newest event of a variable and return its bytes; 0: the row keeps none, or none has
 * come. */
uint32_t gs_table_newest(const gs_table *table, uint32_t variable_id, uint8_t *to);
uint32_t gs_table_rows(const gs_table *table);
const gs_row *gs_table_row(const gs_table *table, uint32_t variable_id); /* NULL: none. */

/* Release an object once the forwarding thread can no longer hold it. The next swap of the table
 * begins the wait for that; `gs_table_pass` begins it without a swap. */
void gs_table_retire(gs_table *table, void (*release)(void *), void *thing);
void gs_table_pass(gs_table *table);
void gs_table_reclaim(gs_table *table);
uint32_t gs_table_retired(const gs_table *table);

/* The present version, and whether the forwarding thread holds no older one. */
uint64_t gs_table_epoch(const gs_table *table);
bool gs_table_is_past(const gs_table *table, uint64_t epoch);

/* The forwarding thread's side. */
const gs_root *gs_table_enter(gs_table *table); /* Also a quiet point: the old root is released. */
void gs_table_sleep(gs_table *table); /* The thread holds no version until the next enter. */
gs_states gs_table_states(gs_table *table);

static inline const gs_page *gs_page_of(const gs_root *root, uint64_t hash)
{
    return root->pages[hash >> root->page_shift];
}

static inline const gs_slot *gs_slot_first(const gs_page *page, uint64_t hash)
{
    return &page->slots[(hash >> 16) & page->mask];
}

/* NULL when the variable has no row. */
static inline const gs_slot *gs_find(const gs_page *page, uint64_t hash, uint32_t variable_id)
{
    uint32_t at = (uint32_t)(hash >> 16) & page->mask;
    for (;;) {
        const gs_slot *slot = &page->slots[at];
        if (slot->row == NULL)
            return NULL;
        if (slot->variable_id == variable_id)
            return slot;
        at = (at + 1) & page->mask;
    }
}

#endif
