/* Pace of a publisher's events where their stamps bound nothing: by arrival, one an interval on the
 * average, and closer together only within a tolerance of at least an interval. So two events that
 * jitter brings together pass, and a sender that chooses its stamps gains nothing. The only state
 * is when the next event would be due; `reference_window.py` is the same in Python. */
#ifndef GS_PACE_H
#define GS_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define GS_PACE_JITTER_NS 10000000ULL   /* For alerts. */
#define GS_PACE_BURST_NS  1000000000ULL /* For replayed events, which are sent in batches. */
#define GS_PACE_NS_MAX    (1ULL << 62)  /* Longest interval; with it no sum overflows. */

/* Return whether an event keeps the pace, and advance the due time if so. A due time left by a
 * longer former interval is lowered to the most that this interval could have caused. */
static inline bool gs_keeps_pace(uint64_t *due_ns, uint64_t interval_ns, uint64_t tolerance_ns,
                                 uint64_t now_ns)
{
    if (interval_ns > GS_PACE_NS_MAX)
        interval_ns = GS_PACE_NS_MAX;
    if (tolerance_ns < interval_ns)
        tolerance_ns = interval_ns;
    uint64_t ahead_ns = *due_ns > now_ns ? *due_ns - now_ns : 0;
    bool keeps = ahead_ns <= tolerance_ns;
    if (keeps)
        ahead_ns += interval_ns;
    else if (ahead_ns > tolerance_ns + interval_ns)
        ahead_ns = tolerance_ns + interval_ns;
    *due_ns = now_ns + ahead_ns;
    return keeps;
}

#endif
