/* Words of the writer -> the row's program: each distinct term once, with a bitmap of its ways. */
#include <stdlib.h>

#include "forwarding_table.h"
#include "memory.h"
#include "pace.h"

/* One wish of one route. */
typedef struct {
    uint64_t modes;
    uint32_t every;
    uint32_t way;
} wish;

static int by_term(const void *a, const void *b)
{
    const wish *left = a, *right = b;
    if (left->every != right->every)
        return left->every < right->every ? -1 : 1;
    return left->modes < right->modes ? -1 : left->modes > right->modes;
}

static bool is_same_term(const wish *a, const wish *b)
{
    return a->every == b->every && a->modes == b->modes;
}

/* The wishes of all routes, sorted by term. */
static void read_wishes(const gs_row_words *words, wish *wishes, size_t count)
{
    wish *next = wishes;
    for (uint32_t way = 0; way < words->route_count; way++) {
        const gs_term *terms = words->terms + words->routes[way].term_first;
        for (uint32_t i = 0; i < words->routes[way].term_count; i++)
            *next++ = (wish){
                .modes = terms[i].modes,
                .every = words->flags & GS_ROW_PERIODIC ? terms[i].every : 1,
                .way = way,
            };
    }
    qsort(wishes, count, sizeof(wish), by_term);
}

/* How many terms are distinct, and in `divisors` how many divisors. */
static size_t count_terms(const wish *wishes, size_t count, size_t *divisors)
{
    size_t terms = 0;
    *divisors = 0;
    for (size_t i = 0; i < count; i++) {
        terms += i == 0 || !is_same_term(&wishes[i - 1], &wishes[i]);
        *divisors += i == 0 || wishes[i - 1].every != wishes[i].every;
    }
    return terms;
}

static void write_terms(gs_row *row, const wish *wishes, size_t count)
{
    uint64_t *at = row->program;
    for (size_t i = 0; i < count;) {
        gs_row_term *term = (gs_row_term *)(void *)at;
        uint64_t *map = at + GS_TERM_WORDS;
        const wish *first = &wishes[i];
        *term = (gs_row_term){.divisor = gs_divisor_make(first->every), .modes = first->modes};
        for (; i < count && is_same_term(first, &wishes[i]); i++)
            map[wishes[i].way / 64] |= 1ULL << wishes[i].way % 64;
        at += GS_TERM_WORDS + gs_row_map_words(row);
    }
}

static uint32_t flood_every(const gs_row_words *words, uint32_t i)
{
    uint32_t every = words->flags & GS_ROW_PERIODIC ? words->floods[i].every : 1;
    return every != 0 ? every : 1;
}

static void write_ways(gs_row *row, const gs_row_words *words)
{
    uint32_t *ways = (uint32_t *)(void *)(row->program + row->way_at);
    for (uint32_t i = 0; i < words->route_count; i++)
        ways[i] = words->routes[i].channel_index << 4 | words->routes[i].event_class;
    uint64_t *at = row->program + row->way_at + (words->route_count + 1) / 2;
    for (uint32_t i = 0; i < words->flood_count; i++) {
        *at++ = words->floods[i].modes;
        *at++ = (uint64_t)flood_every(words, i) << 32 | words->floods[i].level;
    }
}

static void write_pace(gs_row *row, const gs_row_words *words)
{
    row->interval_ns_min = words->interval_ns_min;
    row->tolerance_ns = words->flags & GS_ROW_STAMP_EXEMPT ? GS_PACE_BURST_NS : GS_PACE_JITTER_NS;
}

static gs_row *write_row(const gs_row_words *words, const wish *wishes, size_t wish_count,
                         size_t term_count)
{
    size_t map_words = (words->route_count + 63) / 64;
    size_t way_at = term_count * (GS_TERM_WORDS + map_words);
    size_t total = way_at + (words->route_count + 1) / 2 + 2 * (size_t)words->flood_count;
    total += (words->flags & GS_ROW_KEEPS_NEWEST) != 0;
    total += (words->flags & GS_ROW_COUNTS_COPIES) != 0;
    total += gs_row_is_paced(words->flags);
    gs_row *row = gs_allocate(sizeof(gs_row) + total * sizeof(uint64_t));
    row->variable_id = words->variable_id;
    row->source = words->source;
    row->flags = (uint16_t)words->flags;
    row->flood_count = (uint16_t)words->flood_count;
    row->way_count = words->route_count;
    row->way_at = (uint32_t)way_at;
    if (words->flags & GS_ROW_PERIODIC)
        row->period = gs_period_make(words->seconds, words->per_seconds, words->phase_ns);
    else
        write_pace(row, words);
    write_terms(row, wishes, wish_count);
    write_ways(row, words);
    if (gs_row_is_paced(words->flags)) {
        *gs_row_interval_word(row) = words->interval_ns_min;
        if (words->interval_ns_min != 0)
            row->period = gs_period_replayed(row->period);
    }
    if (words->route_count == 1 && term_count == 1 && words->flood_count == 0)
        row->flags |= row->flags & (GS_ROW_KEEPS_NEWEST | GS_ROW_COUNTS_COPIES)
                          ? GS_ROW_PLAIN_BUT_KEEPS
                          : GS_ROW_PLAIN;
    return row;
}

gs_row *gs_row_make(const gs_row_words *words, uint32_t state)
{
    size_t wish_count = 0, divisor_count;
    for (uint32_t i = 0; i < words->route_count; i++)
        wish_count += words->routes[i].term_count;
    wish *wishes = gs_allocate(sizeof(wish) * (wish_count + 1));
    read_wishes(words, wishes, wish_count);
    size_t term_count = count_terms(wishes, wish_count, &divisor_count);
    gs_row *row = NULL;
    if (divisor_count <= GS_DIVISORS_MAX) {
        row = write_row(words, wishes, wish_count, term_count);
        row->state = state;
    }
    gs_release(wishes);
    return row;
}
