#include "sources.h"

#include <string.h>

#include "memory.h"

static void put(gs_source_set *set, const gs_source *source, gs_source_state *state)
{
    uint32_t at = (uint32_t)(gs_hash(source->channel_id) >> 32) & set->mask;
    while (set->sources[at].is_open)
        at = (at + 1) & set->mask;
    set->sources[at] = *source;
    set->sources[at].is_open = true;
    set->sources[at].state = state;
}

void gs_source_state_release(void *state)
{
    gs_opening_close(&((gs_source_state *)state)->opening);
    gs_release(state);
}

static gs_source_state *state_make(const gs_source *source)
{
    gs_source_state *state = gs_allocate(sizeof *state);
    state->opened_ns = source->opened_ns;
    return state;
}

gs_source_set *gs_source_set_make(const gs_source *sources, uint32_t count,
                                  const gs_source_set *before)
{
    uint32_t slots = 2;
    while (slots < count * 2)
        slots *= 2;
    gs_source_set *set = gs_allocate(sizeof *set + slots * sizeof(gs_source));
    set->mask = slots - 1;
    for (uint32_t i = 0; i < count; i++) {
        const gs_source *known = gs_source_of(before, sources[i].channel_id);
        put(set, &sources[i], known != NULL ? known->state : state_make(&sources[i]));
    }
    return set;
}

gs_source_state *gs_source_set_left(const gs_source_set *before, const gs_source_set *after,
                                    uint32_t *at)
{
    while (*at <= before->mask) {
        const gs_source *source = &before->sources[(*at)++];
        if (source->is_open && (after == NULL || gs_source_of(after, source->channel_id) == NULL))
            return source->state;
    }
    return NULL;
}

static void begin(gs_source_state *state, uint64_t counter)
{
    memset(state->seen, 0, sizeof state->seen);
    state->seen[counter / 64 % GS_SEEN_WORDS] = 1ULL << counter % 64;
    gs_set(&state->newest, counter);
}

static void skip(gs_source_state *state, uint64_t counter)
{
    uint64_t gap = counter - state->newest - 1;
    gs_add(&state->lost, gap);
    if (gap >= GS_SEEN_DATAGRAMS) {
        begin(state, counter);
        return;
    }
    for (uint64_t i = state->newest + 1; i != counter; i++)
        state->seen[i / 64 % GS_SEEN_WORDS] &= ~(1ULL << i % 64);
    state->seen[counter / 64 % GS_SEEN_WORDS] |= 1ULL << counter % 64;
    gs_set(&state->newest, counter);
}

static void find(gs_source_state *state)
{
    gs_add(&state->reordered, 1);
    if (gs_read(&state->lost) != 0)
        gs_subtract(&state->lost, 1);
}

/* True if the counter fell back. One port nearly keeps the order; numbers of the other port may be
 * far ahead. */
static bool has_fallen(const gs_source_state *state, uint64_t counter, uint32_t port)
{
    uint64_t behind = state->last[port] - counter;
    return behind >= GS_SEEN_DATAGRAMS && behind <= GS_LATE_MAX;
}

void gs_source_note_rare(gs_source_state *state, uint64_t counter, uint32_t port)
{
    uint64_t ahead = counter - state->newest, behind = state->newest - counter;
    uint64_t *word = &state->seen[counter / 64 % GS_SEEN_WORDS], bit = 1ULL << counter % 64;
    if (gs_read(&state->datagrams) == 1) {
        begin(state, counter);
    } else if (ahead - 1 < GS_GAP_MAX) {
        skip(state, counter);
    } else if (behind < GS_SEEN_DATAGRAMS) {
        if ((*word & bit) == 0)
            find(state); /* Else the network has duplicated it. */
        *word |= bit;
    } else if (behind > GS_LATE_MAX || has_fallen(state, counter, port)) {
        begin(state, counter); /* The sender has restarted. */
    } else {
        find(state);
    }
}

void gs_source_mark_run(gs_source_state *state, uint64_t first, uint64_t count)
{
    while (count != 0) {
        uint64_t bit = first % 64, here = 64 - bit < count ? 64 - bit : count;
        state->seen[first / 64 % GS_SEEN_WORDS] |= UINT64_MAX >> (64 - here) << bit;
        first += here;
        count -= here;
    }
}

void gs_attention_begin(gs_attention *attention, uint64_t now_ns)
{
    gs_set(&attention->since_ns, now_ns);
    gs_set(&attention->quiet_ns, now_ns);
}

void gs_attention_note(gs_attention *attention, uint64_t taken_ns)
{
    if (gs_read(&attention->since_ns) == 0)
        gs_set(&attention->since_ns, taken_ns);
    if (taken_ns > gs_read(&attention->quiet_ns))
        gs_set(&attention->quiet_ns, taken_ns);
}

gs_source_facts gs_source_read(const gs_source_state *state, const gs_attention *attention)
{
    gs_source_facts facts = {
        .heard_ns = gs_read(&state->heard_ns),
        .datagrams = gs_read(&state->datagrams),
        .lost = gs_read(&state->lost),
        .reordered = gs_read(&state->reordered),
        .probes = gs_read(&state->probes),
        .newest_counter = gs_read(&state->newest),
    };
    uint64_t from_ns = facts.heard_ns, since_ns = gs_read(&attention->since_ns);
    uint64_t quiet_ns = gs_read(&attention->quiet_ns);
    if (from_ns < state->opened_ns)
        from_ns = state->opened_ns;
    if (from_ns < since_ns)
        from_ns = since_ns;
    facts.silent_ns = quiet_ns > from_ns ? quiet_ns - from_ns : 0;
    return facts;
}
