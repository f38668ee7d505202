/* Incoming channels: who may send here, when each was last heard, and what its counter leaves out.
 *
 * The set is part of the table's snapshot; what is remembered of a source lives outside of it, so a
 * change of the set forgets nothing. One thread writes a state, anyone may read it.
 */
#ifndef GS_SOURCES_H
#define GS_SOURCES_H

#include <stdbool.h>
#include <stdint.h>

#include "counters.h"
#include "event.h"

#define GS_SEEN_WORDS     16U
#define GS_SEEN_DATAGRAMS (64U * GS_SEEN_WORDS)
#define GS_LATE_MAX       1000000U     /* Further back is another sender's count. */
#define GS_GAP_MAX        (1ULL << 32) /* Further ahead, too. */

typedef struct {
    gs_counter heard_ns; /* By the steady clock; 0: never. */
    gs_counter datagrams, probes;
    gs_counter lost, reordered;
    uint64_t opened_ns;
    uint64_t newest;              /* The highest counter of this sender's life so far. */
    uint64_t last[2];             /* The counter that came last, by port. */
    uint64_t seen[GS_SEEN_WORDS]; /* Bit n modulo all: datagram n has come, of the last ones. */
} gs_source_state;

typedef struct {
    uint32_t channel_id;
    bool is_open;
    bool is_publisher;
    uint32_t back_channel; /* Leads to whoever sends on this one; 0: none. */
    uint64_t opened_ns;
    gs_source_state *state; /* The set's own business; whoever names a source leaves it NULL. */
} gs_source;

typedef struct {
    uint32_t mask;
    gs_source sources[];
} gs_source_set;

/* Up to when whoever listens has taken what came; all by the steady clock. Silence is judged by
 * this: a process that was stopped has heard nothing, but that says nothing of its sources. */
typedef struct {
    gs_counter since_ns; /* It began to listen. */
    gs_counter quiet_ns; /* Whatever came before has been taken. */
} gs_attention;

void gs_attention_begin(gs_attention *attention, uint64_t now_ns);
void gs_attention_note(gs_attention *attention, uint64_t taken_ns);

/* What is told of a source. */
typedef struct {
    uint64_t heard_ns, silent_ns, datagrams, lost, reordered, probes;
} gs_source_facts;

/* Of a variable or a channel. */
static inline uint64_t gs_hash(uint32_t identifier)
{
    return identifier * 0x9E3779B97F4A7C15ULL;
}

/* Those that were open before keep their state. */
gs_source_set *gs_source_set_make(const gs_source *sources, uint32_t count,
                                  const gs_source_set *before);

/* The state of the first source from `at` on that `after` no longer has (NULL: of any), or NULL. */
gs_source_state *gs_source_set_left(const gs_source_set *before, const gs_source_set *after,
                                    uint32_t *at);

static inline const gs_source *gs_source_of(const gs_source_set *set, uint32_t channel_id)
{
    uint32_t at = (uint32_t)(gs_hash(channel_id) >> 32) & set->mask;
    while (set->sources[at].is_open) {
        if (set->sources[at].channel_id == channel_id)
            return &set->sources[at];
        at = (at + 1) & set->mask;
    }
    return NULL;
}

/* Any counter but the next one. */
void gs_source_hear_rare(gs_source_state *state, uint64_t counter, uint32_t port);

/* Note one good datagram. Both ports of a channel share its counter, and the urgent one is read
 * first, so numbers that come late are nothing special: they are only not lost. */
static inline void gs_source_hear(gs_source_state *state, const gs_datagram *read, uint32_t port,
                                  uint64_t now_ns)
{
    uint64_t counter = read->counter;
    gs_set(&state->heard_ns, now_ns);
    gs_add(&state->datagrams, 1);
    if (__builtin_expect(read->event_count == 0, 0))
        gs_add(&state->probes, 1);
    if (__builtin_expect(counter != state->newest + 1, 0)) {
        gs_source_hear_rare(state, counter, port);
    } else {
        state->newest = counter;
        state->seen[counter / 64 % GS_SEEN_WORDS] |= 1ULL << counter % 64;
    }
    state->last[port] = counter;
}

/* The bits of many datagrams in a row, up to the newest. */
void gs_source_mark_row(gs_source_state *state, uint64_t first, uint64_t count);

/* Note a row of good datagrams, none of them a probe, that ends with `newest` and goes on without a
 * gap from the state's own: the same as hearing one after the other, at the price of one. */
static inline void gs_source_hear_row(gs_source_state *state, uint64_t newest, uint32_t port,
                                      uint64_t now_ns)
{
    uint64_t count = newest - state->newest;
    if (count == 0)
        return;
    gs_set(&state->heard_ns, now_ns);
    gs_add(&state->datagrams, count);
    if (count == 1)
        state->seen[newest / 64 % GS_SEEN_WORDS] |= 1ULL << newest % 64;
    else
        gs_source_mark_row(state, state->newest + 1, count);
    state->newest = newest;
    state->last[port] = newest;
}

gs_source_facts gs_source_tell(const gs_source_state *state, const gs_attention *attention);

#endif
