#include "duplicates.h"

#include <string.h>

#include "memory.h"
#include "pace.h"

#define EARLIEST_NS 2ULL /* Stands for an earlier time beside a candidate, whose bit is clear. */

uint32_t gs_window_slots_of(const gs_period *period)
{
    static const uint32_t lengths[] = {GS_WINDOW_SLOTS, GS_LONG_SLOTS};
    unsigned __int128 needed = (unsigned __int128)period->multiplier * GS_WINDOW_NS;
    for (uint32_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        if (needed <= (unsigned __int128)lengths[i] * period->divisor)
            return lengths[i];
    return GS_LONGEST_SLOTS;
}

size_t gs_window_bytes(const gs_period *period)
{
    uint32_t slots = gs_window_slots_of(period);
    return slots == GS_WINDOW_SLOTS ? 0 : (slots / 64 + 1) * sizeof(uint64_t);
}

void gs_window_open(gs_window *window, const gs_period *period)
{
    size_t bytes = gs_window_bytes(period);
    memset(window, 0, sizeof *window);
    if (bytes != 0) {
        window->words = gs_allocate(bytes);
        window->word_mask = bytes / sizeof(uint64_t) - 1;
    }
}

void gs_window_close(gs_window *window)
{
    if (gs_window_is_long(window))
        gs_release(window->words);
    memset(window, 0, sizeof *window);
}

static uint64_t *accepted_at(gs_window *window)
{
    return gs_window_is_long(window) ? &window->long_accepted_at_ns : &window->accepted_at_ns;
}

static void restart(gs_window *window, int64_t slot, bool from_publisher, uint64_t now_ns)
{
    if (gs_window_is_long(window)) {
        memset(window->words, 0, (window->word_mask + 1) * sizeof(uint64_t));
        window->words[(uint64_t)slot / 64 & window->word_mask] = 1ULL << (uint64_t)slot % 64;
        window->long_accepted_at_ns = now_ns | GS_NO_CANDIDATE;
    } else {
        memset(window->bits, 0, sizeof window->bits);
        window->bits[0] = 1;
        window->accepted_at_ns = now_ns | GS_NO_CANDIDATE;
    }
    window->newest = slot;
    window->policed = from_publisher;
}

static void shift_bits(uint64_t *bits, uint32_t by)
{
    uint32_t words = by / 64;
    uint32_t rest = by % 64;
    for (uint32_t i = 4; i-- > 0;) {
        uint64_t word = i >= words ? bits[i - words] << rest : 0;
        if (rest != 0 && i >= words + 1)
            word |= bits[i - words - 1] >> (64 - rest);
        bits[i] = word;
    }
    bits[0] |= 1;
}

/* Make a slot ahead, by less than the window, the newest. */
static void advance(gs_window *window, uint32_t by, bool from_publisher, uint64_t now_ns)
{
    int64_t slot = window->newest + by;
    if (gs_window_is_long(window)) {
        uint64_t last = (uint64_t)slot / 64;
        for (uint64_t word = (uint64_t)window->newest / 64; word != last;) {
            word = (word + 1) & UINT64_MAX / 64;
            window->words[word & window->word_mask] = 0;
        }
        window->words[last & window->word_mask] |= 1ULL << (uint64_t)slot % 64;
    } else {
        shift_bits(window->bits, by);
    }
    window->policed = by < 64 ? window->policed << by : 0;
    window->policed |= from_publisher;
    window->newest = slot;
    *accepted_at(window) = now_ns | GS_NO_CANDIDATE;
}

static uint64_t quiet_ns(const gs_window *window, uint64_t now_ns)
{
    uint64_t accepted_at_ns = gs_window_accepted_at_ns(window);
    return now_ns > accepted_at_ns ? now_ns - accepted_at_ns : 0;
}

/* True if the slot is less than the window ahead of the stream's expected position. Of less than a
 * second: the product has at most 63 bits. */
static bool is_on_time(const gs_window *window, const gs_period *period, __int128 distance,
                       uint64_t elapsed_ns)
{
    return distance < gs_window_slots(window) + period->multiplier * elapsed_ns / period->divisor;
}

/* Two different events near each other, beyond the window, move the window there; so do two far
 * apart that follow each other, because a stream that comes back with slots of the past has been
 * quiet. */
static gs_verdict jump(gs_window *window, int64_t slot, bool from_publisher, uint64_t now_ns)
{
    __int128 newest = window->newest, slots = gs_window_slots(window);
    uint64_t *accepted_at_ns = accepted_at(window);
    if ((*accepted_at_ns & GS_NO_CANDIDATE) == 0) {
        __int128 distance = (__int128)window->candidate - newest;
        bool same_side = slot > newest ? distance >= slots : distance <= -slots;
        __int128 apart = (__int128)slot - window->candidate;
        bool is_near = apart != 0 && apart < slots && -apart < slots;
        bool follows = slot < newest && apart > 0;
        if (same_side && (is_near || follows)) {
            restart(window, slot, from_publisher, now_ns);
            return GS_ACCEPTED;
        }
    }
    window->candidate = slot;
    *accepted_at_ns &= ~GS_NO_CANDIDATE;
    if (*accepted_at_ns == 0)
        *accepted_at_ns = EARLIEST_NS;
    return GS_POLICED_JUMP;
}

static gs_verdict behind(gs_window *window, uint32_t back, bool from_publisher, uint64_t now_ns)
{
    if (from_publisher && back < GS_POLICED_SLOTS) {
        if (window->policed >> back & 1)
            return GS_POLICED_SLOT;
        window->policed |= 1ULL << back;
    }
    bool is_long = gs_window_is_long(window);
    uint64_t at = is_long ? (uint64_t)window->newest - back : back;
    uint64_t *word = is_long ? &window->words[at / 64 & window->word_mask] : &window->bits[at / 64];
    uint64_t mask = 1ULL << (at % 64);
    if (*word & mask)
        return GS_DUPLICATE;
    *word |= mask;
    *accepted_at(window) = now_ns | GS_NO_CANDIDATE;
    return GS_ACCEPTED;
}

gs_verdict gs_window_accept_rare(gs_window *window, const gs_period *period, int64_t slot,
                                 bool from_publisher, uint64_t now_ns)
{
    if (*accepted_at(window) == 0) {
        restart(window, slot, from_publisher, now_ns);
        return GS_ACCEPTED;
    }
    __int128 distance = (__int128)slot - window->newest, slots = gs_window_slots(window);
    if (distance > 0 && distance < slots) {
        advance(window, (uint32_t)distance, from_publisher, now_ns);
        return GS_ACCEPTED;
    }
    if (distance <= 0 && distance > -slots)
        return behind(window, (uint32_t)-distance, from_publisher, now_ns);
    /* No event was accepted for a while: the stream is slow, paused, or its clock was set. */
    uint64_t elapsed_ns = quiet_ns(window, now_ns);
    bool has_rested = elapsed_ns >= GS_QUIET_NS;
    if (distance < 0 && !has_rested)
        return GS_BEYOND;
    if (distance > 0 && (has_rested || is_on_time(window, period, distance, elapsed_ns) ||
                         gs_period_is_replayed(period))) {
        restart(window, slot, from_publisher, now_ns);
        return GS_ACCEPTED;
    }
    return jump(window, slot, from_publisher, now_ns);
}

/* Two slots of grace: a publisher may stamp two periods ahead. The slots at the bounds of 64 bits
 * stand for all beyond. */
static bool is_near_clock(const gs_period *period, __int128 slot, uint64_t wall_ns)
{
    uint64_t oldest_ns = wall_ns > GS_CLOCK_BEHIND_NS ? wall_ns - GS_CLOCK_BEHIND_NS : 0;
    return slot > INT64_MIN && slot < INT64_MAX && slot >= gs_slot_of(oldest_ns, period) &&
           slot <= (__int128)gs_slot_of(wall_ns + GS_CLOCK_AHEAD_NS, period) + 2;
}

bool gs_window_follow_clock(gs_window *window, const gs_period *period, int64_t slot,
                            bool from_publisher, uint64_t now_ns, uint64_t wall_ns)
{
    if (wall_ns > UINT64_MAX - GS_CLOCK_AHEAD_NS || !is_near_clock(period, slot, wall_ns) ||
        is_near_clock(period, window->newest, wall_ns))
        return false;
    restart(window, slot, from_publisher, now_ns);
    return true;
}

static bool has_seen(const gs_ring *ring, const gs_occurrence *event)
{
    for (uint32_t i = 0; i < ring->count; i++) {
        if (ring->created_ns[i] == event->created_ns && ring->sequence[i] == event->sequence &&
            (event->now_ns < ring->arrived_ns[i] ||
             event->now_ns - ring->arrived_ns[i] <= event->expiry_ns))
            return true;
    }
    return false;
}

/* True if the event is too soon both by its stamps and by our clock: a publisher whose clock was
 * set back is accepted again after one interval. */
static bool is_too_soon(const gs_ring *ring, const gs_occurrence *event)
{
    if (ring->count == 0)
        return false;
    __int128 earliest_ns = (__int128)ring->last_created_ns + event->interval_ns_min;
    uint64_t elapsed_ns =
        event->now_ns > ring->last_arrived_ns ? event->now_ns - ring->last_arrived_ns : 0;
    return (__int128)event->created_ns < earliest_ns && elapsed_ns < event->interval_ns_min;
}

/* A sender can choose its stamps, and arrivals jitter: each test alone would allow too much or too
 * little. */
static bool is_too_fast(gs_ring *ring, const gs_occurrence *event)
{
    if (event->interval_ns_min == 0)
        return false;
    return is_too_soon(ring, event) || !gs_keeps_pace(&ring->due_ns, event->interval_ns_min,
                                                      event->tolerance_ns, event->now_ns);
}

gs_verdict gs_ring_accept(gs_ring *ring, const gs_occurrence *event)
{
    if (has_seen(ring, event))
        return GS_DUPLICATE;
    if (is_too_fast(ring, event))
        return GS_POLICED_INTERVAL;
    uint32_t at = ring->next;
    ring->created_ns[at] = event->created_ns;
    ring->sequence[at] = event->sequence;
    ring->arrived_ns[at] = event->now_ns;
    ring->next = (at + 1) % GS_RING_EVENTS;
    ring->last_created_ns = event->created_ns;
    ring->last_arrived_ns = event->now_ns;
    if (ring->count < GS_RING_EVENTS)
        ring->count++;
    return GS_ACCEPTED;
}

bool gs_ring_is_crowded(const gs_ring *ring, uint64_t now_ns)
{
    uint64_t oldest_ns = ring->arrived_ns[ring->next];
    return ring->count == GS_RING_EVENTS &&
           (now_ns < oldest_ns || now_ns - oldest_ns < GS_FLOOD_HOLD_NS);
}
