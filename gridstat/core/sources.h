/* Incoming channels: which may send here, when each was last received, and gaps in its counter.
 *
 * The set is part of the table's snapshot; the state of a source lives outside of it, so a change
 * of the set resets none. One thread writes a state, any thread may read it.
 */
#ifndef GS_SOURCES_H
#define GS_SOURCES_H

#include <stdbool.h>
#include <stdint.h>

#include "channel_keys.h"
#include "counters.h"
#include "event.h"

#define GS_SEEN_WORDS     16U
#define GS_SEEN_DATAGRAMS (64U * GS_SEEN_WORDS)
#define GS_LATE_MAX       1000000U     /* A counter further back is of a restarted sender. */
#define GS_GAP_MAX        (1ULL << 24) /* So is one further ahead. */

typedef struct {
    gs_counter heard_ns; /* By the steady clock; 0: never. */
    gs_counter datagrams, probes;
    gs_counter lost, reordered;
    uint64_t opened_ns;
    gs_counter newest;            /* Highest counter since the sender last started. */
    uint64_t last[2];             /* Last counter received, by port. */
    uint64_t seen[GS_SEEN_WORDS]; /* Bit n modulo all: datagram n has come. */
    gs_opening opening;           /* Keys, if the channel is sealed. */
} gs_source_state;

void gs_source_state_release(void *state); /* Wipes its keys. */

typedef struct {
    uint32_t channel_id;
    bool is_open;
    bool is_publisher;
    bool is_sealed;        /* Accepts sealed datagrams and no others. */
    uint32_t back_channel; /* Outgoing channel to the sender of this one; 0: none. */
    uint64_t opened_ns;
    gs_source_state *state; /* Owned by the set; callers leave it NULL. */
} gs_source;

typedef struct {
    uint32_t mask;
    gs_source sources[];
} gs_source_set;

/* Time up to which the listening thread has read its sockets, by the steady clock. Silence is
 * judged by this time: a process that was stopped received nothing, which says nothing about its
 * sources. */
typedef struct {
    gs_counter since_ns; /* When the thread began to listen. */
    gs_counter quiet_ns; /* Every datagram that came before this time has been read. */
} gs_attention;

void gs_attention_begin(gs_attention *attention, uint64_t now_ns);
void gs_attention_note(gs_attention *attention, uint64_t taken_ns);

/* State of a source as readers see it. */
typedef struct {
    uint64_t heard_ns, silent_ns, datagrams, lost, reordered, probes, newest_counter;
} gs_source_facts;

/* Hash of a variable or channel identifier. */
static inline uint64_t gs_hash(uint32_t identifier)
{
    return identifier * 0x9E3779B97F4A7C15ULL;
}

/* Make a set; sources that were open before keep their state. */
gs_source_set *gs_source_set_make(const gs_source *sources, uint32_t count,
                                  const gs_source_set *before);

/* Return the state of the first source from `at` on that is not in `after` (NULL: of any), or
 * NULL. */
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

/* Note any counter other than the next one. */
void gs_source_note_rare(gs_source_state *state, uint64_t counter, uint32_t port);

/* Note one valid datagram. Both ports of a channel share its counter, and the urgent port is read
 * first, so late numbers are normal: they only are not lost. */
static inline void gs_source_note(gs_source_state *state, const gs_datagram *read, uint32_t port,
                                  uint64_t now_ns)
{
    uint64_t counter = read->counter;
    gs_set(&state->heard_ns, now_ns);
    gs_add(&state->datagrams, 1);
    if (__builtin_expect(read->event_count == 0, 0))
        gs_add(&state->probes, 1);
    if (__builtin_expect(counter != state->newest + 1, 0)) {
        gs_source_note_rare(state, counter, port);
    } else {
        gs_set(&state->newest, counter);
        state->seen[counter / 64 % GS_SEEN_WORDS] |= 1ULL << counter % 64;
    }
    state->last[port] = counter;
}

/* Set the bits of `count` consecutive datagrams. */
void gs_source_mark_run(gs_source_state *state, uint64_t first, uint64_t count);

/* Note a run of consecutive valid datagrams without probes that ends with `newest` and follows the
 * state's own newest without a gap: the same as noting each, at the cost of one. */
static inline void gs_source_note_run(gs_source_state *state, uint64_t newest, uint32_t port,
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
        gs_source_mark_run(state, state->newest + 1, count);
    gs_set(&state->newest, newest);
    state->last[port] = newest;
}

gs_source_facts gs_source_read(const gs_source_state *state, const gs_attention *attention);

#endif
