/* What is expected of variables, once for all that share the same terms: a receiver of a hundred
 * thousand variables has a handful, which then stay in the nearest cache.
 *
 * Only those who announce variables use the table; the receiving thread holds pointers into it.
 */
#ifndef GS_LAWS_H
#define GS_LAWS_H

#include <stdbool.h>
#include <stdint.h>

#include "rate_law.h"

typedef struct {
    gs_period period;
    gs_divisor divisor;
    gs_divisor copied;     /* Of the slots whose copies are counted by source. */
    uint64_t deadline_ns;  /* 0: none is ever late. */
    uint32_t window_slots; /* Of its windows; 0: aperiodic. */
    bool is_periodic;
} gs_law;

typedef struct {
    struct gs_shared_law *shared;
    uint32_t laws_max, count;
    uint32_t *free, free_count;
} gs_laws;

/* Every `every`-th slot of the period, within the deadline; no seconds: aperiodic. */
gs_law gs_law_make(uint32_t seconds, uint32_t per_seconds, uint64_t phase_ns, uint32_t every,
                   uint64_t deadline_ns);
bool gs_law_has_same_slots(const gs_law *one, const gs_law *other);

bool gs_laws_open(gs_laws *laws, uint32_t laws_max);
void gs_laws_close(gs_laws *laws);

/* One user more, and one fewer; the caller never has more than `laws_max` in use, and drops a law
 * only when no thread reads it any more. */
const gs_law *gs_laws_share(gs_laws *laws, const gs_law *law);
void gs_laws_drop(gs_laws *laws, const gs_law *law);

#endif
