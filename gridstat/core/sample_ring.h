/* From the receiving thread to Python: one writer, one reader, no lock.
 *
 * Samples have a fixed size and lie in one ring. The options of those events that have any lie in a
 * second ring of bytes, in the same order, so that a sample's option count says how many of them
 * are its own. The writer makes a whole receive call visible at once; when that call finds the
 * reader at the end of what it knew, the reader may be asleep and must be woken.
 */
#ifndef GS_SAMPLE_RING_H
#define GS_SAMPLE_RING_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "event.h"

/* Also the layout of the NumPy record that Python reads (`gridstat/core/samples.py`). */
typedef struct {
    uint64_t created_ns;
    uint64_t received_ns;
    uint32_t variable_id;
    uint8_t option_count;
    uint8_t flags;
    uint16_t sequence;
    uint64_t value; /* The eight bytes in the host's order. */
} gs_sample;

typedef struct {
    gs_sample *samples;
    uint8_t *options;
    uint64_t samples_mask;
    uint64_t options_mask;
    /* The writer's line: what it has written, how far that is visible, and the reader's last known
     * place. */
    uint64_t written __attribute__((aligned(64)));
    uint64_t options_written;
    uint64_t visible;
    uint64_t taken_seen;
    uint64_t options_taken_seen;
    /* The reader's line. */
    uint64_t taken __attribute__((aligned(64)));
    uint64_t options_taken;
} gs_sample_ring;

/* Both sizes are rounded up to powers of two; with 0 option bytes no options are kept. */
void gs_sample_ring_open(gs_sample_ring *ring, uint32_t samples, uint32_t option_bytes);
void gs_sample_ring_close(gs_sample_ring *ring);

/* The writer. */
bool gs_sample_ring_add_options(gs_sample_ring *ring, const uint8_t *options, uint32_t bytes);

static inline bool gs_sample_ring_has_room(gs_sample_ring *ring)
{
    if (ring->written - ring->taken_seen <= ring->samples_mask)
        return true;
    ring->taken_seen = __atomic_load_n(&ring->taken, __ATOMIC_ACQUIRE);
    return ring->written - ring->taken_seen <= ring->samples_mask;
}

/* Add a sample and the options of its event; false when either ring is full. */
static inline bool gs_sample_ring_add(gs_sample_ring *ring, const gs_sample *sample,
                                      const uint8_t *event)
{
    if (!gs_sample_ring_has_room(ring))
        return false;
    if (sample->option_count != 0 &&
        !gs_sample_ring_add_options(ring, event + GS_EVENT_BYTES,
                                    GS_OPTION_BYTES * (uint32_t)sample->option_count))
        return false;
    ring->samples[ring->written & ring->samples_mask] = *sample;
    ring->written++;
    return true;
}

/* Make the added samples visible to the reader; true when the reader must be woken. */
bool gs_sample_ring_show(gs_sample_ring *ring);

/* The reader. */
uint64_t gs_sample_ring_ready(const gs_sample_ring *ring);
uint64_t gs_sample_ring_option_bytes(const gs_sample_ring *ring, uint64_t samples);

/* Take exactly `samples`, at most as many as are ready; their options too unless `options` is
 * NULL. */
void gs_sample_ring_take(gs_sample_ring *ring, gs_sample *to, uint64_t samples, uint8_t *options);

#endif
