#include "rate_law.h"

#define NS_PER_S 1000000000ULL

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

gs_period gs_period_make(uint32_t seconds, uint32_t per_seconds, uint64_t phase_ns)
{
    uint64_t half = seconds * NS_PER_S;
    uint64_t multiplier = 2 * (uint64_t)per_seconds;
    uint64_t common = greatest_common_divisor(multiplier, half);
    gs_period period = {
        .multiplier = multiplier / common,
        .half = half / common,
        .divisor = 2 * half / common,
        .phase_ns = phase_ns,
    };
    period.limit = (UINT64_MAX - period.half) / period.multiplier & ~1ULL;
    return period;
}

gs_period gs_period_replayed(gs_period period)
{
    period.limit -= !(period.limit & 1);
    return period;
}

int64_t gs_slot_wide(uint64_t created_ns, const gs_period *period)
{
    __int128 t = (__int128)created_ns - (__int128)period->phase_ns;
    __int128 numerator = (__int128)period->multiplier * t + (__int128)period->half;
    __int128 divisor = (__int128)period->divisor;
    __int128 slot = numerator / divisor;
    if (numerator % divisor < 0)
        slot -= 1;
    if (slot > INT64_MAX)
        return INT64_MAX;
    return slot < INT64_MIN ? INT64_MIN : (int64_t)slot;
}

gs_divisor gs_divisor_make(uint32_t every)
{
    uint32_t shift = (uint32_t)__builtin_ctz(every);
    uint64_t odd = every >> shift, inverse = odd; /* Right in three bits; each step doubles them. */
    for (int bits = 3; bits < 64; bits *= 2)
        inverse *= 2 - odd * inverse;
    return (gs_divisor){
        .inverse = inverse, .limit = UINT64_MAX / every, .shift = shift, .every = every};
}
