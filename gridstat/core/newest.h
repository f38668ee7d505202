/* The newest event of a variable with its options: one writer, any reader, no lock.
 *
 * The forwarding thread writes between an odd and an even version and never waits; a reader that
 * loads an odd version, or two different ones, tries again.
 */
#ifndef GS_NEWEST_H
#define GS_NEWEST_H

#include <stdbool.h>
#include <stdint.h>

#include "event.h"

typedef struct {
    uint64_t version; /* Odd during a write; 0: no event yet. */
    uint64_t kept_ns; /* When the event came, by the steady clock; used by the thread. */
    uint64_t bytes;
    uint64_t bytes_max;
    uint64_t words[];
} gs_newest;

gs_newest *gs_newest_make(uint32_t options_max);

/* Keep the event unless the kept one is newer; false when it is larger than the capacity. Stamps
 * decide, unless the kept event is so old that its clock may have been set. */
bool gs_newest_keep(gs_newest *newest, const uint8_t *event, uint64_t now_ns);

/* Copy the event to `to`, which fits the largest, and return its bytes; 0: none has come. */
uint32_t gs_newest_read(const gs_newest *newest, uint8_t *to);

#endif
