/* Bounds of stamps at the first hop, and the events that it policed, by publisher's channel,
 * variable and reason.
 *
 * A table of fixed size that the forwarding thread writes when an event is policed; any thread may
 * read it. Where there is no free place for one more variable, another one loses its counts: they
 * are for a reader that polls every second, and the core's own counters hold all totals.
 */
#ifndef GS_POLICING_H
#define GS_POLICING_H

#include <stdbool.h>
#include <stdint.h>

#include "counters.h"

#define GS_POLICED_PLACES  1024U /* A power of two. */
#define GS_POLICED_PROBES  8U
#define GS_POLICED_REASONS 6U /* In the order of the core's counters, from policed_port on. */

/* Stamps this near to the present are within every bound (`model/stamp_law.py`). */
#define GS_STAMP_NEAR_NS 100000000ULL

/* How far ahead and behind of the first hop's clock the stamps of a variable may be. */
typedef struct {
    uint64_t ahead_ns;
    uint64_t behind_ns;
} gs_stamp_bounds;

/* True for nearly all events: no bound has to be looked up. */
static inline bool gs_stamp_is_near(uint64_t created_ns, uint64_t now_ns)
{
    return created_ns - now_ns + GS_STAMP_NEAR_NS <= 2 * GS_STAMP_NEAR_NS;
}

static inline bool gs_stamp_is_within(const gs_stamp_bounds *bounds, uint64_t created_ns,
                                      uint64_t now_ns)
{
    return created_ns > now_ns ? created_ns - now_ns <= bounds->ahead_ns
                               : now_ns - created_ns <= bounds->behind_ns;
}

typedef struct {
    gs_counter
        life; /* Grows by two with each variable that takes the place; odd during the change. */
    gs_counter who; /* channel_id << 32 | variable_id; 0: the place is free. */
    gs_counter counts[GS_POLICED_REASONS];
} gs_policed;

_Static_assert(sizeof(gs_policed) == 64, "one cache line");

/* Count one event; on the forwarding thread. */
void gs_policed_note(gs_policed *places, uint32_t channel_id, uint32_t variable_id,
                     uint32_t reason);

/* Read one place; false if it is free, or just changing. */
bool gs_policed_read(const gs_policed *place, gs_policed *copy);

#endif
