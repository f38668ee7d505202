#include "duplicates.h"

#include <string.h>

#include "pace.h"

#define HAS_CANDIDATE 1ULL

static void restart(gs_window *window, int64_t slot, bool from_publisher, uint64_t now_ns)
{
    window->newest = slot;
    window->bits[0] = 1;
    window->bits[1] = window->bits[2] = window->bits[3] = 0;
    window->policed = from_publisher;
    window->accepted_at_ns = now_ns & ~HAS_CANDIDATE;
}

static void advance(gs_window *window, uint32_t by)
{
    uint64_t *bits = window->bits;
    uint32_t words = by / 64;
    uint32_t rest = by % 64;
    for (uint32_t i = 4; i-- > 0;) {
        uint64_t word = i >= words ? bits[i - words] << rest : 0;
        if (rest != 0 && i >= words + 1)
            word |= bits[i - words - 1] >> (64 - rest);
        bits[i] = word;
    }
    window->policed = by < 64 ? window->policed << by : 0;
}

static uint64_t quiet_ns(const gs_window *window, uint64_t now_ns)
{
    uint64_t accepted_at_ns = window->accepted_at_ns & ~HAS_CANDIDATE;
    return now_ns > accepted_at_ns ? now_ns - accepted_at_ns : 0;
}

/* True if the slot is less than the window ahead of the stream's expected position. Of less than a
 * second: the product has at most 63 bits. */
static bool is_on_time(const gs_period *period, __int128 distance, uint64_t elapsed_ns)
{
    return distance < GS_WINDOW_SLOTS + period->multiplier * elapsed_ns / period->divisor;
}

/* Two different events near each other, beyond the window, move the window there; so do two far
 * apart that follow each other, because a stream that comes back with slots of the past has been
 * quiet. */
static gs_verdict jump(gs_window *window, int64_t slot, bool from_publisher, uint64_t now_ns)
{
    __int128 newest = window->newest;
    if (window->accepted_at_ns & HAS_CANDIDATE) {
        __int128 distance = (__int128)window->candidate - newest;
        bool same_side = slot > newest ? distance >= GS_WINDOW_SLOTS : distance <= -GS_WINDOW_SLOTS;
        __int128 apart = (__int128)slot - window->candidate;
        bool is_near = apart != 0 && apart < GS_WINDOW_SLOTS && -apart < GS_WINDOW_SLOTS;
        bool follows = slot < newest && apart > 0;
        if (same_side && (is_near || follows)) {
            restart(window, slot, from_publisher, now_ns);
            return GS_ACCEPTED;
        }
    }
    window->candidate = slot;
    window->accepted_at_ns |= HAS_CANDIDATE;
    return GS_POLICED_JUMP;
}

static gs_verdict behind(gs_window *window, uint32_t back, bool from_publisher, uint64_t now_ns)
{
    if (from_publisher && back < GS_POLICED_SLOTS) {
        if (window->policed >> back & 1)
            return GS_POLICED_SLOT;
        window->policed |= 1ULL << back;
    }
    uint64_t mask = 1ULL << (back % 64);
    if (window->bits[back / 64] & mask)
        return GS_DUPLICATE;
    window->bits[back / 64] |= mask;
    window->accepted_at_ns = now_ns & ~HAS_CANDIDATE;
    return GS_ACCEPTED;
}

gs_verdict gs_window_accept_rare(gs_window *window, const gs_period *period, int64_t slot,
                                 bool from_publisher, uint64_t now_ns)
{
    if (window->accepted_at_ns == 0) {
        restart(window, slot, from_publisher, now_ns);
        return GS_ACCEPTED;
    }
    __int128 distance = (__int128)slot - window->newest;
    if (distance > 0 && distance < GS_WINDOW_SLOTS) {
        advance(window, (uint32_t)distance);
        window->bits[0] |= 1;
        window->policed |= from_publisher;
        window->newest = slot;
        window->accepted_at_ns = now_ns & ~HAS_CANDIDATE;
        return GS_ACCEPTED;
    }
    if (distance <= 0 && distance > -GS_WINDOW_SLOTS)
        return behind(window, (uint32_t)-distance, from_publisher, now_ns);
    /* No event was accepted for a while: the stream is slow, paused, or its clock was set. */
    uint64_t elapsed_ns = quiet_ns(window, now_ns);
    bool has_rested = elapsed_ns >= GS_QUIET_NS;
    if (distance < 0 && !has_rested)
        return GS_BEYOND;
    if (distance > 0 &&
        (has_rested || is_on_time(period, distance, elapsed_ns) || gs_period_is_replayed(period))) {
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
