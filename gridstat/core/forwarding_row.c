/* Words of the writer -> the row's program: divisors once, channels grouped by what they want. */
#include <stdlib.h>
#include <string.h>

#include "forwarding_table.h"
#include "memory.h"

/* One route's wish: per distinct mode mask the divisors that serve it, sorted, so that equal
 * wishes are equal bytes. */
typedef struct {
    uint64_t modes;
    uint64_t divisor_bits;
} wish;

typedef struct {
    wish *wishes;
    uint32_t count;
    uint32_t way;
} route_wish;

static int by_modes(const void *a, const void *b)
{
    uint64_t left = ((const wish *)a)->modes, right = ((const wish *)b)->modes;
    return left < right ? -1 : left > right;
}

static int by_wish(const void *a, const void *b)
{
    const route_wish *left = a, *right = b;
    if (left->count != right->count)
        return left->count < right->count ? -1 : 1;
    int order = memcmp(left->wishes, right->wishes, sizeof(wish) * left->count);
    if (order != 0)
        return order;
    return left->way < right->way ? -1 : left->way > right->way;
}

static bool wants_the_same(const route_wish *a, const route_wish *b)
{
    return a->count == b->count && memcmp(a->wishes, b->wishes, sizeof(wish) * a->count) == 0;
}

/* The divisor's place in the row's list, appended when new; -1 when the list is full. */
static int place_of(uint32_t *divisors, uint32_t *count, uint32_t every)
{
    for (uint32_t i = 0; i < *count; i++)
        if (divisors[i] == every)
            return (int)i;
    if (*count == GS_DIVISORS_MAX)
        return -1;
    divisors[*count] = every;
    return (int)(*count)++;
}

static bool read_route(const gs_row_words *words, const gs_route *route, route_wish *out,
                       uint32_t *divisors, uint32_t *divisor_count)
{
    out->way = route->channel_index << 4 | route->event_class;
    out->count = 0;
    for (uint32_t i = 0; i < route->term_count; i++) {
        const gs_term *term = &words->terms[route->term_first + i];
        uint32_t every = words->flags & GS_ROW_PERIODIC ? term->every : 1;
        int place = place_of(divisors, divisor_count, every);
        if (place < 0)
            return false;
        uint32_t at = 0;
        while (at < out->count && out->wishes[at].modes != term->modes)
            at++;
        if (at == out->count)
            out->wishes[out->count++] = (wish){.modes = term->modes};
        out->wishes[at].divisor_bits |= 1ULL << place;
    }
    qsort(out->wishes, out->count, sizeof(wish), by_modes);
    return true;
}

static size_t group_words(const route_wish *routes, uint32_t count, uint32_t *group_count)
{
    size_t words = 0;
    *group_count = 0;
    for (uint32_t i = 0; i < count;) {
        uint32_t end = i + 1;
        while (end < count && wants_the_same(&routes[i], &routes[end]))
            end++;
        words += 1 + 2 * (size_t)routes[i].count + (end - i + 1) / 2;
        (*group_count)++;
        i = end;
    }
    return words;
}

static uint64_t *write_groups(uint64_t *at, const route_wish *routes, uint32_t count)
{
    for (uint32_t i = 0; i < count;) {
        uint32_t end = i + 1;
        while (end < count && wants_the_same(&routes[i], &routes[end]))
            end++;
        *at++ = routes[i].count | (uint64_t)(end - i) << 32;
        memcpy(at, routes[i].wishes, sizeof(wish) * routes[i].count);
        at += 2 * (size_t)routes[i].count;
        uint32_t *ways = (uint32_t *)(void *)at;
        at += (end - i + 1) / 2;
        for (; i < end; i++)
            *ways++ = routes[i].way;
    }
    return at;
}

static gs_row *write_row(const gs_row_words *words, const route_wish *routes,
                         const uint32_t *divisors, uint32_t divisor_count)
{
    uint32_t group_count;
    size_t group_part = group_words(routes, words->route_count, &group_count);
    size_t divisor_part = (divisor_count + 1) / 2;
    size_t total = divisor_part + group_part + 2 * (size_t)words->flood_count;
    gs_row *row = gs_allocate(sizeof(gs_row) + total * sizeof(uint64_t));
    row->variable_id = words->variable_id;
    row->source = words->source;
    row->flags = (uint8_t)words->flags;
    row->divisor_count = (uint8_t)divisor_count;
    row->flood_count = (uint16_t)words->flood_count;
    row->group_count = group_count;
    row->flood_at = (uint32_t)(divisor_part + group_part);
    if (words->flags & GS_ROW_PERIODIC)
        row->period = gs_period_make(words->seconds, words->per_seconds, words->phase_ns);
    else
        row->interval_ns_min = words->interval_ns_min;
    memcpy(row->program, divisors, sizeof(uint32_t) * divisor_count);
    uint64_t *at = write_groups(row->program + divisor_part, routes, words->route_count);
    for (uint32_t i = 0; i < words->flood_count; i++) {
        *at++ = words->floods[i].modes;
        *at++ = words->floods[i].level;
    }
    return row;
}

gs_row *gs_row_make(const gs_row_words *words, uint32_t state)
{
    size_t terms = 0;
    for (uint32_t i = 0; i < words->route_count; i++)
        terms += words->routes[i].term_count;
    route_wish *routes = gs_allocate(sizeof(route_wish) * (words->route_count + 1U));
    wish *wishes = gs_allocate(sizeof(wish) * (terms + 1));
    uint32_t divisors[GS_DIVISORS_MAX], divisor_count = 0;
    gs_row *row = NULL;
    wish *next = wishes;
    bool fits = true;
    for (uint32_t i = 0; fits && i < words->route_count; i++) {
        routes[i].wishes = next;
        next += words->routes[i].term_count;
        fits = read_route(words, &words->routes[i], &routes[i], divisors, &divisor_count);
    }
    if (fits) {
        qsort(routes, words->route_count, sizeof(route_wish), by_wish);
        row = write_row(words, routes, divisors, divisor_count);
        row->state = state;
        if (words->route_count == 1 && routes[0].count == 1 && divisor_count == 1 &&
            words->flood_count == 0)
            row->flags |= GS_ROW_PLAIN;
    }
    gs_release(wishes);
    gs_release(routes);
    return row;
}
