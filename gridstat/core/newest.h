/* The newest event of a variable, whole, for whoever asks: one writer, any reader, no lock.
 *
 * The forwarding thread writes between two odd and even versions and never waits; a reader that
 * meets an odd version, or two different ones, tries again.
 */
#ifndef GS_NEWEST_H
#define GS_NEWEST_H

#include <stdbool.h>
#include <stdint.h>

#include "event.h"

typedef struct {
    uint64_t version; /* Odd while it is being written; 0: no event yet. */
    uint64_t kept_ns; /* When it came, by the steady clock; for the thread. */
    uint64_t bytes;
    uint64_t bytes_max;
    uint64_t words[];
} gs_newest;

gs_newest *gs_newest_make(uint32_t options_max);

/* Keep the event unless the one at hand is newer; false when there is no room for so large a one.
 * Stamps decide, unless the event at hand is so old that its clock may have been set. */
bool gs_newest_keep(gs_newest *newest, const uint8_t *event, uint64_t now_ns);

/* The bytes of the event, written to `to`, which has room for the largest; 0: none has come. */
uint32_t gs_newest_read(const gs_newest *newest, uint8_t *to);

#endif
