#include "egress.h"

#include "event.h"
#include "memory.h"

#define NS_PER_S            1000000000ULL
#define CATCH_UP_NS         2000000ULL /* A timer may be late by this without loss of bandwidth. */
#define REPLAYS_PER_S       2000U      /* Replay datagrams a second that fill the line. */
#define UDP_BYTES           8U
#define IPV4_BYTES          20U
#define IPV6_BYTES          40U
#define IPV6_FRAGMENT_BYTES 8U

gs_queues *gs_queues_open(uint64_t bandwidth_bytes_per_s, uint32_t queue_events_max)
{
    gs_queues *queues = gs_allocate(sizeof *queues);
    queues->bandwidth_bytes_per_s = bandwidth_bytes_per_s;
    queues->queue_events_max = queue_events_max;
    uint64_t replay_bytes = bandwidth_bytes_per_s / REPLAYS_PER_S;
    queues->replay_bytes_max = replay_bytes < UINT32_MAX ? (uint32_t)replay_bytes : UINT32_MAX;
    for (uint32_t i = 0; i < GS_CLASSES; i++)
        queues->classes[i].buffers = gs_allocate(sizeof(gs_buffer *) * (queue_events_max + 1UL));
    return queues;
}

void gs_queues_close(gs_queues *queues)
{
    for (uint32_t i = 0; i < GS_CLASSES; i++)
        gs_release(queues->classes[i].buffers);
    gs_release(queues);
}

void gs_queue_put(gs_channel *channel, uint32_t event_class, gs_buffer *buffer)
{
    gs_queues *queues = channel->queues;
    struct gs_queue *queue = &queues->classes[event_class];
    uint32_t at = queue->first + queue->count;
    if (at >= queues->queue_events_max)
        at -= queues->queue_events_max;
    queue->buffers[at] = buffer;
    queue->count++;
    queues->waiting |= 1U << event_class;
    buffer->references++;
    gs_add(&channel->counters.queued, 1);
    if (__builtin_expect(event_class == GS_CLASS_REPLAY, 0))
        gs_add(&channel->counters.replay_queued, 1);
}

static gs_buffer *first_waiting(const gs_queues *queues)
{
    const struct gs_queue *queue = &queues->classes[__builtin_ctz(queues->waiting)];
    return queue->buffers[queue->first];
}

static void take_first(gs_channel *channel)
{
    gs_queues *queues = channel->queues;
    uint32_t event_class = (uint32_t)__builtin_ctz(queues->waiting);
    struct gs_queue *queue = &queues->classes[event_class];
    queue->first = queue->first + 1 == queues->queue_events_max ? 0 : queue->first + 1;
    if (--queue->count == 0)
        queues->waiting &= ~(1U << event_class);
    gs_subtract(&channel->counters.queued, 1);
    if (__builtin_expect(event_class == GS_CLASS_REPLAY, 0))
        gs_subtract(&channel->counters.replay_queued, 1);
}

/* True if only replay is queued. */
static bool is_replay_next(const gs_queues *queues)
{
    return queues->waiting == 1U << GS_CLASS_REPLAY;
}

/* Fill one datagram in strict order, all for the same port, replay by itself; returns its bytes. */
static uint32_t fill_datagram(gs_channel *channel, const gs_pumping *pumping)
{
    gs_queues *queues = channel->queues;
    uint32_t port = first_waiting(queues)->port;
    uint32_t empty_bytes = gs_channel_overhead(channel), bytes = empty_bytes;
    uint32_t bytes_max = channel->mtu_bytes;
    bool is_replay = is_replay_next(queues);
    if (is_replay && queues->replay_bytes_max < bytes_max)
        bytes_max = queues->replay_bytes_max;
    do {
        gs_buffer *buffer = first_waiting(queues);
        if (bytes > empty_bytes && (buffer->port != port || bytes + buffer->bytes > bytes_max ||
                                    is_replay_next(queues) != is_replay))
            break;
        take_first(channel);
        gs_channel_append(channel, port, buffer->event, buffer->bytes);
        bytes += buffer->bytes;
        uint64_t arrived_ns = buffer->arrived_ns;
        gs_histogram_add(pumping->latency,
                         pumping->now_ns > arrived_ns ? pumping->now_ns - arrived_ns : 0, 1);
        gs_pool_drop(pumping->pool, buffer);
    } while (queues->waiting != 0);
    gs_channel_flush(channel);
    return bytes;
}

uint64_t gs_wire_bytes(const gs_channel *channel, uint32_t datagram_bytes)
{
    uint64_t ip_payload = datagram_bytes + UDP_BYTES;
    uint64_t per_fragment = (channel->mtu_bytes + UDP_BYTES) / 8 * 8; /* IP counts in eights. */
    uint64_t fragments = 1;
    if (datagram_bytes > channel->mtu_bytes)
        fragments = (ip_payload + per_fragment - 1) / per_fragment;
    uint64_t header = channel->is_ipv6 ? IPV6_BYTES : IPV4_BYTES;
    if (channel->is_ipv6 && fragments > 1)
        header += IPV6_FRAGMENT_BYTES;
    return ip_payload + fragments * header;
}

void gs_egress_charge(gs_channel *channel, uint32_t datagram_bytes, uint64_t now_ns)
{
    gs_queues *queues = channel->queues;
    uint64_t wire_bytes = gs_wire_bytes(channel, datagram_bytes);
    uint64_t earliest_ns = now_ns > CATCH_UP_NS ? now_ns - CATCH_UP_NS : 0;
    if (queues->next_free_ns < earliest_ns)
        queues->next_free_ns = earliest_ns;
    queues->next_free_ns +=
        (wire_bytes * NS_PER_S + queues->bandwidth_bytes_per_s - 1) / queues->bandwidth_bytes_per_s;
}

static void drop_all(gs_channel *channel, gs_buffer_pool *pool, gs_counter *reason)
{
    while (channel->queues->waiting != 0) {
        gs_buffer *buffer = first_waiting(channel->queues);
        take_first(channel);
        gs_pool_drop(pool, buffer);
        gs_add(reason, 1);
        channel->has_failed = true;
    }
}

uint64_t gs_egress_pump(gs_channel *channel, const gs_pumping *pumping)
{
    gs_queues *queues = channel->queues;
    uint64_t now_ns = pumping->now_ns;
    while (queues->waiting != 0) {
        if (queues->next_free_ns > now_ns)
            return queues->next_free_ns;
        gs_counter *silence = gs_channel_silence(channel);
        if (silence != NULL) {
            drop_all(channel, pumping->pool, silence);
            break;
        }
        gs_egress_charge(channel, fill_datagram(channel, pumping), now_ns);
        channel->sent_ns = now_ns;
    }
    return GS_IDLE_NS;
}

void gs_egress_drop(gs_channel *channel, gs_buffer_pool *pool)
{
    drop_all(channel, pool, &channel->counters.send_failed);
}
