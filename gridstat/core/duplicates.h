/* Duplicate detection: only the first copy of an event is accepted.
 *
 * Periodic variables: a bitmap window of the last slots, keyed by the 64-bit slot. It has 256 slots
 * in one cache line, or, where those would not last long enough at the variable's rate, up to 4,032
 * in a ring of words beside it; `gridstat/model/window_law.py` is the law.
 * Aperiodic ones: a ring of the last exact (created, sequence) pairs, with expiry. Not a high-water
 * mark: under loss and jitter "newest wins" dropped a third of the good events. A jump beyond the
 * window needs two consistent events, so that one forged stamp cannot silence a variable. The
 * expected position of the stream follows from the time since the last event: a slot ahead of that
 * position by less than the window is no jump, because events of sparse subscriptions are far
 * apart, and those of several subscriptions irregularly so. When all clocks are set, the window
 * follows the first event that is near our own clock. `reference_window.py` is the same in Python.
 */
#ifndef GS_DUPLICATES_H
#define GS_DUPLICATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rate_law.h"

#define GS_WINDOW_SLOTS    256
#define GS_LONG_SLOTS      960
#define GS_LONGEST_SLOTS   4032
#define GS_WINDOW_NS       800000000ULL /* A window should last as long. */
#define GS_POLICED_SLOTS   64
#define GS_RING_EVENTS     128
#define GS_QUIET_NS        1000000000ULL
#define GS_CLOCK_AHEAD_NS  1100000000ULL  /* An honest stamp is no further ahead, */
#define GS_CLOCK_BEHIND_NS 11000000000ULL /* and no older, clocks of other hosts included. */
#define GS_FLOOD_HOLD_NS \
    1000000000ULL /* An event must be remembered for this long to be flooded. */

typedef enum {
    GS_ACCEPTED = 0,
    GS_DUPLICATE,
    GS_POLICED_SLOT,
    GS_POLICED_JUMP,
    GS_POLICED_INTERVAL,
    GS_BEYOND, /* Behind the window: too old, unless the window follows a set clock. */
} gs_verdict;

#define GS_NO_CANDIDATE 1ULL /* So that no time of arrival, however early, is 0 here. */

/* A window with `words` and without `accepted_at_ns` is a long one: a ring of 64-bit words, where a
 * slot's number is its position. The word of the newest slot may be in part ahead of it. */
typedef struct {
    int64_t newest;
    union {
        uint64_t bits[4]; /* Bit i of the 256 stands for slot newest - i. */
        struct {
            uint64_t *words;
            uint64_t word_mask;
            uint64_t long_accepted_at_ns; /* Its `accepted_at_ns`. */
        };
    };
    int64_t candidate;
    uint64_t policed;        /* Bit i: the publisher itself has sent slot newest - i. */
    uint64_t accepted_at_ns; /* 0: no event yet. Bit 0 is set unless there is a candidate. */
} __attribute__((aligned(64))) gs_window;

typedef struct {
    uint64_t created_ns[GS_RING_EVENTS];
    uint64_t arrived_ns[GS_RING_EVENTS];
    uint16_t sequence[GS_RING_EVENTS];
    uint64_t last_created_ns; /* Stamp and arrival of the last accepted event. */
    uint64_t last_arrived_ns;
    uint64_t due_ns; /* When the next event is due by the publisher's pace. */
    uint32_t next;
    uint32_t count; /* Entries in use; it only grows, up to all of them. */
} gs_ring;

/* Number of slots that the window of this period has. */
uint32_t gs_window_slots_of(const gs_period *period);

/* Allocate what the window of this period needs, and clear it; the writer does both. */
void gs_window_open(gs_window *window, const gs_period *period);
void gs_window_close(gs_window *window);
size_t gs_window_bytes(const gs_period *period); /* Beyond the structure. */

static inline bool gs_window_is_long(const gs_window *window)
{
    return window->accepted_at_ns == 0 && window->words != NULL;
}

static inline uint32_t gs_window_slots(const gs_window *window)
{
    return gs_window_is_long(window) ? (uint32_t)(window->word_mask * 64) : GS_WINDOW_SLOTS;
}

/* When the last event was accepted; 0: none was. */
static inline uint64_t gs_window_accepted_at_ns(const gs_window *window)
{
    uint64_t at_ns = window->accepted_at_ns;
    return (gs_window_is_long(window) ? window->long_accepted_at_ns : at_ns) & ~GS_NO_CANDIDATE;
}

/* Shifts, jumps and old slots; the common case is inlined below. */
gs_verdict gs_window_accept_rare(gs_window *window, const gs_period *period, int64_t slot,
                                 bool from_publisher, uint64_t now_ns);

/* Decide on an event that is not accepted because it is beyond the window: move the window to it,
 * and return true, if its slot is near the present by our own clock and the newest slot is not.
 * Then our clock, which all stamps are bound to, was set. */
bool gs_window_follow_clock(gs_window *window, const gs_period *period, int64_t slot,
                            bool from_publisher, uint64_t now_ns, uint64_t wall_ns);

/* The common case: the slot is one of the next. `now_ns` is when the event came, and loses its
 * lowest bit. */
static inline bool gs_window_accept_next(gs_window *window, int64_t slot, bool from_publisher,
                                         uint64_t now_ns)
{
    uint64_t ahead = (uint64_t)slot - (uint64_t)window->newest;
    if (__builtin_expect(ahead - 1 >= 63 || slot <= window->newest, 0))
        return false;
    if (__builtin_expect(window->accepted_at_ns != 0, 1)) {
        uint64_t *bits = window->bits;
        bits[3] = bits[3] << ahead | bits[2] >> (64 - ahead);
        bits[2] = bits[2] << ahead | bits[1] >> (64 - ahead);
        bits[1] = bits[1] << ahead | bits[0] >> (64 - ahead);
        bits[0] = bits[0] << ahead | 1;
        window->policed = window->policed << ahead | from_publisher;
        window->newest = slot;
        window->accepted_at_ns = now_ns | GS_NO_CANDIDATE;
        return true;
    }
    if (window->long_accepted_at_ns == 0)
        return false;
    uint64_t at = (uint64_t)slot / 64, *word = &window->words[at & window->word_mask];
    if (at != (uint64_t)window->newest / 64)
        *word = 0;
    *word |= 1ULL << (uint64_t)slot % 64;
    window->policed = window->policed << ahead | from_publisher;
    window->newest = slot;
    window->long_accepted_at_ns = now_ns | GS_NO_CANDIDATE;
    return true;
}

static inline gs_verdict gs_window_accept(gs_window *window, const gs_period *period, int64_t slot,
                                          bool from_publisher, uint64_t now_ns)
{
    if (__builtin_expect(gs_window_accept_next(window, slot, from_publisher, now_ns), 1))
        return GS_ACCEPTED;
    return gs_window_accept_rare(window, period, slot, from_publisher, now_ns);
}

typedef struct {
    uint64_t created_ns;
    uint64_t now_ns;
    uint64_t expiry_ns;
    uint64_t interval_ns_min; /* 0: not policed here. */
    uint64_t tolerance_ns;    /* How much ahead of its pace it may come. */
    uint16_t sequence;
} gs_occurrence;

gs_verdict gs_ring_accept(gs_ring *ring, const gs_occurrence *event);

/* True if all entries of a full ring came within the hold time: then the event accepted last may be
 * a copy of a forgotten one. */
bool gs_ring_is_crowded(const gs_ring *ring, uint64_t now_ns);

#endif
