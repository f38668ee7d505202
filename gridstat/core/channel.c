#include "channel.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "egress.h"
#include "event.h"
#include "memory.h"
#include "platform.h"

#define SEND_BUFFER_BYTES (4 << 20)
#define SINK_BYTES_MAX    (256UL << 20)
#define MTU_BYTES_MIN     64U

static inline uint64_t next_counter(gs_channel *channel)
{
    gs_add(&channel->counter, 1);
    return channel->counter;
}

static int open_socket(gs_channel *channel, const gs_channel_options *options, uint32_t port)
{
    int bytes = SEND_BUFFER_BYTES;
    int socket_ = gs_udp_socket(options->addresses[port]->sa_family);
    if (socket_ < 0)
        return errno;
    channel->sockets[port] = socket_;
    setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    gs_let_fragment(socket_, channel->is_ipv6, false);
    if (connect(socket_, options->addresses[port], options->address_bytes) < 0)
        return errno;
    return 0;
}

int gs_channel_open(const gs_channel_options *options, gs_channel **opened)
{
    gs_channel *channel = gs_allocate(sizeof *channel);
    channel->channel_id = options->channel_id;
    channel->index = options->index;
    channel->counter = options->counter;
    channel->first_counter = options->counter + 1;
    channel->mtu_bytes = options->mtu_bytes;
    channel->level = options->level;
    channel->version = (uint8_t)options->version;
    channel->is_sealed = options->version == GS_VERSION_SEALED;
    channel->holding = options->is_held ? GS_SENDS_PROBES : GS_SENDS_ALL;
    channel->is_guarded = channel->is_sealed || options->is_held;
    channel->probe_interval_ns = options->probe_interval_ns;
    channel->probes_only_when_idle = options->probes_only_when_idle;
    channel->probes_only_when_held = options->probes_only_when_held;
    channel->floods = options->floods;
    channel->is_posix = options->is_posix;
    channel->has_gso = GS_LINUX && !options->is_posix;
    for (uint32_t port = 0; port < GS_PORTS; port++) {
        channel->sockets[port] = -1;
        channel->runs[port].bytes = gs_allocate(GS_RUN_BYTES_MAX + 16);
    }
    if (options->bandwidth_bytes_per_s != 0)
        channel->queues = gs_queues_open(options->bandwidth_bytes_per_s, options->queue_events_max);
    int failure = 0;
    for (uint32_t port = 0; port < GS_PORTS && options->addresses[port] != NULL; port++) {
        channel->is_ipv6 = options->addresses[port]->sa_family == AF_INET6;
        failure = open_socket(channel, options, port);
        if (failure != 0) {
            gs_channel_close(channel);
            return failure;
        }
    }
    *opened = channel;
    return 0;
}

void gs_channel_close(gs_channel *channel)
{
    for (uint32_t port = 0; port < GS_PORTS; port++) {
        if (channel->sockets[port] >= 0)
            close(channel->sockets[port]);
        gs_release(channel->runs[port].bytes);
    }
    if (channel->queues != NULL)
        gs_queues_close(channel->queues);
    gs_sealing_close(channel->owned_key);
    gs_release(channel->sink.bytes);
    gs_release(channel);
}

gs_sealing *gs_channel_swap_key(gs_channel *channel, gs_sealing *fresh)
{
    gs_sealing *before = channel->owned_key;
    channel->owned_key = fresh;
    __atomic_store_n(&channel->sealing, fresh, __ATOMIC_SEQ_CST);
    return before;
}

/* Take a used up key for no other run; one that the writer has set meanwhile stays. */
static __attribute__((noinline)) void stop_using(gs_channel *channel, gs_sealing *used_up)
{
    __atomic_compare_exchange_n(&channel->sealing, &used_up, NULL, false, __ATOMIC_SEQ_CST,
                                __ATOMIC_RELAXED);
}

void gs_channel_hold(gs_channel *channel, gs_holding holding)
{
    __atomic_store_n(&channel->holding, (uint8_t)holding, __ATOMIC_RELEASE);
}

gs_counter *gs_channel_silence(gs_channel *channel)
{
    if (__atomic_load_n(&channel->holding, __ATOMIC_ACQUIRE) != GS_SENDS_ALL)
        return &channel->counters.unproven;
    if (channel->is_sealed && __atomic_load_n(&channel->sealing, __ATOMIC_ACQUIRE) == NULL)
        return &channel->counters.no_key;
    return NULL;
}

/* Memory channels keep { u32 port, u32 bytes, the datagram } one after the other. */
static bool keep_in_sink(gs_channel *channel, uint32_t port, const uint8_t *bytes, uint32_t count)
{
    gs_sink *sink = &channel->sink;
    size_t needed = sink->used + 8 + count;
    if (needed > SINK_BYTES_MAX)
        return false;
    if (needed > sink->capacity) {
        size_t capacity = needed * 2;
        uint8_t *larger = gs_allocate(capacity);
        if (sink->used != 0)
            memcpy(larger, sink->bytes, sink->used);
        gs_release(sink->bytes);
        sink->bytes = larger;
        sink->capacity = capacity;
    }
    memcpy(sink->bytes + sink->used, &port, 4);
    memcpy(sink->bytes + sink->used + 4, &count, 4);
    memcpy(sink->bytes + sink->used + 8, bytes, count);
    sink->used = needed;
    return true;
}

/* ECONNREFUSED reports an earlier datagram's failure; the present one has not been tried yet. */
static bool is_worth_another_try(ssize_t sent)
{
    return sent < 0 && (errno == ECONNREFUSED || errno == EINTR);
}

static ssize_t send_plain(int socket_, const uint8_t *bytes, uint32_t count)
{
    ssize_t sent = send(socket_, bytes, count, MSG_NOSIGNAL);
    return is_worth_another_try(sent) ? send(socket_, bytes, count, MSG_NOSIGNAL) : sent;
}

static ssize_t send_segmented(int socket_, const gs_run *run)
{
    uint16_t stride = (uint16_t)run->stride;
    ssize_t sent = gs_send_segments(socket_, run->bytes, run->used, stride);
    if (is_worth_another_try(sent))
        sent = gs_send_segments(socket_, run->bytes, run->used, stride);
    return sent;
}

/* Events of a closed segment; those of a sealed one were counted before it was sealed. */
static uint32_t events_in(const gs_channel *channel, uint32_t port, uint32_t segment,
                          const uint8_t *datagram)
{
    if (channel->is_sealed)
        return channel->segment_events[port][segment];
    uint32_t length = gs_load_u16(datagram + 2), events = 0;
    for (uint32_t at = GS_HEADER_BYTES; at < length; at += gs_event_bytes(datagram + at))
        events++;
    return events;
}

/* The path's MTU got smaller: read it for the next datagrams. */
static void learn_mtu(gs_channel *channel, int socket_)
{
    uint32_t payload_bytes = gs_path_payload_bytes(socket_, channel->is_ipv6);
    if (payload_bytes >= MTU_BYTES_MIN && payload_bytes < channel->mtu_bytes)
        channel->mtu_bytes = payload_bytes;
    gs_add(&channel->counters.mtu_changes, 1);
}

static void count_sent(gs_channel *channel, uint32_t events, uint32_t datagrams, uint32_t bytes)
{
    gs_add(&channel->counters.sent, events);
    gs_add(&channel->counters.datagrams_out, datagrams);
    gs_add(&channel->counters.bytes_out, bytes);
}

/* What could not be sent proves nothing to the receiver: the next probe is not postponed. */
static void count_failed(gs_channel *channel, uint32_t events)
{
    gs_add(&channel->counters.send_failed, events);
    channel->has_failed = true;
}

static void send_datagram(gs_channel *channel, int socket_, const uint8_t *bytes, uint32_t count,
                          uint32_t events)
{
    ssize_t sent = send_plain(socket_, bytes, count);
    if (sent < 0 && errno == EMSGSIZE) {
        learn_mtu(channel, socket_);
        gs_let_fragment(socket_, channel->is_ipv6, true);
        sent = send_plain(socket_, bytes, count);
        gs_let_fragment(socket_, channel->is_ipv6, false);
    }
    if (sent >= 0)
        count_sent(channel, events, 1, count);
    else
        count_failed(channel, events);
}

static void send_one_by_one(gs_channel *channel, uint32_t port)
{
    const gs_run *run = &channel->runs[port];
    uint32_t step = run->segments > 1 ? run->stride : run->used;
    for (uint32_t at = 0, i = 0; at < run->used; at += step, i++) {
        uint32_t count = run->used - at < step ? run->used - at : step;
        uint32_t events = events_in(channel, port, i, run->bytes + at);
        send_datagram(channel, channel->sockets[port], run->bytes + at, count, events);
    }
}

static void send_to_sink(gs_channel *channel, uint32_t port)
{
    const gs_run *run = &channel->runs[port];
    uint32_t step = run->segments > 1 ? run->stride : run->used;
    for (uint32_t at = 0, i = 0; at < run->used; at += step, i++) {
        uint32_t count = run->used - at < step ? run->used - at : step;
        uint32_t events = events_in(channel, port, i, run->bytes + at);
        if (keep_in_sink(channel, port, run->bytes + at, count))
            count_sent(channel, events, 1, count);
        else
            count_failed(channel, events);
    }
}

static __attribute__((noinline)) void seal_segment(gs_channel *channel, uint32_t port)
{
    gs_run *run = &channel->runs[port];
    uint32_t events = run->events - channel->closed_events[port];
    channel->segment_events[port][run->segments - 1] = (uint16_t)events;
    channel->closed_events[port] = run->events;
    gs_sealing *sealing = channel->keys[port];
    uint32_t length = run->used - run->segment;
    run->used += GS_TAG_BYTES;
    if (gs_sealing_count(sealing))
        stop_using(channel, sealing);
    gs_sealing_write(sealing, run->bytes + run->segment, length, channel->channel_id,
                     next_counter(channel), port);
}

/* The functions with `tag_bytes` are compiled twice: 0 for plain channels, which pay nothing for
 * what the others need. */
static inline __attribute__((always_inline)) void close_segment(gs_channel *channel, uint32_t port,
                                                                uint32_t tag_bytes)
{
    gs_run *run = &channel->runs[port];
    if (tag_bytes != 0)
        seal_segment(channel, port);
    else
        gs_header_write(run->bytes + run->segment, channel->version, run->used - run->segment,
                        channel->channel_id, next_counter(channel));
}

static void send_run(gs_channel *channel, uint32_t port)
{
    gs_run *run = &channel->runs[port];
    if (run->used == 0)
        return;
    close_segment(channel, port, channel->is_sealed ? GS_TAG_BYTES : 0);
    int socket_ = channel->sockets[port];
    if (socket_ < 0) {
        send_to_sink(channel, port);
    } else if (run->segments == 1 || !channel->has_gso) {
        send_one_by_one(channel, port);
    } else if (send_segmented(socket_, run) >= 0) {
        count_sent(channel, run->events, run->segments, run->used);
    } else if (errno == EINVAL || errno == EIO || errno == EMSGSIZE) {
        /* No offload on this path, or a smaller MTU: send each datagram by itself. */
        bool has_no_offload = errno != EMSGSIZE;
        gs_add(&channel->counters.fallback, 1);
        send_one_by_one(channel, port);
        /* Older kernels return EINVAL for a small MTU too; then the MTU was read just now. */
        if (has_no_offload && channel->mtu_bytes >= run->stride)
            channel->has_gso = false;
    } else {
        count_failed(channel, run->events);
    }
    run->used = 0;
}

static inline __attribute__((always_inline)) void start_run(gs_channel *channel, gs_run *run,
                                                            uint32_t tag_bytes)
{
    run->segment = 0;
    run->segments = 1;
    run->stride = 0;
    run->events = 0;
    run->segment_end = channel->mtu_bytes - tag_bytes;
    run->used = GS_HEADER_BYTES;
}

/* Send an event larger than the MTU in a datagram of its own, which may be cut into IP
 * fragments. */
static __attribute__((noinline)) void send_alone(gs_channel *channel, uint32_t port,
                                                 const uint8_t *event, uint32_t bytes)
{
    gs_run *run = &channel->runs[port];
    send_run(channel, port);
    channel->closed_events[port] = 0;
    start_run(channel, run, 0);
    memcpy(run->bytes + run->used, event, bytes);
    run->used += bytes;
    run->events = 1;
    if (channel->sockets[port] < 0) {
        send_run(channel, port);
        return;
    }
    close_segment(channel, port, channel->is_sealed ? GS_TAG_BYTES : 0);
    gs_let_fragment(channel->sockets[port], channel->is_ipv6, true);
    send_datagram(channel, channel->sockets[port], run->bytes, run->used, 1);
    gs_let_fragment(channel->sockets[port], channel->is_ipv6, false);
    run->used = 0;
}

/* The open segment is full: begin the next one of the run, or the next run. */
static inline __attribute__((always_inline)) void next_segment(gs_channel *channel, uint32_t port,
                                                               uint32_t bytes, uint32_t tag_bytes)
{
    gs_run *run = &channel->runs[port];
    uint32_t length = run->used - run->segment + tag_bytes;
    uint32_t stride = run->stride == 0 ? length : run->stride;
    if (run->segments == GS_RUN_SEGMENTS_MAX || (run->segments + 1) * stride > GS_RUN_BYTES_MAX ||
        bytes > stride - GS_HEADER_BYTES - tag_bytes) {
        send_run(channel, port);
        if (tag_bytes != 0)
            channel->closed_events[port] = 0;
        start_run(channel, run, tag_bytes);
        return;
    }
    close_segment(channel, port, tag_bytes);
    memset(run->bytes + run->used, 0, stride - length);
    run->stride = stride;
    run->segment += stride;
    run->segment_end = run->segment + stride - tag_bytes;
    run->used = run->segment + GS_HEADER_BYTES;
    run->segments++;
}

static inline __attribute__((always_inline)) void
append(gs_channel *channel, uint32_t port, const uint8_t *event, uint32_t bytes, uint32_t tag_bytes)
{
    gs_run *run = &channel->runs[port];
    if (bytes > channel->mtu_bytes - GS_HEADER_BYTES - tag_bytes) {
        send_alone(channel, port, event, bytes);
        return;
    }
    if (run->used == 0)
        start_run(channel, run, tag_bytes);
    else
        next_segment(channel, port, bytes, tag_bytes);
    gs_event_copy(run->bytes + run->used, event, bytes);
    run->used += bytes;
    run->events++;
}

/* Take the key of the next run; false, with the event counted, if the channel sends nothing. */
static bool begin_sending(gs_channel *channel, uint32_t port)
{
    gs_counter *silence = gs_channel_silence(channel);
    channel->keys[port] = __atomic_load_n(&channel->sealing, __ATOMIC_ACQUIRE);
    channel->closed_events[port] = 0;
    if (silence == NULL && channel->is_sealed && channel->keys[port] == NULL)
        silence = &channel->counters.no_key; /* It was taken away just now. */
    if (silence == NULL)
        return true;
    gs_add(silence, 1);
    channel->has_failed = true;
    return false;
}

static __attribute__((noinline)) void append_guarded(gs_channel *channel, uint32_t port,
                                                     const uint8_t *event, uint32_t bytes)
{
    if (channel->runs[port].used == 0 && !begin_sending(channel, port))
        return;
    if (channel->is_sealed)
        append(channel, port, event, bytes, GS_TAG_BYTES);
    else
        append(channel, port, event, bytes, 0);
}

void gs_channel_append_rare(gs_channel *channel, uint32_t port, const uint8_t *event,
                            uint32_t bytes)
{
    if (__builtin_expect(channel->is_guarded, 0))
        append_guarded(channel, port, event, bytes);
    else
        append(channel, port, event, bytes, 0);
}

void gs_channel_flush(gs_channel *channel)
{
    send_run(channel, GS_PORT_URGENT);
    send_run(channel, GS_PORT_DATA);
}

/* Keep the interval from the planned time, so that a late probe delays no later one; missed probes
 * are not sent later. */
static uint64_t next_probe_ns(const gs_channel *channel, uint64_t now_ns)
{
    uint64_t next_ns = channel->next_probe_ns + channel->probe_interval_ns;
    return next_ns > now_ns ? next_ns : now_ns + channel->probe_interval_ns;
}

bool gs_channel_is_probing(const gs_channel *channel)
{
    uint8_t holding = __atomic_load_n(&channel->holding, __ATOMIC_ACQUIRE);
    if (channel->probe_interval_ns == 0 || holding == GS_SENDS_NOTHING)
        return false;
    return holding == GS_SENDS_PROBES || !channel->probes_only_when_held;
}

/* Events prove as much as a probe, so the next probe is due an interval after them. If some of them
 * could not be sent, it stays due: `sent_ns` does not say which. */
bool gs_channel_needs_probe(gs_channel *channel, uint64_t now_ns)
{
    uint64_t idle_until_ns = channel->sent_ns + channel->probe_interval_ns;
    if (channel->probes_only_when_idle && !channel->has_failed && channel->sent_ns != 0 &&
        channel->next_probe_ns < idle_until_ns)
        channel->next_probe_ns = idle_until_ns;
    return channel->next_probe_ns <= now_ns;
}

/* Return the bytes of the probe; 0: there is no key, or no probe may be sent. */
static uint32_t write_probe(gs_channel *channel, uint8_t *probe)
{
    if (!gs_channel_is_probing(channel))
        return 0;
    gs_sealing *sealing = __atomic_load_n(&channel->sealing, __ATOMIC_ACQUIRE);
    if (!channel->is_sealed)
        gs_header_write(probe, channel->version, GS_HEADER_BYTES, channel->channel_id,
                        next_counter(channel));
    else if (sealing == NULL)
        return 0;
    else {
        if (gs_sealing_count(sealing))
            stop_using(channel, sealing);
        gs_sealing_write(sealing, probe, GS_HEADER_BYTES, channel->channel_id,
                         next_counter(channel), GS_PORT_DATA);
    }
    return gs_channel_overhead(channel);
}

uint32_t gs_channel_probe(gs_channel *channel, uint64_t now_ns)
{
    uint8_t probe[GS_HEADER_BYTES + GS_TAG_BYTES];
    uint32_t bytes = write_probe(channel, probe);
    int socket_ = channel->sockets[GS_PORT_DATA];
    bool is_sent = bytes != 0 && (socket_ < 0 ? keep_in_sink(channel, GS_PORT_DATA, probe, bytes)
                                              : send_plain(socket_, probe, bytes) >= 0);
    channel->next_probe_ns = next_probe_ns(channel, now_ns);
    channel->has_failed = false;
    if (is_sent)
        count_sent(channel, 0, 1, bytes);
    gs_add(is_sent ? &channel->counters.probes_sent : &channel->counters.probes_failed, 1);
    return bytes;
}
