/* The rate law in exact integers; `gridstat/model/rate_law.py` is the law, this its fast copy.
 *
 *   slot = floor((created - phase) / period + 1/2),  period = seconds / per_seconds
 *        = floor((2 * per_seconds * t + seconds * 1e9) / (2 * seconds * 1e9)),  t = created - phase
 *
 * The fraction is reduced once, when the row is built; 30, 50, 60 and 120 a second then need no
 * more than 64 bits until the year 2100, and the 128-bit way serves the rest.
 */
#ifndef GS_RATE_LAW_H
#define GS_RATE_LAW_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint64_t multiplier;
    uint64_t half;
    uint64_t divisor;
    uint64_t limit; /* An even t whose numerator fits into 64 bits. Odd: a replayed stream's. */
    uint64_t phase_ns;
} gs_period;

/* Both parts must be at least 1 and fit into 32 bits; the caller has checked. */
gs_period gs_period_make(uint32_t seconds, uint32_t per_seconds, uint64_t phase_ns);

/* The same slots, of a stream that goes ahead as far as it likes: archives have gaps, and hours
 * pass in minutes. */
gs_period gs_period_replayed(gs_period period);

static inline bool gs_period_is_replayed(const gs_period *period)
{
    return period->limit & 1;
}

static inline bool gs_period_has_same_slots(const gs_period *one, const gs_period *other)
{
    return one->multiplier == other->multiplier && one->divisor == other->divisor &&
           one->phase_ns == other->phase_ns;
}

/* Slot of an early or very late stamp, outside the event path. */
int64_t gs_slot_wide(uint64_t created_ns, const gs_period *period);

static inline int64_t gs_slot_of(uint64_t created_ns, const gs_period *period)
{
    uint64_t t = created_ns - period->phase_ns;
    if (__builtin_expect(created_ns >= period->phase_ns && t <= period->limit, 1))
        return (int64_t)((period->multiplier * t + period->half) / period->divisor);
    return gs_slot_wide(created_ns, period);
}

/* A divisor made ready for tests without a division, which would take longer than all the rest of
 * a decision. With every = odd << shift, slot is a multiple iff slot * (1 / odd) mod 2^64, rotated
 * right by the shift, is at most (2^64 - 1) / every (Granlund and Montgomery 1994, section 9). */
typedef struct {
    uint64_t inverse;
    uint64_t limit;
    uint32_t shift;
    uint32_t every;
} gs_divisor;

gs_divisor gs_divisor_make(uint32_t every);

/* Slots before the phase are negative; a multiple stays one without its sign. */
static inline uint64_t gs_slot_magnitude(int64_t slot)
{
    return slot < 0 ? 0 - (uint64_t)slot : (uint64_t)slot;
}

static inline bool gs_is_multiple(uint64_t magnitude, const gs_divisor *divisor)
{
    uint64_t product = magnitude * divisor->inverse;
    uint64_t rotated = product >> divisor->shift | product << (-divisor->shift & 63);
    return rotated <= divisor->limit;
}

static inline bool gs_slot_is_due(int64_t slot, const gs_divisor *divisor)
{
    return gs_is_multiple(gs_slot_magnitude(slot), divisor);
}

#endif
