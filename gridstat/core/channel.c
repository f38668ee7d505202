#define _GNU_SOURCE
#include "channel.h"

#include <errno.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "egress.h"
#include "event.h"
#include "memory.h"

#ifdef UDP_SEGMENT
#define HAS_GSO true
#else
#define HAS_GSO     false
#define UDP_SEGMENT 103
#endif

#define SEND_BUFFER_BYTES (4 << 20)
#define SINK_BYTES_MAX    (256UL << 20)
#define IPV4_UDP_BYTES    28
#define IPV6_UDP_BYTES    48

static void set_fragmenting(const gs_channel *channel, int socket_, bool may_fragment)
{
#ifdef IP_MTU_DISCOVER
    int way = may_fragment ? IP_PMTUDISC_DONT : IP_PMTUDISC_DO;
    if (channel->is_ipv6)
        setsockopt(socket_, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &way, sizeof way);
    else
        setsockopt(socket_, IPPROTO_IP, IP_MTU_DISCOVER, &way, sizeof way);
#else
    (void)channel, (void)socket_, (void)may_fragment;
#endif
}

static int open_socket(gs_channel *channel, const gs_channel_words *words, uint32_t port)
{
    int bytes = SEND_BUFFER_BYTES;
    int socket_ =
        socket(words->addresses[port]->sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket_ < 0)
        return errno;
    channel->sockets[port] = socket_;
    setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    set_fragmenting(channel, socket_, false);
    if (connect(socket_, words->addresses[port], words->address_bytes) < 0)
        return errno;
    return 0;
}

int gs_channel_open(const gs_channel_words *words, gs_channel **opened)
{
    gs_channel *channel = gs_allocate(sizeof *channel);
    channel->channel_id = words->channel_id;
    channel->index = words->index;
    channel->mtu_bytes = words->mtu_bytes;
    channel->level = words->level;
    channel->floods = words->floods;
    channel->is_posix = words->is_posix;
    channel->has_gso = HAS_GSO && !words->is_posix;
    for (uint32_t port = 0; port < GS_PORTS; port++) {
        channel->sockets[port] = -1;
        channel->runs[port].bytes = gs_allocate(GS_RUN_BYTES_MAX + 16);
    }
    if (words->bandwidth_bytes_per_s != 0)
        channel->queues = gs_queues_open(words->bandwidth_bytes_per_s, words->queue_events_max);
    int failure = 0;
    for (uint32_t port = 0; port < GS_PORTS && words->addresses[port] != NULL; port++) {
        channel->is_ipv6 = words->addresses[port]->sa_family == AF_INET6;
        failure = open_socket(channel, words, port);
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
    gs_release(channel->sink.bytes);
    gs_release(channel);
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

static ssize_t send_once(int socket_, const struct msghdr *message)
{
    ssize_t sent = sendmsg(socket_, message, MSG_NOSIGNAL | MSG_DONTWAIT);
    /* ECONNREFUSED reports an earlier datagram's fate; this one has not been tried yet. */
    if (sent < 0 && (errno == ECONNREFUSED || errno == EINTR))
        sent = sendmsg(socket_, message, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent;
}

static ssize_t send_plain(int socket_, const uint8_t *bytes, uint32_t count)
{
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = count};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    return send_once(socket_, &message);
}

static ssize_t send_segmented(int socket_, const gs_run *run)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(uint16_t))];
    } control = {0};
    struct iovec part = {.iov_base = run->bytes, .iov_len = run->used};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    uint16_t stride = (uint16_t)run->stride;
    header->cmsg_level = IPPROTO_UDP;
    header->cmsg_type = UDP_SEGMENT;
    header->cmsg_len = CMSG_LEN(sizeof stride);
    memcpy(CMSG_DATA(header), &stride, sizeof stride);
    return send_once(socket_, &message);
}

static uint32_t events_in(const uint8_t *datagram)
{
    uint32_t length = gs_load_u16(datagram + 2), events = 0;
    for (uint32_t at = GS_HEADER_BYTES; at < length; at += gs_event_bytes(datagram + at))
        events++;
    return events;
}

/* The path got narrower: learn its MTU for the next datagrams. */
static void learn_mtu(gs_channel *channel, int socket_)
{
#ifdef IP_MTU
    int mtu = 0;
    socklen_t bytes = sizeof mtu;
    int failed = channel->is_ipv6 ? getsockopt(socket_, IPPROTO_IPV6, IPV6_MTU, &mtu, &bytes)
                                  : getsockopt(socket_, IPPROTO_IP, IP_MTU, &mtu, &bytes);
    int payload = mtu - (channel->is_ipv6 ? IPV6_UDP_BYTES : IPV4_UDP_BYTES);
    if (failed == 0 && payload >= 256 && (uint32_t)payload < channel->mtu_bytes)
        channel->mtu_bytes = (uint32_t)payload;
#else
    (void)channel, (void)socket_;
#endif
    gs_add(&channel->counters.mtu_changes, 1);
}

static void count_sent(gs_channel *channel, uint32_t events, uint32_t datagrams, uint32_t bytes)
{
    gs_add(&channel->counters.sent, events);
    gs_add(&channel->counters.datagrams_out, datagrams);
    gs_add(&channel->counters.bytes_out, bytes);
}

static void send_datagram(gs_channel *channel, int socket_, const uint8_t *bytes, uint32_t count)
{
    uint32_t events = events_in(bytes);
    ssize_t sent = send_plain(socket_, bytes, count);
    if (sent < 0 && errno == EMSGSIZE) {
        learn_mtu(channel, socket_);
        set_fragmenting(channel, socket_, true);
        sent = send_plain(socket_, bytes, count);
        set_fragmenting(channel, socket_, false);
    }
    if (sent >= 0)
        count_sent(channel, events, 1, count);
    else
        gs_add(&channel->counters.send_failed, events);
}

static void send_one_by_one(gs_channel *channel, int socket_, const gs_run *run)
{
    uint32_t step = run->segments > 1 ? run->stride : run->used;
    for (uint32_t at = 0; at < run->used; at += step) {
        uint32_t count = run->used - at < step ? run->used - at : step;
        send_datagram(channel, socket_, run->bytes + at, count);
    }
}

static void send_to_sink(gs_channel *channel, uint32_t port, const gs_run *run)
{
    uint32_t step = run->segments > 1 ? run->stride : run->used;
    for (uint32_t at = 0; at < run->used; at += step) {
        uint32_t count = run->used - at < step ? run->used - at : step;
        uint32_t events = events_in(run->bytes + at);
        if (keep_in_sink(channel, port, run->bytes + at, count))
            count_sent(channel, events, 1, count);
        else
            gs_add(&channel->counters.send_failed, events);
    }
}

static void close_segment(gs_channel *channel, gs_run *run)
{
    gs_header_write(run->bytes + run->segment, run->used - run->segment, channel->channel_id,
                    ++channel->counter);
}

static void send_run(gs_channel *channel, uint32_t port)
{
    gs_run *run = &channel->runs[port];
    if (run->used == 0)
        return;
    close_segment(channel, run);
    int socket_ = channel->sockets[port];
    if (socket_ < 0) {
        send_to_sink(channel, port, run);
    } else if (run->segments == 1 || !channel->has_gso) {
        send_one_by_one(channel, socket_, run);
    } else if (send_segmented(socket_, run) >= 0) {
        count_sent(channel, run->events, run->segments, run->used);
    } else if (errno == EINVAL || errno == EIO || errno == EMSGSIZE) {
        /* No offload on this way, or a narrower path: each datagram for itself. */
        gs_add(&channel->counters.fallback, 1);
        send_one_by_one(channel, socket_, run);
    } else {
        gs_add(&channel->counters.send_failed, run->events);
    }
    run->used = 0;
}

static void start_run(gs_channel *channel, gs_run *run)
{
    run->segment = 0;
    run->segments = 1;
    run->stride = 0;
    run->events = 0;
    run->segment_end = channel->mtu_bytes;
    run->used = GS_HEADER_BYTES;
}

/* An event larger than the MTU travels alone and may be cut into IP fragments. */
static void send_alone(gs_channel *channel, uint32_t port, const uint8_t *event, uint32_t bytes)
{
    gs_run *run = &channel->runs[port];
    start_run(channel, run);
    memcpy(run->bytes + run->used, event, bytes);
    run->used += bytes;
    run->events = 1;
    if (channel->sockets[port] < 0) {
        send_run(channel, port);
        return;
    }
    close_segment(channel, run);
    set_fragmenting(channel, channel->sockets[port], true);
    send_datagram(channel, channel->sockets[port], run->bytes, run->used);
    set_fragmenting(channel, channel->sockets[port], false);
    run->used = 0;
}

/* The open segment is full: the next one of the run, or the next run. */
static void next_segment(gs_channel *channel, uint32_t port, uint32_t bytes)
{
    gs_run *run = &channel->runs[port];
    uint32_t length = run->used - run->segment;
    uint32_t stride = run->stride == 0 ? length : run->stride;
    if (run->segments == GS_RUN_SEGMENTS_MAX || (run->segments + 1) * stride > GS_RUN_BYTES_MAX ||
        bytes > stride - GS_HEADER_BYTES) {
        send_run(channel, port);
        start_run(channel, run);
        return;
    }
    close_segment(channel, run);
    memset(run->bytes + run->used, 0, stride - length);
    run->stride = stride;
    run->segment += stride;
    run->segment_end = run->segment + stride;
    run->used = run->segment + GS_HEADER_BYTES;
    run->segments++;
}

void gs_channel_append_rare(gs_channel *channel, uint32_t port, const uint8_t *event,
                            uint32_t bytes)
{
    gs_run *run = &channel->runs[port];
    if (bytes > channel->mtu_bytes - GS_HEADER_BYTES) {
        send_run(channel, port);
        send_alone(channel, port, event, bytes);
        return;
    }
    if (run->used == 0)
        start_run(channel, run);
    else
        next_segment(channel, port, bytes);
    gs_event_copy(run->bytes + run->used, event, bytes);
    run->used += bytes;
    run->events++;
}

void gs_channel_flush(gs_channel *channel)
{
    send_run(channel, GS_PORT_URGENT);
    send_run(channel, GS_PORT_DATA);
}
