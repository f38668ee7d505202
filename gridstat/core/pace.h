/* How fast a publisher's events may come where their stamps bound nothing: by arrival, one an
 * interval on the average, and closer together only within a tolerance of an interval at least. So
 * two events that jitter brings together pass, and whoever chooses stamps gains nothing. All that
 * is remembered is when the next event would be due; `reference_window.py` says the same in Python.
 */
#ifndef GS_PACE_H
#define GS_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define GS_PACE_JITTER_NS 10000000ULL   /* Of alerts. */
#define GS_PACE_BURST_NS  1000000000ULL /* Of what may be of another time: sent in batches. */
#define GS_PACE_NS_MAX    (1ULL << 62)  /* What is longer counts as this: no sum overflows. */

/* Whether an event keeps the pace, which it then uses up. A due time that a longer interval of
 * before has left comes down to what this one could have brought about. */
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
