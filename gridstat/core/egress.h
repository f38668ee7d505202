/* Paced egress: a channel with a declared bandwidth is served from bounded queues, strictly in the
 * order alerts (0), priorities 1 to 6, content (7), replay (8). Replay has no promise to keep and
 * sends as much as there is: it shares no datagram with others, and its own are short, so that what
 * comes meanwhile finds the line free within half a millisecond. */
#ifndef GS_EGRESS_H
#define GS_EGRESS_H

#include <stdint.h>

#include "buffer_pool.h"
#include "channel.h"

#define GS_CLASSES      9
#define GS_CLASS_REPLAY 8U
#define GS_IDLE_NS      UINT64_MAX

typedef struct gs_queues {
    uint64_t bandwidth_bytes_per_s;
    uint64_t next_free_ns; /* When the line has sent what it was given. */
    uint32_t queue_events_max;
    uint32_t replay_bytes_max; /* Of a datagram with more than one replayed event. */
    uint32_t waiting;          /* Bit c: class c has an event. */
    struct gs_queue {
        gs_buffer **buffers;
        uint32_t first, count;
    } classes[GS_CLASSES];
} gs_queues;

gs_queues *gs_queues_open(uint64_t bandwidth_bytes_per_s, uint32_t queue_events_max);
void gs_queues_close(gs_queues *queues);

/* False when the class has no room. */
static inline bool gs_queue_has_room(const gs_queues *queues, uint32_t event_class)
{
    return queues->classes[event_class].count < queues->queue_events_max;
}

void gs_queue_put(gs_channel *channel, uint32_t event_class, gs_buffer *buffer);

/* Bytes that a datagram takes on the wire, IP headers of all its fragments included. */
uint64_t gs_wire_bytes(const gs_channel *channel, uint32_t datagram_bytes);

/* What pumping needs of the core. */
typedef struct {
    gs_buffer_pool *pool;
    gs_histogram *latency; /* How long events took from the kernel to here. */
    uint64_t now_ns;
} gs_pumping;

/* Send what the line allows now; when to come again, or GS_IDLE_NS. */
uint64_t gs_egress_pump(gs_channel *channel, const gs_pumping *pumping);

/* The line is busy for as long as a datagram of so many bytes takes. */
void gs_egress_charge(gs_channel *channel, uint32_t datagram_bytes, uint64_t now_ns);

/* Drop all that waits, counted as not sent. */
void gs_egress_drop(gs_channel *channel, gs_buffer_pool *pool);

#endif
