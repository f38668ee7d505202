/* Paced egress: a channel with a declared bandwidth sends from bounded queues, strictly in the
 * order alerts (0), priorities 1 to 6, content (7), replay (8). Replay has no promised latency and
 * may be unlimited: it shares no datagram with other classes, and its datagrams are short, so that
 * an event that comes meanwhile finds the line free within half a millisecond. */
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
    uint64_t next_free_ns; /* When the line has sent all datagrams so far. */
    uint32_t queue_events_max;
    uint32_t replay_bytes_max; /* Longest datagram with more than one replayed event. */
    uint32_t waiting;          /* Bit c: class c has an event. */
    struct gs_queue {
        gs_buffer **buffers;
        uint32_t first, count;
    } classes[GS_CLASSES];
} gs_queues;

gs_queues *gs_queues_open(uint64_t bandwidth_bytes_per_s, uint32_t queue_events_max);
void gs_queues_close(gs_queues *queues);

/* False when the queue of the class is full. */
static inline bool gs_queue_has_room(const gs_queues *queues, uint32_t event_class)
{
    return queues->classes[event_class].count < queues->queue_events_max;
}

void gs_queue_put(gs_channel *channel, uint32_t event_class, gs_buffer *buffer);

/* Bytes that a datagram takes on the wire, IP headers of all its fragments included. */
uint64_t gs_wire_bytes(const gs_channel *channel, uint32_t datagram_bytes);

/* Parts of the core that pumping needs. */
typedef struct {
    gs_buffer_pool *pool;
    gs_histogram *latency; /* Time of events from the kernel's receive to the send. */
    uint64_t now_ns;
} gs_pumping;

/* Send as much as the line allows now; returns when to call again, or GS_IDLE_NS. */
uint64_t gs_egress_pump(gs_channel *channel, const gs_pumping *pumping);

/* Mark the line as busy for the time that a datagram of so many bytes takes. */
void gs_egress_charge(gs_channel *channel, uint32_t datagram_bytes, uint64_t now_ns);

/* Drop all queued events and count them as not sent. */
void gs_egress_drop(gs_channel *channel, gs_buffer_pool *pool);

#endif
