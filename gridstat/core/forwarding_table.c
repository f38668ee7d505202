#include "forwarding_table.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "pace.h"

#define ASLEEP            UINT64_MAX
#define PAGE_SLOTS_MIN    16U
#define PAGE_BYTES_LIKELY 4096U
#define RETIRED_MIN       1024U
#define JOIN_TRIES_MAX    1000U

typedef struct {
    uint64_t epoch;
    void (*release)(void *);
    void *thing;
    uint32_t *state_stack; /* If release is NULL: the window or ring returns to this stack. */
    uint32_t *state_count;
    uint32_t state;
} retired;

struct gs_table {
    gs_root *root;
    uint64_t epoch;                             /* Grows with every swap. */
    uint64_t seen __attribute__((aligned(64))); /* Epoch at which the reader entered. */
    gs_states states
        __attribute__((aligned(64))); /* The reader rarely needs the fields from here on. */
    uint32_t page_bits, page_count;
    uint32_t rows, variables_max, ring_rows, rings_max;
    uint32_t *free_windows, free_window_count;
    uint32_t *free_rings, free_ring_count;
    retired *retired;
    uint32_t retired_count, retired_capacity;
};

static gs_page *page_make(uint32_t slots)
{
    gs_page *page = gs_allocate(sizeof(gs_page) + slots * sizeof(gs_slot));
    page->mask = slots - 1;
    return page;
}

static void page_put(gs_page *page, gs_slot slot)
{
    uint32_t at = (uint32_t)(gs_hash(slot.variable_id) >> 16) & page->mask;
    while (page->slots[at].row != NULL && page->slots[at].variable_id != slot.variable_id)
        at = (at + 1) & page->mask;
    page->count += page->slots[at].row == NULL;
    page->slots[at] = slot;
}

/* Copy a page, without one variable if given, with space for one more (at most half full). */
static gs_page *page_copy(const gs_page *page, const uint32_t *without)
{
    uint32_t slots = page->mask + 1;
    while ((page->count + 1) * 2 > slots)
        slots *= 2;
    gs_page *copy = page_make(slots);
    for (uint32_t i = 0; i <= page->mask; i++)
        if (page->slots[i].row != NULL &&
            (without == NULL || page->slots[i].variable_id != *without))
            page_put(copy, page->slots[i]);
    return copy;
}

/* Allocate twice the bounds: one delta may replace all states while the reader still holds the old
 * ones. */
static void open_states(gs_table *table)
{
    uint32_t windows = 2 * table->variables_max + 64;
    uint32_t rings = 2 * table->rings_max + 16;
    table->states.windows = gs_allocate(sizeof(gs_window) * windows);
    table->states.rings = gs_allocate(sizeof(gs_ring) * rings);
    table->states.paces = gs_allocate(sizeof(uint64_t) * windows);
    table->free_windows = gs_allocate(sizeof(uint32_t) * windows);
    table->free_rings = gs_allocate(sizeof(uint32_t) * rings);
    for (uint32_t i = windows; i-- > 0;)
        table->free_windows[table->free_window_count++] = i;
    for (uint32_t i = rings; i-- > 0;)
        table->free_rings[table->free_ring_count++] = i;
}

gs_table *gs_table_open(uint32_t variables_max, uint32_t rings_max)
{
    gs_table *table = gs_allocate(sizeof *table);
    table->page_bits = 1;
    while (table->page_bits < 14 && (32U << table->page_bits) < variables_max)
        table->page_bits++;
    table->page_count = 1U << table->page_bits;
    table->variables_max = variables_max;
    table->rings_max = rings_max;
    open_states(table);
    table->retired_capacity = RETIRED_MIN;
    table->retired = gs_allocate(sizeof(retired) * table->retired_capacity);
    gs_root *root = gs_allocate(sizeof *root + table->page_count * sizeof(gs_page *));
    root->page_shift = 64 - table->page_bits;
    for (uint32_t i = 0; i < table->page_count; i++)
        root->pages[i] = page_make(PAGE_SLOTS_MIN);
    root->sources = gs_allocate(sizeof(gs_source_set) + sizeof(gs_source));
    root->floods = gs_allocate(sizeof(gs_flood_set));
    table->root = root;
    table->epoch = 1;
    table->seen = ASLEEP;
    return table;
}

static void release_retired(retired *item)
{
    if (item->release != NULL)
        item->release(item->thing);
    else
        item->state_stack[(*item->state_count)++] = item->state;
}

static void release_row(const gs_table *table, const gs_row *row)
{
    if (row != NULL && row->flags & GS_ROW_PERIODIC)
        gs_window_close(&table->states.windows[row->state]);
    if (row != NULL && row->flags & GS_ROW_KEEPS_NEWEST)
        gs_release(gs_row_newest(row));
    if (row != NULL && row->flags & GS_ROW_COUNTS_COPIES)
        gs_release(gs_row_copies_of(row));
    gs_release((void *)(uintptr_t)row);
}

void gs_table_close(gs_table *table)
{
    for (uint32_t i = 0; i < table->retired_count; i++)
        release_retired(&table->retired[i]);
    for (uint32_t p = 0; p < table->page_count; p++) {
        gs_page *page = table->root->pages[p];
        for (uint32_t i = 0; i <= page->mask; i++)
            release_row(table, page->slots[i].row);
        gs_release(page);
    }
    gs_source_state *left;
    for (uint32_t at = 0; (left = gs_source_set_left(table->root->sources, NULL, &at)) != NULL;)
        gs_source_state_release(left);
    gs_release(table->root->sources);
    gs_release(table->root->floods);
    gs_release(table->root);
    gs_release(table->retired);
    gs_release(table->states.windows);
    gs_release(table->states.rings);
    gs_release(table->states.paces);
    gs_release(table->free_windows);
    gs_release(table->free_rings);
    gs_release(table);
}

static retired *retire_slot(gs_table *table)
{
    if (table->retired_count == table->retired_capacity) {
        retired *larger = gs_allocate(sizeof(retired) * table->retired_capacity * 2);
        memcpy(larger, table->retired, sizeof(retired) * table->retired_count);
        gs_release(table->retired);
        table->retired = larger;
        table->retired_capacity *= 2;
    }
    retired *item = &table->retired[table->retired_count++];
    *item = (retired){.epoch = table->epoch + 1};
    return item;
}

void gs_table_retire(gs_table *table, void (*release)(void *), void *thing)
{
    retired *item = retire_slot(table);
    item->release = release;
    item->thing = thing;
}

static void retire_state(gs_table *table, const gs_row *row)
{
    retired *item = retire_slot(table);
    bool is_periodic = row->flags & GS_ROW_PERIODIC;
    item->state_stack = is_periodic ? table->free_windows : table->free_rings;
    item->state_count = is_periodic ? &table->free_window_count : &table->free_ring_count;
    item->state = row->state;
    if (is_periodic && gs_window_bytes(&row->period) != 0)
        gs_table_retire(table, gs_release, table->states.windows[row->state].words);
}

static void retire_row(gs_table *table, const gs_row *row)
{
    gs_table_retire(table, gs_release, (void *)(uintptr_t)row);
}

void gs_table_reclaim(gs_table *table)
{
    uint64_t seen = __atomic_load_n(&table->seen, __ATOMIC_SEQ_CST);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < table->retired_count; i++) {
        if (table->retired[i].epoch <= seen)
            release_retired(&table->retired[i]);
        else
            table->retired[kept++] = table->retired[i];
    }
    table->retired_count = kept;
}

uint32_t gs_table_retired(const gs_table *table)
{
    return table->retired_count;
}
uint32_t gs_table_rows(const gs_table *table)
{
    return table->rows;
}

static gs_root *root_copy(const gs_table *table)
{
    size_t bytes = sizeof(gs_root) + table->page_count * sizeof(gs_page *);
    gs_root *copy = gs_allocate(bytes);
    memcpy(copy, table->root, bytes);
    return copy;
}

static void swap(gs_table *table, gs_root *fresh)
{
    gs_root *old = table->root;
    gs_table_retire(table, gs_release, old);
    __atomic_store_n(&table->root, fresh, __ATOMIC_SEQ_CST);
    __atomic_store_n(&table->epoch, table->epoch + 1, __ATOMIC_SEQ_CST);
    gs_table_reclaim(table);
}

void gs_table_pass(gs_table *table)
{
    __atomic_store_n(&table->epoch, table->epoch + 1, __ATOMIC_SEQ_CST);
    gs_table_reclaim(table);
}

/* Return the page of a variable in the new root; copy it from the old root at the first change. */
static gs_page **own_page(gs_table *table, gs_root *fresh, uint32_t variable_id,
                          const uint32_t *without)
{
    uint64_t at = gs_hash(variable_id) >> fresh->page_shift;
    gs_page *page = fresh->pages[at];
    bool is_shared = page == table->root->pages[at];
    if (!is_shared && without == NULL && (page->count + 1) * 2 <= page->mask + 1)
        return &fresh->pages[at];
    fresh->pages[at] = page_copy(page, without);
    if (is_shared)
        gs_table_retire(table, gs_release, page);
    else
        gs_release(page);
    return &fresh->pages[at];
}

static bool keeps_state(const gs_row *old, const gs_row_spec *spec)
{
    if (((old->flags ^ spec->flags) & GS_ROW_PERIODIC) != 0)
        return false;
    if (!(spec->flags & GS_ROW_PERIODIC))
        return true;
    gs_period period = gs_period_make(spec->seconds, spec->per_seconds, spec->phase_ns);
    return gs_period_has_same_slots(&period, &old->period);
}

static uint32_t take_state(gs_table *table, const gs_row *row)
{
    if (row->flags & GS_ROW_PERIODIC) {
        uint32_t state = table->free_windows[--table->free_window_count];
        gs_window_open(&table->states.windows[state], &row->period);
        table->states.paces[state] = 0;
        return state;
    }
    uint32_t state = table->free_rings[--table->free_ring_count];
    memset(&table->states.rings[state], 0, sizeof(gs_ring));
    return state;
}

static const gs_row *row_in(const gs_root *root, uint32_t variable_id)
{
    uint64_t hash = gs_hash(variable_id);
    const gs_slot *slot = gs_find(gs_page_of(root, hash), hash, variable_id);
    return slot == NULL ? NULL : slot->row;
}

static void retire_newest(gs_table *table, const gs_row *row)
{
    if (row->flags & GS_ROW_KEEPS_NEWEST)
        gs_table_retire(table, gs_release, gs_row_newest(row));
}

static void retire_copies(gs_table *table, const gs_row *row)
{
    if (row->flags & GS_ROW_COUNTS_COPIES)
        gs_table_retire(table, gs_release, gs_row_copies_of(row));
}

/* Keep the counts through a change of the row, unless other slots are counted from now on. */
static void place_copies(gs_table *table, const gs_row_spec *spec, gs_row *row, const gs_row *old)
{
    bool counts = spec->flags & GS_ROW_COUNTS_COPIES;
    gs_row_copies *kept = NULL;
    uint32_t every = counts ? gs_copies_every(&row->period, spec->counted_every) : 0;
    if (counts && old != NULL && old->flags & GS_ROW_COUNTS_COPIES && keeps_state(old, spec) &&
        gs_row_copies_of(old)->divisor.every == every)
        kept = gs_row_copies_of(old);
    if (old != NULL && kept == NULL)
        retire_copies(table, old);
    if (counts && kept == NULL) {
        kept = gs_allocate(sizeof *kept);
        kept->divisor = gs_divisor_make(every);
    }
    if (counts)
        *gs_row_copies_word(row) = (uintptr_t)kept;
}

/* Keep the newest event through a change of the row, unless its capacity changes. */
static void place_newest(gs_table *table, const gs_row_spec *spec, gs_row *row, const gs_row *old)
{
    gs_newest *kept = NULL;
    if (old != NULL && old->flags & GS_ROW_KEEPS_NEWEST)
        kept = gs_row_newest(old);
    bool is_same = kept != NULL && spec->flags & GS_ROW_KEEPS_NEWEST &&
                   kept->bytes_max == GS_EVENT_BYTES + GS_OPTION_BYTES * spec->newest_options_max;
    if (old != NULL && !is_same)
        retire_newest(table, old);
    if (spec->flags & GS_ROW_KEEPS_NEWEST) {
        kept = is_same ? kept : gs_newest_make(spec->newest_options_max);
        *gs_row_newest_word(row) = (uintptr_t)kept;
    }
}

static void put_row(gs_table *table, gs_root *fresh, const gs_row_spec *spec, gs_row *row)
{
    const gs_row *old = row_in(fresh, spec->variable_id);
    bool is_periodic = spec->flags & GS_ROW_PERIODIC;
    if (old != NULL && keeps_state(old, spec)) {
        row->state = old->state;
    } else {
        row->state = take_state(table, row);
        if (old != NULL)
            retire_state(table, old);
    }
    place_newest(table, spec, row, old);
    place_copies(table, spec, row, old);
    table->rows += old == NULL;
    table->ring_rows += !is_periodic;
    table->ring_rows -= old != NULL && !(old->flags & GS_ROW_PERIODIC);
    gs_page **page = own_page(table, fresh, spec->variable_id, NULL);
    page_put(*page, (gs_slot){spec->variable_id, row->state, row});
    if (old != NULL)
        retire_row(table, old);
}

static void remove_row(gs_table *table, gs_root *fresh, uint32_t variable_id)
{
    const gs_row *old = row_in(fresh, variable_id);
    if (old == NULL)
        return;
    own_page(table, fresh, variable_id, &variable_id);
    retire_state(table, old);
    retire_newest(table, old);
    retire_copies(table, old);
    table->ring_rows -= !(old->flags & GS_ROW_PERIODIC);
    table->rows--;
    retire_row(table, old);
}

typedef struct {
    const gs_row_spec *upserts;
    const uint32_t *removals;
    uint32_t upsert_count, removal_count;
} delta;

/* Check the bounds as of after the delta. A variable occurs in it once (the Cython code has
 * checked). */
static gs_commit_result has_room(const gs_table *table, const delta *change)
{
    uint32_t windows = 0, rings = 0, rows = table->rows, ring_rows = table->ring_rows;
    for (uint32_t i = 0; i < change->removal_count; i++) {
        const gs_row *old = row_in(table->root, change->removals[i]);
        rows -= old != NULL;
        ring_rows -= old != NULL && !(old->flags & GS_ROW_PERIODIC);
    }
    for (uint32_t i = 0; i < change->upsert_count; i++) {
        const gs_row_spec *spec = &change->upserts[i];
        const gs_row *old = row_in(table->root, spec->variable_id);
        bool is_periodic = spec->flags & GS_ROW_PERIODIC;
        rows += old == NULL;
        ring_rows += !is_periodic && (old == NULL || old->flags & GS_ROW_PERIODIC);
        ring_rows -= is_periodic && old != NULL && !(old->flags & GS_ROW_PERIODIC);
        if (old != NULL && keeps_state(old, spec))
            continue;
        windows += is_periodic;
        rings += !is_periodic;
    }
    if (rows > table->variables_max || windows > table->free_window_count)
        return GS_TOO_MANY_VARIABLES;
    if (ring_rows > table->rings_max || rings > table->free_ring_count)
        return GS_TOO_MANY_RINGS;
    return GS_COMMITTED;
}

/* True if the system has memory for the rows and for copies of the root and of every page
 * touched. */
static bool has_memory(const gs_table *table, const delta *change)
{
    size_t bytes = sizeof(gs_root) + table->page_count * sizeof(gs_page *);
    for (uint32_t i = 0; i < change->upsert_count; i++) {
        const gs_row_spec *spec = &change->upserts[i];
        for (uint32_t r = 0; r < spec->route_count; r++)
            bytes += spec->routes[r].term_count * (48 + spec->route_count / 8) + 64;
        bytes += 1024;
        if (spec->flags & GS_ROW_PERIODIC) {
            gs_period period = gs_period_make(spec->seconds, spec->per_seconds, spec->phase_ns);
            bytes += gs_window_bytes(&period);
        }
        if (spec->flags & GS_ROW_KEEPS_NEWEST)
            bytes += 128 + GS_OPTION_BYTES * spec->newest_options_max;
    }
    size_t touched = (size_t)change->upsert_count + change->removal_count;
    bytes += (touched < table->page_count ? touched : table->page_count) * PAGE_BYTES_LIKELY;
    return gs_has_memory(bytes);
}

gs_commit_result gs_table_commit(gs_table *table, const gs_row_spec *upserts, uint32_t upsert_count,
                                 const uint32_t *removals, uint32_t removal_count)
{
    gs_table_reclaim(table);
    delta change = {upserts, removals, upsert_count, removal_count};
    gs_commit_result result = has_room(table, &change);
    if (result == GS_COMMITTED && !has_memory(table, &change))
        result = GS_NO_MEMORY;
    if (result != GS_COMMITTED)
        return result;
    gs_row **rows = gs_allocate(sizeof(gs_row *) * (upsert_count + 1U));
    for (uint32_t i = 0; i < upsert_count && result == GS_COMMITTED; i++) {
        rows[i] = gs_row_make(&upserts[i], 0);
        if (rows[i] == NULL)
            result = GS_TOO_MANY_DIVISORS;
    }
    if (result == GS_COMMITTED) {
        gs_root *fresh = root_copy(table);
        for (uint32_t i = 0; i < removal_count; i++)
            remove_row(table, fresh, removals[i]);
        for (uint32_t i = 0; i < upsert_count; i++)
            put_row(table, fresh, &upserts[i], rows[i]);
        swap(table, fresh);
    } else {
        for (uint32_t i = 0; i < upsert_count; i++)
            gs_release(rows[i]);
    }
    gs_release(rows);
    return result;
}

const gs_row *gs_table_row(const gs_table *table, uint32_t variable_id)
{
    return row_in(table->root, variable_id);
}

uint32_t gs_table_newest(const gs_table *table, uint32_t variable_id, uint8_t *to)
{
    const gs_row *row = row_in(table->root, variable_id);
    bool is_kept = row != NULL && row->flags & GS_ROW_KEEPS_NEWEST;
    return is_kept ? gs_newest_read(gs_row_newest(row), to) : 0;
}

void gs_table_set_sources(gs_table *table, const gs_source *sources, uint32_t count)
{
    gs_root *fresh = root_copy(table);
    gs_source_set *before = fresh->sources;
    fresh->sources = gs_source_set_make(sources, count, before);
    gs_source_state *left;
    for (uint32_t at = 0; (left = gs_source_set_left(before, fresh->sources, &at)) != NULL;)
        gs_table_retire(table, gs_source_state_release, left);
    gs_table_retire(table, gs_release, before);
    swap(table, fresh);
}

const gs_source_set *gs_table_sources(const gs_table *table)
{
    return table->root->sources;
}

void gs_table_set_floods(gs_table *table, const struct gs_flood_output *outputs, uint32_t count)
{
    gs_flood_set *set = gs_allocate(sizeof *set + count * sizeof(struct gs_flood_output));
    set->count = count;
    if (count != 0)
        memcpy(set->outputs, outputs, count * sizeof(struct gs_flood_output));
    gs_root *fresh = root_copy(table);
    gs_table_retire(table, gs_release, fresh->floods);
    fresh->floods = set;
    swap(table, fresh);
}

const gs_root *gs_table_enter(gs_table *table)
{
    /* Epoch first, root second: the root is at least as new as the epoch. */
    uint64_t epoch = __atomic_load_n(&table->epoch, __ATOMIC_SEQ_CST);
    __atomic_store_n(&table->seen, epoch, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&table->root, __ATOMIC_SEQ_CST);
}

void gs_table_sleep(gs_table *table)
{
    __atomic_store_n(&table->seen, ASLEEP, __ATOMIC_SEQ_CST);
}
uint64_t gs_table_epoch(const gs_table *table)
{
    return table->epoch;
}

bool gs_table_is_past(const gs_table *table, uint64_t epoch)
{
    return __atomic_load_n(&table->seen, __ATOMIC_SEQ_CST) >= epoch;
}

gs_states gs_table_states(gs_table *table)
{
    return table->states;
}

/* --- One row: each distinct term once, with a bitmap of its outputs ----------------------- */

/* One term of one route. */
typedef struct {
    uint64_t modes;
    uint32_t every;
    uint32_t output;
} route_term;

static int by_term(const void *a, const void *b)
{
    const route_term *left = a, *right = b;
    if (left->every != right->every)
        return left->every < right->every ? -1 : 1;
    return left->modes < right->modes ? -1 : left->modes > right->modes;
}

static bool is_same_term(const route_term *a, const route_term *b)
{
    return a->every == b->every && a->modes == b->modes;
}

/* Collect the terms of all routes, sorted by divisor and modes. */
static void read_route_terms(const gs_row_spec *spec, route_term *route_terms, size_t count)
{
    route_term *next = route_terms;
    for (uint32_t output = 0; output < spec->route_count; output++) {
        const gs_term *terms = spec->terms + spec->routes[output].term_first;
        for (uint32_t i = 0; i < spec->routes[output].term_count; i++)
            *next++ = (route_term){
                .modes = terms[i].modes,
                .every = spec->flags & GS_ROW_PERIODIC ? terms[i].every : 1,
                .output = output,
            };
    }
    qsort(route_terms, count, sizeof(route_term), by_term);
}

/* Return the number of distinct terms; `divisors` gets the number of distinct divisors. */
static size_t count_terms(const route_term *route_terms, size_t count, size_t *divisors)
{
    size_t terms = 0;
    *divisors = 0;
    for (size_t i = 0; i < count; i++) {
        terms += i == 0 || !is_same_term(&route_terms[i - 1], &route_terms[i]);
        *divisors += i == 0 || route_terms[i - 1].every != route_terms[i].every;
    }
    return terms;
}

static void write_terms(gs_row *row, const route_term *route_terms, size_t count)
{
    uint64_t *at = row->program;
    for (size_t i = 0; i < count;) {
        gs_row_term *term = (gs_row_term *)(void *)at;
        uint64_t *map = at + GS_TERM_WORDS;
        const route_term *first = &route_terms[i];
        *term = (gs_row_term){.divisor = gs_divisor_make(first->every), .modes = first->modes};
        for (; i < count && is_same_term(first, &route_terms[i]); i++)
            map[route_terms[i].output / 64] |= 1ULL << route_terms[i].output % 64;
        at += GS_TERM_WORDS + gs_row_map_words(row);
    }
}

static uint32_t flood_every(const gs_row_spec *spec, uint32_t i)
{
    uint32_t every = spec->flags & GS_ROW_PERIODIC ? spec->floods[i].every : 1;
    return every != 0 ? every : 1;
}

static void write_outputs(gs_row *row, const gs_row_spec *spec)
{
    uint32_t *outputs = (uint32_t *)(void *)(row->program + row->outputs_at);
    for (uint32_t i = 0; i < spec->route_count; i++)
        outputs[i] = spec->routes[i].channel_index << 4 | spec->routes[i].event_class;
    uint64_t *at = row->program + row->outputs_at + (spec->route_count + 1) / 2;
    for (uint32_t i = 0; i < spec->flood_count; i++) {
        *at++ = spec->floods[i].modes;
        *at++ = (uint64_t)flood_every(spec, i) << 32 | spec->floods[i].level;
    }
}

static void write_pace(gs_row *row, const gs_row_spec *spec)
{
    row->interval_ns_min = spec->interval_ns_min;
    row->tolerance_ns = spec->flags & GS_ROW_STAMP_EXEMPT ? GS_PACE_BURST_NS : GS_PACE_JITTER_NS;
}

static gs_row *write_row(const gs_row_spec *spec, const route_term *route_terms,
                         size_t route_term_count, size_t term_count)
{
    size_t map_words = (spec->route_count + 63) / 64;
    size_t outputs_at = term_count * (GS_TERM_WORDS + map_words);
    size_t total = outputs_at + (spec->route_count + 1) / 2 + 2 * (size_t)spec->flood_count;
    total += (spec->flags & GS_ROW_KEEPS_NEWEST) != 0;
    total += (spec->flags & GS_ROW_COUNTS_COPIES) != 0;
    total += gs_row_is_paced(spec->flags);
    if (spec->flags & GS_ROW_STAMP_BOUNDED)
        total += sizeof(gs_stamp_bounds) / sizeof(uint64_t);
    gs_row *row = gs_allocate(sizeof(gs_row) + total * sizeof(uint64_t));
    row->variable_id = spec->variable_id;
    row->source = spec->source;
    row->flags = (uint16_t)spec->flags;
    row->flood_count = (uint16_t)spec->flood_count;
    row->output_count = spec->route_count;
    row->outputs_at = (uint32_t)outputs_at;
    if (spec->flags & GS_ROW_PERIODIC)
        row->period = gs_period_make(spec->seconds, spec->per_seconds, spec->phase_ns);
    else
        write_pace(row, spec);
    write_terms(row, route_terms, route_term_count);
    write_outputs(row, spec);
    if (spec->flags & GS_ROW_STAMP_BOUNDED)
        *(gs_stamp_bounds *)(void *)gs_row_interval_word(row) = spec->stamp_bounds;
    if (gs_row_is_paced(spec->flags)) {
        *gs_row_interval_word(row) = spec->interval_ns_min;
        if (spec->interval_ns_min != 0)
            row->period = gs_period_replayed(row->period);
    }
    if (spec->route_count == 1 && term_count == 1 && spec->flood_count == 0)
        row->flags |= row->flags & (GS_ROW_KEEPS_NEWEST | GS_ROW_COUNTS_COPIES)
                          ? GS_ROW_PLAIN_BUT_KEEPS
                          : GS_ROW_PLAIN;
    return row;
}

gs_row *gs_row_make(const gs_row_spec *spec, uint32_t state)
{
    size_t route_term_count = 0, divisor_count;
    for (uint32_t i = 0; i < spec->route_count; i++)
        route_term_count += spec->routes[i].term_count;
    route_term *route_terms = gs_allocate(sizeof(route_term) * (route_term_count + 1));
    read_route_terms(spec, route_terms, route_term_count);
    size_t term_count = count_terms(route_terms, route_term_count, &divisor_count);
    gs_row *row = NULL;
    if (divisor_count <= GS_DIVISORS_MAX) {
        row = write_row(spec, route_terms, route_term_count, term_count);
        row->state = state;
    }
    gs_release(route_terms);
    return row;
}

/* --- Counts of copies by the channel that brought them ------------------------------------ */

static bool is_taken(const gs_row_copies *copies, uint32_t path)
{
    return path < copies->window.path_count && !gs_copies_is_idle(&copies->window.paths[path]);
}

/* A channel that brings no copies any more loses its path index and its counts to the new one. */
uint32_t gs_row_copies_join(gs_row_copies *copies, uint32_t channel_id)
{
    uint32_t path = (uint32_t)copies->window.path_count;
    for (uint32_t i = 0; path == GS_COPY_PATHS && i < GS_COPY_PATHS; i++)
        if (!is_taken(copies, i))
            path = i;
    if (path == GS_COPY_PATHS)
        return path;
    uint64_t joins = copies->joins;
    __atomic_store_n(&copies->joins, joins + 1, __ATOMIC_RELAXED);
    gs_copies_begin_path(&copies->window, path);
    __atomic_store_n(&copies->channel_ids[path], channel_id, __ATOMIC_RELEASE);
    __atomic_store_n(&copies->joins, joins + 2, __ATOMIC_RELEASE);
    return path;
}

bool gs_row_copies_read(const gs_row_copies *copies, const gs_period *period,
                        gs_row_copy_facts *facts)
{
    for (uint32_t tries = 0; tries < JOIN_TRIES_MAX; tries++) {
        uint64_t joins = __atomic_load_n(&copies->joins, __ATOMIC_ACQUIRE);
        uint32_t every = copies->divisor.every;
        gs_copy_facts found = gs_copies_read(&copies->window, period, every);
        *facts = (gs_row_copy_facts){.every = every, .passed = found.passed};
        facts->path_count = (uint32_t)found.path_count;
        for (uint32_t i = 0; i < GS_COPY_PATHS; i++)
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
    return gs_row_copies_read(gs_row_copies_of(row), &row->period, facts);
}
