#include "receiver.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

#include "channel.h"
#include "event.h"
#include "expected.h"
#include "loop.h"
#include "memory.h"
#include "platform.h"

#define URGENT_CALLS_MAX 16U
#define PLAIN_CALLS_MAX  16U
#define EVENTS_AHEAD     32
#define TIME_QUALITY     3U

struct gs_receiver {
    gs_keep keep;
    bool accepts_unknown, is_posix;
    bool is_running; /* Atomic; changed under `running`. */
    int sockets[GS_PORTS];
    gs_wake stop, wake; /* For the thread, and for the reader. */
    uint32_t fork_generation;
    pthread_mutex_t running; /* For those who start and stop; never taken by the thread. */
    pthread_t thread;
    uint64_t cpu_ns_before; /* Of threads that have ended. */
    uint64_t *page;
    gs_now now; /* The wall clock's for stamps and latencies, the steady one for verdicts. */
    uint64_t batch[GS_RECEIVED_COUNTERS]; /* Of this receive call; added up once. */
    gs_counter counters[GS_RECEIVED_COUNTERS];
    gs_histogram latency;
    gs_expected expected;
    gs_sample_ring ring;
    uint8_t *buffers;
    gs_message messages[GS_RECEIVE_BUFFERS];
    struct iovec parts[GS_RECEIVE_BUFFERS];
    char controls[GS_RECEIVE_BUFFERS][GS_CONTROL_BYTES] __attribute__((aligned(16)));
};

/* --- One event --------------------------------------------------------------------------- */

static inline void sample_of(const uint8_t *event, uint64_t received_ns, gs_sample *sample)
{
    sample->created_ns = gs_event_created_ns(event);
    sample->received_ns = received_ns;
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
    sample_of(event, receiver->now.wall_ns, &sample);
    if (variable == NULL)
        variable = gs_expected_adopt(&receiver->expected, sample.variable_id);
    gs_verdict verdict = GS_ACCEPTED;
    if (__builtin_expect(variable != NULL, 1))
        verdict = gs_expected_accept(&receiver->expected, variable, &sample,
                                     receiver->now.steady_ns, receiver->keep != GS_KEEP_COUNT);
    else
        receiver->batch[GS_RECEIVED_NEWEST_FULL] += receiver->keep != GS_KEEP_COUNT;
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
    gs_form form = gs_datagram_read(datagram, bytes, GS_VERSIONS_MAX, &read);
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
        gs_set(&receiver->page[GS_PAGE_RECEIVED_NS], receiver->now.wall_ns);
        gs_set(&receiver->page[GS_PAGE_DATAGRAMS], receiver->counters[GS_RECEIVED_DATAGRAMS]);
        gs_set(&receiver->page[GS_PAGE_DUPLICATE], receiver->counters[GS_RECEIVED_DUPLICATE]);
        gs_set(&receiver->page[GS_PAGE_RING_FULL], receiver->counters[GS_RECEIVED_RING_FULL]);
        gs_set(&receiver->page[GS_PAGE_DELIVERED], receiver->counters[GS_RECEIVED_DELIVERED]);
    }
    if (receiver->keep == GS_KEEP_RING && gs_sample_ring_show(&receiver->ring))
        gs_wake_signal(&receiver->wake);
}

static void receive_message(gs_receiver *receiver, gs_message *message)
{
    const uint8_t *buffer = message->header.msg_iov->iov_base;
    size_t bytes = message->bytes;
    /* The kernel may have joined several datagrams of one length. */
    size_t joined_bytes = gs_read_remarks(&message->header).segment_bytes;
    size_t stride = joined_bytes != 0 ? joined_bytes : bytes;
    if (bytes == 0)
        receive_datagram(receiver, buffer, 0);
    for (size_t at = 0; at < bytes; at += stride)
        receive_datagram(receiver, buffer + at, bytes - at < stride ? bytes - at : stride);
}

/* True when there may be more. */
static bool receive_batch(gs_receiver *receiver, int socket_)
{
    int count = gs_receive(socket_, receiver->messages, GS_RECEIVE_BUFFERS, receiver->is_posix);
    if (count <= 0)
        return false;
    receiver->now = gs_now_read();
    for (int i = 0; i < count; i++)
        receive_message(receiver, &receiver->messages[i]);
    finish_call(receiver);
    return count == GS_RECEIVE_BUFFERS;
}

static void receive(gs_receiver *receiver, uint32_t port, uint32_t calls_max)
{
    for (uint32_t i = 0; i < calls_max; i++)
        if (!receive_batch(receiver, receiver->sockets[port]))
            return;
}

/* --- The thread -------------------------------------------------------------------------- */

static void *run(void *argument)
{
    gs_receiver *receiver = argument;
    struct pollfd ready[3] = {
        {.fd = receiver->sockets[GS_PORT_URGENT], .events = POLLIN},
        {.fd = receiver->sockets[GS_PORT_DATA], .events = POLLIN},
        {.fd = receiver->stop.reader, .events = POLLIN},
    };
    /* Once only: what is urgent may have come meanwhile. A plain call brings little, however. */
    uint32_t data_calls_max = receiver->is_posix || !GS_LINUX ? PLAIN_CALLS_MAX : 1;
    for (;;) {
        if (gs_wait(ready, 3, UINT64_MAX) <= 0)
            continue;
        if (ready[2].revents != 0)
            return NULL;
        if (ready[0].revents != 0)
            receive(receiver, GS_PORT_URGENT, URGENT_CALLS_MAX);
        if (ready[1].revents != 0)
            receive(receiver, GS_PORT_DATA, data_calls_max);
    }
}

static gs_end_status start(gs_receiver *receiver)
{
    gs_wake_clear(&receiver->stop);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* The thread inherits it. */
    errno = pthread_create(&receiver->thread, NULL, run, receiver);
    gs_end_status status = errno == 0 ? GS_END_OK : gs_end_status_now();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    __atomic_store_n(&receiver->is_running, status == GS_END_OK, __ATOMIC_RELEASE);
    if (status == GS_END_OK)
        gs_name_thread(receiver->thread, "gs-receiver");
    return status;
}

gs_end_status gs_receiver_start(gs_receiver *receiver)
{
    pthread_mutex_lock(&receiver->running);
    gs_end_status status = receiver->is_running ? GS_END_OK : start(receiver);
    pthread_mutex_unlock(&receiver->running);
    return status;
}

static uint64_t thread_cpu_ns(const gs_receiver *receiver)
{
    clockid_t clock;
    if (pthread_getcpuclockid(receiver->thread, &clock) != 0)
        return 0;
    return gs_clock_ns(clock);
}

/* One of several who stop ends the thread; the others wait until it has ended. */
void gs_receiver_stop(gs_receiver *receiver)
{
    if (gs_receiver_is_foreign(receiver))
        return;
    pthread_mutex_lock(&receiver->running);
    if (receiver->is_running) {
        uint64_t cpu_ns = thread_cpu_ns(receiver);
        gs_wake_signal(&receiver->stop);
        pthread_join(receiver->thread, NULL);
        receiver->cpu_ns_before += cpu_ns;
        __atomic_store_n(&receiver->is_running, false, __ATOMIC_RELEASE);
        gs_wake_signal(&receiver->wake);
    }
    pthread_mutex_unlock(&receiver->running);
}

/* --- Opening and closing ----------------------------------------------------------------- */

static gs_end_status open_ports(gs_receiver *receiver, const gs_receiver_words *words)
{
    for (uint32_t port = 0; port < GS_PORTS; port++) {
        gs_endpoint own = {words->host, words->ports[port], words->is_posix};
        gs_end_status status = gs_socket_bind(&own, &receiver->sockets[port]);
        if (status != GS_END_OK)
            return status;
    }
    return GS_END_OK;
}

static void open_buffers(gs_receiver *receiver)
{
    receiver->buffers = gs_allocate((size_t)GS_RECEIVE_BUFFERS * GS_RECEIVE_BYTES);
    for (uint32_t i = 0; i < GS_RECEIVE_BUFFERS; i++) {
        receiver->parts[i].iov_base = receiver->buffers + (size_t)i * GS_RECEIVE_BYTES;
        receiver->parts[i].iov_len = GS_RECEIVE_BYTES;
        receiver->messages[i].header.msg_iov = &receiver->parts[i];
        receiver->messages[i].header.msg_iovlen = 1;
        receiver->messages[i].header.msg_control = receiver->controls[i];
        receiver->messages[i].header.msg_controllen = GS_CONTROL_BYTES;
    }
}

static gs_end_status open_descriptors(gs_receiver *receiver, const gs_receiver_words *words)
{
    if (gs_wake_open(&receiver->stop) < 0 || gs_wake_open(&receiver->wake) < 0)
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
    pthread_mutex_init(&receiver->running, NULL);
    receiver->sockets[0] = receiver->sockets[1] = -1;
    receiver->stop = receiver->wake = (gs_wake){.reader = -1, .writer = -1};
    open_buffers(receiver);
    if (words->keep == GS_KEEP_RING)
        gs_sample_ring_open(&receiver->ring, words->ring_events, words->option_bytes);
    gs_end_status status = GS_END_NO_MEMORY;
    bool adopts = words->accepts_unknown && words->keep != GS_KEEP_COUNT;
    if (gs_expected_open(&receiver->expected, words->variables_max,
                         adopts ? words->variables_max : 0, words->ring_expiry_ns))
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
    gs_wake_close(&receiver->stop);
    gs_wake_close(&receiver->wake);
}

void gs_receiver_close(gs_receiver *receiver)
{
    gs_receiver_shut(receiver);
    gs_expected_close(&receiver->expected);
    pthread_mutex_destroy(&receiver->running);
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
    struct pollfd wake = {.fd = receiver->wake.reader, .events = POLLIN};
    if (poll(&wake, 1, timeout_ms) <= 0 || gs_sample_ring_ready(&receiver->ring) != 0)
        return gs_sample_ring_ready(&receiver->ring) != 0;
    gs_wake_clear(&receiver->wake);
    if (gs_sample_ring_ready(&receiver->ring) == 0)
        return false;
    gs_wake_signal(&receiver->wake); /* Those that came meanwhile were signalled too early. */
    return true;
}

gs_sample_ring *gs_receiver_ring(gs_receiver *receiver)
{
    return &receiver->ring;
}

int gs_receiver_wake_fd(const gs_receiver *receiver)
{
    return receiver->wake.reader;
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
    return (uint64_t)gs_lost(receiver->sockets[GS_PORT_DATA]) +
           gs_lost(receiver->sockets[GS_PORT_URGENT]);
}

uint64_t gs_receiver_latency(const gs_receiver *receiver, uint32_t bucket)
{
    return gs_read(&receiver->latency.buckets[bucket]);
}

uint64_t gs_receiver_cpu_ns(gs_receiver *receiver)
{
    pthread_mutex_lock(&receiver->running);
    uint64_t cpu_ns = receiver->cpu_ns_before;
    if (receiver->is_running)
        cpu_ns += thread_cpu_ns(receiver);
    pthread_mutex_unlock(&receiver->running);
    return cpu_ns;
}
