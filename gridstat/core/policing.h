/* Events that the first hop policed, by publisher's channel, variable and reason.
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
