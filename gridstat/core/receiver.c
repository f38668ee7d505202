#define _GNU_SOURCE
#include "receiver.h"

#include <errno.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "channel.h"
#include "event.h"
#include "expected.h"
#include "memory.h"

#define BUFFERS             4
#define BUFFER_BYTES        65536U
#define PLAIN_RECEIVES_MAX  64
#define URGENT_RECEIVES_MAX 16
#define EVENTS_AHEAD        32
#define TIME_QUALITY        3U
#define NS_PER_S            1000000000ULL

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { WORD_STOP = 2 }; /* Beside the two ports. */

typedef union {
    struct cmsghdr align;
    char bytes[128];
} gs_control;

struct gs_receiver {
    gs_keep keep;
    bool accepts_unknown, is_posix, is_running;
    int sockets[GS_PORTS];
    int poll_fd, stop_fd, wake_fd;
    uint32_t fork_generation;
    pthread_t thread;
    uint64_t cpu_ns_before; /* Of threads that have ended. */
    uint64_t *page;
    uint64_t now_ns;
    uint64_t batch[GS_RECEIVED_COUNTERS]; /* Of this receive call; added up once. */
    gs_counter counters[GS_RECEIVED_COUNTERS];
    gs_histogram latency;
    gs_expected expected;
    gs_sample_ring ring;
    uint8_t *buffers;
    struct mmsghdr messages[BUFFERS];
    struct iovec parts[BUFFERS];
    gs_control controls[BUFFERS];
};

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* --- One event --------------------------------------------------------------------------- */

static inline void sample_of(const uint8_t *event, uint64_t now_ns, gs_sample *sample)
{
    sample->created_ns = gs_event_created_ns(event);
    sample->received_ns = now_ns;
    sample->variable_id = gs_event_variable(event);
    sample->option_count = event[12];
    sample->flags = gs_event_flags(event);
    sample->sequence = gs_event_sequence(event);
    sample->value = gs_load_u64(event + 16);
}

static inline void deliver(gs_receiver *receiver, const gs_sample *sample, const uint8_t *event)
{
    if (receiver->keep == GS_KEEP_RING && !gs_sample_ring_add(&receiver->ring, sample, event)) {
        receiver->batch[GS_RECEIVED_RING_FULL]++;
        return;
    }
    receiver->batch[GS_RECEIVED_DELIVERED]++;
    /* Without a trustworthy clock at the source there is no latency to speak of. */
    if ((sample->flags & TIME_QUALITY) == 0) {
        uint64_t latency_ns = sample->received_ns - sample->created_ns;
        bool is_ahead = sample->created_ns > sample->received_ns;
        gs_histogram_add(&receiver->latency, is_ahead ? 0 : latency_ns, 1);
    }
}

static inline void receive_event(gs_receiver *receiver, gs_expected_variable *variable,
                                 const uint8_t *event)
{
    if (variable == NULL && !receiver->accepts_unknown) {
        receiver->batch[GS_RECEIVED_UNKNOWN]++;
        return;
    }
    gs_sample sample;
    sample_of(event, receiver->now_ns, &sample);
    if (variable == NULL)
        variable = gs_expected_adopt(&receiver->expected, sample.variable_id);
    gs_verdict verdict = GS_ACCEPTED;
    if (variable != NULL)
        verdict = gs_expected_accept(&receiver->expected, variable, &sample,
                                     receiver->keep != GS_KEEP_COUNT);
    if (__builtin_expect(verdict == GS_ACCEPTED, 1))
        deliver(receiver, &sample, event);
    else if (verdict == GS_POLICED_JUMP)
        receiver->batch[GS_RECEIVED_POLICED_JUMP]++;
    else
        receiver->batch[GS_RECEIVED_DUPLICATE]++;
}

/* Two passes over a few events at a time: the first asks memory for what the second will need. */
static void receive_events(gs_receiver *receiver, const uint8_t *event, const uint8_t *end)
{
    while (event < end) {
        const uint8_t *events[EVENTS_AHEAD];
        gs_expected_variable *variables[EVENTS_AHEAD];
        uint32_t count = 0;
        while (event < end && count < EVENTS_AHEAD) {
            gs_expected_variable *variable =
                gs_expected_find(&receiver->expected, gs_event_variable(event));
            if (variable != NULL) {
                __builtin_prefetch(&variable->window, 1);
                __builtin_prefetch(&variable->period, 1);
            }
            events[count] = event;
            variables[count++] = variable;
            event += gs_event_bytes(event);
        }
        for (uint32_t i = 0; i < count; i++)
            receive_event(receiver, variables[i], events[i]);
    }
}

static void receive_datagram(gs_receiver *receiver, const uint8_t *datagram, size_t bytes)
{
    gs_datagram read;
    gs_form form = gs_datagram_read(datagram, bytes, &read);
    receiver->batch[GS_RECEIVED_DATAGRAMS]++;
    receiver->batch[GS_RECEIVED_BYTES] += bytes;
    if (form != GS_WELL_FORMED) {
        receiver->batch[GS_RECEIVED_IN]++;
        receiver->batch[GS_RECEIVED_MALFORMED]++;
        receiver->batch[GS_RECEIVED_MALFORMED + (uint32_t)form]++;
        return;
    }
    receiver->batch[GS_RECEIVED_IN] += read.event_count;
    receive_events(receiver, datagram + GS_HEADER_BYTES, datagram + read.events_end);
}

/* --- One receive call -------------------------------------------------------------------- */

static void finish_call(gs_receiver *receiver)
{
    for (uint32_t i = 0; i < GS_RECEIVED_COUNTERS; i++) {
        if (receiver->batch[i] != 0)
            gs_add(&receiver->counters[i], receiver->batch[i]);
        receiver->batch[i] = 0;
    }
    if (receiver->page != NULL) {
        gs_set(&receiver->page[GS_PAGE_RECEIVED_NS], receiver->now_ns);
        gs_set(&receiver->page[GS_PAGE_DATAGRAMS], receiver->counters[GS_RECEIVED_DATAGRAMS]);
        gs_set(&receiver->page[GS_PAGE_DUPLICATE], receiver->counters[GS_RECEIVED_DUPLICATE]);
        gs_set(&receiver->page[GS_PAGE_RING_FULL], receiver->counters[GS_RECEIVED_RING_FULL]);
        gs_set(&receiver->page[GS_PAGE_DELIVERED], receiver->counters[GS_RECEIVED_DELIVERED]);
    }
    if (receiver->keep == GS_KEEP_RING && gs_sample_ring_show(&receiver->ring))
        eventfd_write(receiver->wake_fd, 1);
}

/* How long each datagram in the buffer is: the kernel may have joined several equal ones. */
static size_t stride_of(struct msghdr *message, size_t bytes)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level == IPPROTO_UDP && header->cmsg_type == UDP_GRO) {
            int stride;
            memcpy(&stride, CMSG_DATA(header), sizeof stride);
            if (stride > 0)
                return (size_t)stride;
        }
    }
    return bytes;
}

static void receive_buffer(gs_receiver *receiver, struct mmsghdr *message)
{
    const uint8_t *buffer = message->msg_hdr.msg_iov->iov_base;
    size_t bytes = message->msg_len;
    size_t stride = stride_of(&message->msg_hdr, bytes);
    if (bytes == 0)
        receive_datagram(receiver, buffer, 0);
    for (size_t at = 0; at < bytes; at += stride)
        receive_datagram(receiver, buffer + at, bytes - at < stride ? bytes - at : stride);
}

/* True when there may be more. */
static bool receive_batch(gs_receiver *receiver, int socket_)
{
    for (uint32_t i = 0; i < BUFFERS; i++)
        receiver->messages[i].msg_hdr.msg_controllen = sizeof receiver->controls[i];
    int count = recvmmsg(socket_, receiver->messages, BUFFERS, MSG_DONTWAIT, NULL);
    if (count <= 0)
        return false;
    receiver->now_ns = clock_ns(CLOCK_REALTIME);
    for (int i = 0; i < count; i++)
        receive_buffer(receiver, &receiver->messages[i]);
    finish_call(receiver);
    return count == BUFFERS;
}

static bool receive_plain(gs_receiver *receiver, int socket_)
{
    for (uint32_t i = 0; i < PLAIN_RECEIVES_MAX; i++) {
        ssize_t bytes = recv(socket_, receiver->buffers, BUFFER_BYTES, MSG_DONTWAIT);
        if (bytes < 0)
            return false;
        receiver->now_ns = clock_ns(CLOCK_REALTIME);
        receive_datagram(receiver, receiver->buffers, (size_t)bytes);
        finish_call(receiver);
    }
    return true;
}

static bool receive(gs_receiver *receiver, uint32_t port)
{
    int socket_ = receiver->sockets[port];
    return receiver->is_posix ? receive_plain(receiver, socket_) : receive_batch(receiver, socket_);
}

/* --- The thread -------------------------------------------------------------------------- */

static void *run(void *argument)
{
    gs_receiver *receiver = argument;
    for (;;) {
        struct epoll_event ready[3];
        int count = epoll_wait(receiver->poll_fd, ready, 3, -1);
        uint32_t words = 0;
        for (int i = 0; i < count; i++)
            words |= 1U << ready[i].data.u32;
        if (words & 1U << WORD_STOP)
            return NULL;
        if (words & 1U << GS_PORT_URGENT) {
            uint32_t calls = 1;
            while (receive(receiver, GS_PORT_URGENT) && calls < URGENT_RECEIVES_MAX)
                calls++;
        }
        /* Once only: what is urgent may have come meanwhile. */
        if (words & 1U << GS_PORT_DATA)
            receive(receiver, GS_PORT_DATA);
    }
}

gs_end_status gs_receiver_start(gs_receiver *receiver)
{
    if (receiver->is_running)
        return GS_END_OK;
    eventfd_t stale;
    (void)!eventfd_read(receiver->stop_fd, &stale);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* The thread inherits it. */
    errno = pthread_create(&receiver->thread, NULL, run, receiver);
    gs_end_status status = errno == 0 ? GS_END_OK : gs_end_status_now();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    __atomic_store_n(&receiver->is_running, status == GS_END_OK, __ATOMIC_RELEASE);
    if (status == GS_END_OK)
        pthread_setname_np(receiver->thread, "gs-receiver");
    return status;
}

static uint64_t thread_cpu_ns(const gs_receiver *receiver)
{
    clockid_t clock;
    if (pthread_getcpuclockid(receiver->thread, &clock) != 0)
        return 0;
    return clock_ns(clock);
}

void gs_receiver_stop(gs_receiver *receiver)
{
    if (!receiver->is_running || gs_receiver_is_foreign(receiver))
        return;
    uint64_t cpu_ns = thread_cpu_ns(receiver);
    eventfd_write(receiver->stop_fd, 1);
    pthread_join(receiver->thread, NULL);
    receiver->cpu_ns_before += cpu_ns;
    __atomic_store_n(&receiver->is_running, false, __ATOMIC_RELEASE);
    eventfd_write(receiver->wake_fd, 1);
}

/* --- Opening and closing ----------------------------------------------------------------- */

static bool watch(gs_receiver *receiver, int fd, uint32_t word)
{
    struct epoll_event interest = {.events = EPOLLIN, .data.u32 = word};
    return epoll_ctl(receiver->poll_fd, EPOLL_CTL_ADD, fd, &interest) == 0;
}

static gs_end_status open_ports(gs_receiver *receiver, const gs_receiver_words *words)
{
    for (uint32_t port = 0; port < GS_PORTS; port++) {
        int *socket_ = &receiver->sockets[port];
        gs_endpoint own = {words->host, words->ports[port], words->is_posix};
        gs_end_status status = gs_socket_bind(&own, socket_);
        if (status != GS_END_OK)
            return status;
        if (!watch(receiver, *socket_, port))
            return gs_end_status_now();
    }
    return GS_END_OK;
}

static void open_buffers(gs_receiver *receiver)
{
    receiver->buffers = gs_allocate((size_t)BUFFERS * BUFFER_BYTES);
    for (uint32_t i = 0; i < BUFFERS; i++) {
        receiver->parts[i].iov_base = receiver->buffers + (size_t)i * BUFFER_BYTES;
        receiver->parts[i].iov_len = BUFFER_BYTES;
        receiver->messages[i].msg_hdr.msg_iov = &receiver->parts[i];
        receiver->messages[i].msg_hdr.msg_iovlen = 1;
        receiver->messages[i].msg_hdr.msg_control = receiver->controls[i].bytes;
    }
}

static gs_end_status open_descriptors(gs_receiver *receiver, const gs_receiver_words *words)
{
    receiver->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    receiver->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    receiver->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (receiver->poll_fd < 0 || receiver->stop_fd < 0 || receiver->wake_fd < 0 ||
        !watch(receiver, receiver->stop_fd, WORD_STOP))
        return gs_end_status_now();
    return open_ports(receiver, words);
}

gs_end_status gs_receiver_open(const gs_receiver_words *words, gs_receiver **opened)
{
    gs_receiver *receiver = gs_allocate(sizeof *receiver);
    receiver->keep = words->keep;
    receiver->accepts_unknown = words->accepts_unknown;
    receiver->is_posix = words->is_posix;
    receiver->page = words->page;
    receiver->fork_generation = gs_fork_generation();
    receiver->sockets[0] = receiver->sockets[1] = -1;
    receiver->poll_fd = receiver->stop_fd = receiver->wake_fd = -1;
    open_buffers(receiver);
    if (words->keep == GS_KEEP_RING)
        gs_sample_ring_open(&receiver->ring, words->ring_events, words->option_bytes);
    gs_end_status status = GS_END_NO_MEMORY;
    if (gs_expected_open(&receiver->expected, words->variables_max, words->ring_expiry_ns))
        status = open_descriptors(receiver, words);
    if (status != GS_END_OK)
        gs_receiver_close(receiver);
    else
        *opened = receiver;
    return status;
}

void gs_receiver_shut(gs_receiver *receiver)
{
    gs_receiver_stop(receiver);
    for (uint32_t port = 0; port < GS_PORTS; port++)
        gs_socket_close(&receiver->sockets[port]);
    gs_socket_close(&receiver->poll_fd);
    gs_socket_close(&receiver->stop_fd);
    gs_socket_close(&receiver->wake_fd);
}

void gs_receiver_close(gs_receiver *receiver)
{
    gs_receiver_shut(receiver);
    gs_expected_close(&receiver->expected);
    gs_sample_ring_close(&receiver->ring);
    gs_release(receiver->buffers);
    gs_release(receiver);
}

/* --- What others ask --------------------------------------------------------------------- */

bool gs_receiver_is_running(const gs_receiver *receiver)
{
    return __atomic_load_n(&receiver->is_running, __ATOMIC_ACQUIRE);
}

bool gs_receiver_is_foreign(const gs_receiver *receiver)
{
    return receiver->fork_generation != gs_fork_generation();
}

bool gs_receiver_expect(gs_receiver *receiver, uint32_t variable_id, uint32_t seconds,
                        uint32_t per_seconds, uint64_t phase_ns)
{
    if (seconds == 0)
        return gs_expected_add(&receiver->expected, variable_id, NULL);
    gs_period period = gs_period_make(seconds, per_seconds, phase_ns);
    return gs_expected_add(&receiver->expected, variable_id, &period);
}

bool gs_receiver_newest(gs_receiver *receiver, uint32_t variable_id, gs_sample *sample)
{
    const gs_expected_variable *variable = gs_expected_find(&receiver->expected, variable_id);
    return variable != NULL && gs_expected_newest(variable, sample);
}

bool gs_receiver_wait(gs_receiver *receiver, int timeout_ms)
{
    if (gs_sample_ring_ready(&receiver->ring) != 0)
        return true;
    struct pollfd wake = {.fd = receiver->wake_fd, .events = POLLIN};
    eventfd_t wakes;
    if (poll(&wake, 1, timeout_ms) > 0)
        (void)!eventfd_read(receiver->wake_fd, &wakes);
    return gs_sample_ring_ready(&receiver->ring) != 0;
}

gs_sample_ring *gs_receiver_ring(gs_receiver *receiver)
{
    return &receiver->ring;
}

int gs_receiver_wake_fd(const gs_receiver *receiver)
{
    return receiver->wake_fd;
}

uint16_t gs_receiver_port(const gs_receiver *receiver, uint32_t port)
{
    return gs_socket_port(receiver->sockets[port]);
}

uint32_t gs_receiver_buffer_bytes(const gs_receiver *receiver)
{
    return gs_socket_receive_buffer_bytes(receiver->sockets[GS_PORT_DATA]);
}

uint64_t gs_receiver_count(const gs_receiver *receiver, uint32_t counter)
{
    return gs_read(&receiver->counters[counter]);
}

uint64_t gs_receiver_kernel_dropped(const gs_receiver *receiver)
{
    return gs_socket_dropped(receiver->sockets[GS_PORT_DATA]) +
           gs_socket_dropped(receiver->sockets[GS_PORT_URGENT]);
}

uint64_t gs_receiver_latency(const gs_receiver *receiver, uint32_t bucket)
{
    return gs_read(&receiver->latency.buckets[bucket]);
}

uint64_t gs_receiver_cpu_ns(const gs_receiver *receiver)
{
    bool is_running = gs_receiver_is_running(receiver);
    return receiver->cpu_ns_before + (is_running ? thread_cpu_ns(receiver) : 0);
}
