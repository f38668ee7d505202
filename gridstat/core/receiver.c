#include "receiver.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "channel.h"
#include "event.h"
#include "expected.h"
#include "loop.h"
#include "memory.h"
#include "platform.h"
#include "sources.h"

#define URGENT_CALLS_MAX 16U
#define PLAIN_CALLS_MAX  16U
#define EVENTS_AHEAD     32

/* An opened incoming channel. */
typedef struct {
    uint32_t channel_id; /* Atomic; 0: none. */
    bool is_sealed;
    gs_source_state state;
    uint64_t host[2]; /* Host that sends on it; another host is accepted only after a silence. */
    uint64_t host_heard_ns;
} gs_known_source;

struct gs_receiver {
    gs_keep keep;
    bool accepts_unknown, only_sources, is_posix;
    bool is_running; /* Atomic; changed under `running`. */
    int sockets[GS_PORTS];
    gs_wake stop, wake; /* `stop` wakes the thread, `wake` the reader. */
    uint32_t fork_generation;
    pthread_mutex_t running; /* Held to start and stop; the thread never takes it. */
    pthread_t thread;
    uint64_t cpu_ns_before; /* Processor time of threads that have ended. */
    bool must_stop;         /* Atomic. */
    uint64_t *page;
    gs_attention attention;
    uint64_t looked_ns; /* The steady clock when the thread last read it. */
    gs_known_source sources[GS_RECEIVER_SOURCES];
    uint32_t source_count; /* Atomic: one more than the highest index ever used. */
    uint32_t source;     /* Index of the current datagram's source; GS_RECEIVER_SOURCES: unknown. */
    uint64_t sender[2];  /* Host of the current message. */
    gs_now now;          /* Wall clock for stamps and latencies, steady clock for verdicts. */
    uint64_t arrived_ns; /* When the kernel received the current message, by the steady clock. */
    uint64_t batch
        [GS_RECEIVED_COUNTERS]; /* Counts of this receive call, added to `counters` at its end. */
    gs_counter counters[GS_RECEIVED_COUNTERS];
    gs_histogram latency;
    gs_expected expected;
    gs_sample_ring ring;
    uint8_t *buffers;
    gs_message messages[GS_RECEIVE_BUFFERS];
    struct iovec parts[GS_RECEIVE_BUFFERS];
    struct sockaddr_storage senders[GS_RECEIVE_BUFFERS];
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

/* False when the ring is full. */
static inline bool deliver(gs_receiver *receiver, const gs_sample *sample, const uint8_t *event)
{
    if (receiver->keep == GS_KEEP_RING && !gs_sample_ring_add(&receiver->ring, sample, event)) {
        receiver->batch[GS_RECEIVED_RING_FULL]++;
        return false;
    }
    receiver->batch[GS_RECEIVED_DELIVERED]++;
    /* An event with an untrusted or replayed stamp has no meaningful latency. */
    if ((sample->flags & GS_UNTIMELY) == 0) {
        uint64_t latency_ns = sample->received_ns - sample->created_ns;
        bool is_ahead = sample->created_ns > sample->received_ns;
        gs_histogram_add(&receiver->latency, is_ahead ? 0 : latency_ns, 1);
    }
    return true;
}

/* Deliver every copy of a variable that was not announced; keep its newest value if a place is
 * free. */
static void receive_adopted(gs_receiver *receiver, const gs_sample *sample, const uint8_t *event)
{
    bool keeps_newest = receiver->keep != GS_KEEP_COUNT;
    gs_expected_variable *variable = gs_expected_adopt(&receiver->expected, sample->variable_id);
    if (variable != NULL)
        gs_expected_accept_aperiodic(&receiver->expected, variable, sample,
                                     receiver->now.steady_ns);
    else
        receiver->batch[GS_RECEIVED_NEWEST_FULL] += keeps_newest;
    deliver(receiver, sample, event);
}

static inline gs_verdict judge(gs_receiver *receiver, gs_expected_variable *variable,
                               const gs_law *law, const gs_sample *sample, int64_t *slot)
{
    *slot = 0;
    if (__builtin_expect(!law->is_periodic, 0))
        return gs_expected_accept_aperiodic(&receiver->expected, variable, sample,
                                            receiver->now.steady_ns);
    *slot = gs_slot_of(sample->created_ns, &law->period);
    return gs_expected_accept(variable, law, sample, *slot, receiver->arrived_ns,
                              receiver->keep != GS_KEEP_COUNT);
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
    const gs_law *law = variable == NULL ? NULL : gs_expected_law(variable);
    if (__builtin_expect(law == NULL, 0)) {
        receive_adopted(receiver, &sample, event);
        return;
    }
    gs_ledger *ledger = gs_expected_ledger(&receiver->expected, variable);
    if (ledger != NULL)
        gs_ledger_copy(ledger, receiver->source);
    int64_t slot;
    gs_verdict verdict = judge(receiver, variable, law, &sample, &slot);
    if (ledger != NULL && verdict <= GS_DUPLICATE &&
        __atomic_load_n(&receiver->source_count, __ATOMIC_RELAXED) > 1)
        gs_ledger_copy_by(ledger, law, &sample, receiver->source,
                          (gs_copy_of){.slot = slot, .is_first = verdict == GS_ACCEPTED});
    if (__builtin_expect(verdict == GS_ACCEPTED, 1)) {
        bool has_room = deliver(receiver, &sample, event);
        if (ledger != NULL)
            gs_ledger_first(ledger, law, &sample, slot, has_room);
    } else if (verdict == GS_POLICED_JUMP) {
        receiver->batch[GS_RECEIVED_POLICED_JUMP]++;
    } else if (verdict == GS_BEYOND) {
        receiver->batch[GS_RECEIVED_TOO_OLD]++;
        if (ledger != NULL)
            gs_ledger_too_old(ledger, receiver->source);
    } else {
        receiver->batch[GS_RECEIVED_DUPLICATE]++;
        if (ledger != NULL)
            gs_add(&ledger->duplicate, 1);
    }
}

static inline void prefetch_ledger(const gs_receiver *receiver,
                                   const gs_expected_variable *variable)
{
    const gs_variable_table *announced = &receiver->expected.announced;
    size_t place = ((uintptr_t)variable - (uintptr_t)announced->variables) / sizeof *variable;
    if (place < announced->places_max) { /* Else it is an adopted one. */
        __builtin_prefetch(&receiver->expected.ledgers[place], 1);
        if (receiver->source < GS_COPY_SOURCES)
            __builtin_prefetch(receiver->expected.ledgers[place].copies, 1);
    }
}

/* Two passes over a few events at a time: the first prefetches the memory that the second reads. */
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
                __builtin_prefetch(&variable->law, 1);
                if (receiver->expected.ledgers != NULL)
                    prefetch_ledger(receiver, variable);
            }
            events[count] = event;
            variables[count++] = variable;
            event += gs_event_bytes(event);
        }
        for (uint32_t i = 0; i < count; i++)
            receive_event(receiver, variables[i], events[i]);
    }
}

/* A linear search: there are few sources, and datagrams of one source often follow each other. A
 * place whose channel id is 0 is free, whatever a datagram says: its keys may be gone. */
static uint32_t source_of(const gs_receiver *receiver, uint32_t channel_id)
{
    if (channel_id == 0)
        return GS_RECEIVER_SOURCES;
    uint32_t count = __atomic_load_n(&receiver->source_count, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < count; i++)
        if (__atomic_load_n(&receiver->sources[i].channel_id, __ATOMIC_ACQUIRE) == channel_id)
            return i;
    return GS_RECEIVER_SOURCES;
}

/* Note the sender's address without its port, and reset the message for the next address. */
static void note_sender(gs_receiver *receiver, struct msghdr *header)
{
    const struct sockaddr_storage *from = header->msg_name;
    receiver->sender[0] = receiver->sender[1] = 0;
    if (from->ss_family == AF_INET6)
        memcpy(receiver->sender, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
    else if (from->ss_family == AF_INET)
        memcpy(receiver->sender, &((const struct sockaddr_in *)from)->sin_addr, 4);
    header->msg_namelen = sizeof *from;
}

/* True if the current datagram comes from an opened source and from the host that sends on it.
 * While that host sends, no other host is accepted, even if it knows the channel id. */
static bool is_from_source(gs_receiver *receiver)
{
    if (receiver->source == GS_RECEIVER_SOURCES)
        return false;
    gs_known_source *source = &receiver->sources[receiver->source];
    if (source->is_sealed) /* Its datagrams are authentic, wherever they come from. */
        return true;
    uint64_t now_ns = receiver->now.steady_ns;
    bool is_same = source->host[0] == receiver->sender[0] && source->host[1] == receiver->sender[1];
    if (!is_same && source->host_heard_ns != 0 && now_ns - source->host_heard_ns < GS_QUIET_NS)
        return false;
    source->host[0] = receiver->sender[0];
    source->host[1] = receiver->sender[1];
    source->host_heard_ns = now_ns;
    return true;
}

static bool drop_malformed(gs_receiver *receiver, gs_form form)
{
    receiver->batch[GS_RECEIVED_IN]++;
    receiver->batch[GS_RECEIVED_MALFORMED]++;
    receiver->batch[GS_RECEIVED_MALFORMED + (uint32_t)form]++;
    return false;
}

static bool drop_sealed(gs_receiver *receiver, gs_received reason)
{
    receiver->batch[reason]++;
    return false;
}

static bool is_sealed_source(const gs_receiver *receiver)
{
    return receiver->source != GS_RECEIVER_SOURCES && receiver->sources[receiver->source].is_sealed;
}

/* Open a sealed datagram and find its source. Before it has proved authentic, nothing is counted
 * but why it was dropped. */
static __attribute__((noinline)) bool open_sealed(gs_receiver *receiver, uint32_t port,
                                                  uint8_t *datagram, size_t bytes,
                                                  gs_datagram *read)
{
    gs_form form = gs_sealed_read(datagram, bytes, read);
    if (form != GS_WELL_FORMED)
        return drop_malformed(receiver, form);
    receiver->source = source_of(receiver, read->channel_id);
    if (!is_sealed_source(receiver))
        return drop_sealed(receiver, GS_RECEIVED_SEALED_UNKNOWN_CHANNEL);
    gs_opening *opening = &receiver->sources[receiver->source].state.opening;
    gs_authenticity found = gs_opening_open(opening, datagram, port);
    if (found != GS_SEAL_AUTHENTIC)
        return drop_sealed(receiver, GS_RECEIVED_SEALED_UNKNOWN_CHANNEL + (gs_received)found);
    form = gs_events_read(datagram, read);
    return form == GS_WELL_FORMED || drop_malformed(receiver, form);
}

/* Check a datagram and find its source; false: it was dropped. */
static inline bool read_datagram(gs_receiver *receiver, uint32_t port, uint8_t *datagram,
                                 size_t bytes, gs_datagram *read)
{
    gs_form form = gs_datagram_read(datagram, bytes, GS_VERSIONS_PLAIN, read);
    if (form == GS_MALFORMED_VERSION && datagram[0] == GS_VERSION_SEALED)
        return open_sealed(receiver, port, datagram, bytes, read);
    if (form != GS_WELL_FORMED)
        return drop_malformed(receiver, form);
    receiver->source = source_of(receiver, read->channel_id);
    if (is_sealed_source(receiver))
        return drop_sealed(receiver, GS_RECEIVED_SEALED_PLAIN);
    return true;
}

static void receive_datagram(gs_receiver *receiver, uint32_t port, uint8_t *datagram, size_t bytes)
{
    gs_datagram read;
    receiver->batch[GS_RECEIVED_DATAGRAMS]++;
    receiver->batch[GS_RECEIVED_BYTES] += bytes;
    if (!read_datagram(receiver, port, datagram, bytes, &read))
        return;
    receiver->batch[GS_RECEIVED_IN] += read.event_count;
    receiver->batch[GS_RECEIVED_PROBES] += read.event_count == 0;
    if (receiver->only_sources && !is_from_source(receiver)) {
        receiver->batch[GS_RECEIVED_POLICED_SOURCE] += read.event_count;
        return;
    }
    if (receiver->source != GS_RECEIVER_SOURCES)
        gs_source_note(&receiver->sources[receiver->source].state, &read, port,
                       receiver->now.steady_ns);
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

/* Return when the kernel received the message; 0: unknown. */
static uint64_t receive_message(gs_receiver *receiver, uint32_t port, gs_message *message)
{
    uint8_t *buffer = message->header.msg_iov->iov_base;
    size_t bytes = message->bytes;
    /* The kernel may have joined several datagrams of one length. */
    gs_ancillary found = gs_read_ancillary(&message->header);
    uint64_t arrived_ns = gs_taken_until(found.arrived_ns, receiver->now);
    receiver->arrived_ns = arrived_ns != 0 ? arrived_ns : receiver->now.steady_ns;
    note_sender(receiver, &message->header);
    size_t stride = found.segment_bytes != 0 ? found.segment_bytes : bytes;
    if (bytes == 0)
        receive_datagram(receiver, port, buffer, 0);
    for (size_t at = 0; at < bytes; at += stride)
        receive_datagram(receiver, port, buffer + at, bytes - at < stride ? bytes - at : stride);
    return found.arrived_ns;
}

/* True when more may be waiting; then every message that came before `taken_ns` has been taken. */
static bool receive_batch(gs_receiver *receiver, uint32_t port, uint64_t *taken_ns)
{
    *taken_ns = receiver->looked_ns; /* Read before the call, as in `loop.c`. */
    int count = gs_receive(receiver->sockets[port], receiver->messages, GS_RECEIVE_BUFFERS,
                           receiver->is_posix);
    if (count <= 0)
        return false;
    uint64_t arrived_ns = 0;
    receiver->now = gs_now_read();
    receiver->looked_ns = receiver->now.steady_ns;
    for (int i = 0; i < count; i++)
        arrived_ns = receive_message(receiver, port, &receiver->messages[i]);
    finish_call(receiver);
    if (count < (int)GS_RECEIVE_BUFFERS)
        return false;
    *taken_ns = gs_taken_until(arrived_ns, receiver->now);
    return true;
}

static uint64_t receive(gs_receiver *receiver, uint32_t port, uint32_t calls_max)
{
    uint64_t taken_ns = receiver->looked_ns;
    for (uint32_t i = 0; i < calls_max; i++)
        if (!receive_batch(receiver, port, &taken_ns))
            break;
    return taken_ns;
}

/* --- The thread -------------------------------------------------------------------------- */

/* One data call a round, because urgent events may have come meanwhile; several where a call
 * returns only one datagram. */
static void receive_round(gs_receiver *receiver, const struct pollfd *ready)
{
    uint32_t data_calls_max = receiver->is_posix || !GS_LINUX ? PLAIN_CALLS_MAX : 1;
    /* A port that was not ready was empty at a later time than this. */
    uint64_t urgent_ns = receiver->looked_ns, data_ns = receiver->looked_ns;
    if (ready[0].revents != 0)
        urgent_ns = receive(receiver, GS_PORT_URGENT, URGENT_CALLS_MAX);
    if (ready[1].revents != 0)
        data_ns = receive(receiver, GS_PORT_DATA, data_calls_max);
    gs_attention_note(&receiver->attention, urgent_ns < data_ns ? urgent_ns : data_ns);
    if (ready[0].revents == 0 && ready[1].revents == 0)
        receiver->looked_ns = gs_clock_ns(CLOCK_MONOTONIC);
}

/* Without sources there is no silence to detect. */
static uint64_t sleep_ns(const gs_receiver *receiver)
{
    uint32_t sources = __atomic_load_n(&receiver->source_count, __ATOMIC_ACQUIRE);
    return sources != 0 ? GS_LOOK_NS : UINT64_MAX;
}

static void *run(void *argument)
{
    gs_receiver *receiver = argument;
    struct pollfd ready[3] = {
        {.fd = receiver->sockets[GS_PORT_URGENT], .events = POLLIN},
        {.fd = receiver->sockets[GS_PORT_DATA], .events = POLLIN},
        {.fd = receiver->stop.reader, .events = POLLIN},
    };
    receiver->looked_ns = gs_clock_ns(CLOCK_MONOTONIC);
    gs_attention_begin(&receiver->attention, receiver->looked_ns);
    while (!__atomic_load_n(&receiver->must_stop, __ATOMIC_ACQUIRE)) {
        gs_expected_leave(&receiver->expected);
        if (gs_wait(ready, 3, sleep_ns(receiver)) < 0)
            continue;
        gs_expected_enter(&receiver->expected);
        if (ready[2].revents != 0)
            gs_wake_clear(&receiver->stop);
        receive_round(receiver, ready);
    }
    gs_expected_leave(&receiver->expected);
    return NULL;
}

static gs_end_status start(gs_receiver *receiver)
{
    gs_wake_clear(&receiver->stop);
    __atomic_store_n(&receiver->must_stop, false, __ATOMIC_RELEASE);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* The thread inherits the mask. */
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

/* Of several callers, one ends the thread; the others wait until it has ended. */
void gs_receiver_stop(gs_receiver *receiver)
{
    if (gs_receiver_is_foreign(receiver))
        return;
    pthread_mutex_lock(&receiver->running);
    if (receiver->is_running) {
        uint64_t cpu_ns = thread_cpu_ns(receiver);
        __atomic_store_n(&receiver->must_stop, true, __ATOMIC_RELEASE);
        gs_wake_signal(&receiver->stop);
        pthread_join(receiver->thread, NULL);
        receiver->cpu_ns_before += cpu_ns;
        __atomic_store_n(&receiver->is_running, false, __ATOMIC_RELEASE);
        gs_wake_signal(&receiver->wake);
    }
    pthread_mutex_unlock(&receiver->running);
}

/* --- Opening and closing ----------------------------------------------------------------- */

static gs_end_status open_ports(gs_receiver *receiver, const gs_receiver_options *options)
{
    for (uint32_t port = 0; port < GS_PORTS; port++) {
        gs_endpoint own = {options->host, options->ports[port], options->is_posix};
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
        receiver->messages[i].header.msg_name = &receiver->senders[i];
        receiver->messages[i].header.msg_namelen = sizeof receiver->senders[i];
    }
}

static gs_end_status open_descriptors(gs_receiver *receiver, const gs_receiver_options *options)
{
    if (gs_wake_open(&receiver->stop) < 0 || gs_wake_open(&receiver->wake) < 0)
        return gs_end_status_now();
    return open_ports(receiver, options);
}

gs_end_status gs_receiver_open(const gs_receiver_options *options, gs_receiver **opened)
{
    gs_receiver *receiver = gs_allocate(sizeof *receiver);
    receiver->keep = options->keep;
    receiver->accepts_unknown = options->accepts_unknown;
    receiver->only_sources = options->only_sources;
    receiver->is_posix = options->is_posix;
    receiver->page = options->page;
    receiver->fork_generation = gs_fork_generation();
    pthread_mutex_init(&receiver->running, NULL);
    receiver->sockets[0] = receiver->sockets[1] = -1;
    receiver->stop = receiver->wake = (gs_wake){.reader = -1, .writer = -1};
    open_buffers(receiver);
    if (options->keep == GS_KEEP_RING)
        gs_sample_ring_open(&receiver->ring, options->ring_events, options->option_bytes);
    gs_end_status status = GS_END_NO_MEMORY;
    bool adopts = options->accepts_unknown && options->keep != GS_KEEP_COUNT;
    gs_expected_options expected = {
        .variables_max = options->variables_max,
        .adopted_max = adopts ? options->variables_max : 0,
        .ring_expiry_ns = options->ring_expiry_ns,
        .has_ledgers = options->keep != GS_KEEP_COUNT,
    };
    if (gs_expected_open(&receiver->expected, &expected))
        status = open_descriptors(receiver, options);
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
    for (uint32_t i = 0; i < GS_RECEIVER_SOURCES; i++)
        gs_opening_close(&receiver->sources[i].state.opening);
    gs_expected_close(&receiver->expected);
    pthread_mutex_destroy(&receiver->running);
    gs_sample_ring_close(&receiver->ring);
    gs_release(receiver->buffers);
    gs_release(receiver);
}

/* --- Requests of other threads ----------------------------------------------------------- */

bool gs_receiver_is_running(const gs_receiver *receiver)
{
    return __atomic_load_n(&receiver->is_running, __ATOMIC_ACQUIRE);
}

bool gs_receiver_is_foreign(const gs_receiver *receiver)
{
    return receiver->fork_generation != gs_fork_generation();
}

bool gs_receiver_expect(gs_receiver *receiver, uint32_t variable_id, const gs_law *law)
{
    return gs_expected_add(&receiver->expected, variable_id, law);
}

bool gs_receiver_forget(gs_receiver *receiver, uint32_t variable_id)
{
    return gs_expected_forget(&receiver->expected, variable_id);
}

bool gs_receiver_ledger(gs_receiver *receiver, uint32_t variable_id, gs_ledger_facts *facts)
{
    return gs_expected_read_ledger(&receiver->expected, variable_id, facts);
}

bool gs_receiver_newest(gs_receiver *receiver, uint32_t variable_id, gs_sample *sample)
{
    return gs_expected_newest(&receiver->expected, variable_id, sample);
}

/* --- Sources ----------------------------------------------------------------------------- */

static gs_known_source *find_source(gs_receiver *receiver, uint32_t channel_id)
{
    for (uint32_t i = 0; i < GS_RECEIVER_SOURCES; i++)
        if (receiver->sources[i].channel_id == channel_id)
            return &receiver->sources[i];
    return NULL;
}

/* Take the first free index. The thread no longer holds it: `gs_receiver_close_source` has
 * waited. */
static bool open_source(gs_receiver *receiver, uint32_t channel_id, bool is_sealed)
{
    if (find_source(receiver, channel_id) != NULL)
        return true;
    gs_known_source *source = find_source(receiver, 0);
    if (source == NULL)
        return false;
    memset(&source->state, 0, sizeof source->state);
    source->host_heard_ns = 0;
    source->is_sealed = is_sealed;
    source->state.opened_ns = gs_clock_ns(CLOCK_MONOTONIC);
    __atomic_store_n(&source->channel_id, channel_id, __ATOMIC_RELEASE);
    uint32_t count = (uint32_t)(source - receiver->sources) + 1;
    if (count > receiver->source_count)
        __atomic_store_n(&receiver->source_count, count, __ATOMIC_RELEASE);
    gs_wake_signal(
        &receiver->stop); /* With a source open the thread sleeps only for short times. */
    return true;
}

bool gs_receiver_open_source(gs_receiver *receiver, uint32_t channel_id, bool is_sealed)
{
    pthread_mutex_lock(&receiver->expected.adding);
    bool has_room = open_source(receiver, channel_id, is_sealed);
    pthread_mutex_unlock(&receiver->expected.adding);
    return has_room;
}

bool gs_receiver_close_source(gs_receiver *receiver, uint32_t channel_id)
{
    pthread_mutex_lock(&receiver->expected.adding);
    gs_known_source *source = find_source(receiver, channel_id);
    if (source != NULL) {
        __atomic_store_n(&source->channel_id, 0, __ATOMIC_RELEASE);
        gs_expected_settle(&receiver->expected);
        gs_opening_close(&source->state.opening);
    }
    pthread_mutex_unlock(&receiver->expected.adding);
    return source != NULL;
}

/* --- Keys -------------------------------------------------------------------------------- */

/* The opening of a sealed source; NULL: there is none. */
static gs_opening *opening_of(gs_receiver *receiver, uint32_t channel_id)
{
    gs_known_source *source = find_source(receiver, channel_id);
    return source == NULL || !source->is_sealed ? NULL : &source->state.opening;
}

bool gs_receiver_is_sealed(gs_receiver *receiver, uint32_t channel_id)
{
    pthread_mutex_lock(&receiver->expected.adding);
    bool is_sealed = opening_of(receiver, channel_id) != NULL;
    pthread_mutex_unlock(&receiver->expected.adding);
    return is_sealed;
}

bool gs_receiver_set_keys(gs_receiver *receiver, uint32_t channel_id, gs_seal_backend backend,
                          const gs_key_spec *specs, uint32_t count)
{
    pthread_mutex_lock(&receiver->expected.adding);
    gs_opening *opening = opening_of(receiver, channel_id);
    gs_key_set *fresh = opening == NULL ? NULL : gs_key_set_make(backend, specs, count, opening);
    bool has_all = fresh != NULL && fresh->count == count;
    if (fresh != NULL) {
        gs_key_set *old = gs_opening_swap(opening, fresh);
        gs_expected_settle(&receiver->expected);
        gs_key_set_release(old);
    }
    pthread_mutex_unlock(&receiver->expected.adding);
    return has_all;
}

bool gs_receiver_keys(gs_receiver *receiver, uint32_t channel_id, gs_epochs_seen *seen)
{
    pthread_mutex_lock(&receiver->expected.adding);
    gs_opening *opening = opening_of(receiver, channel_id);
    if (opening != NULL)
        gs_opening_take(opening, seen);
    pthread_mutex_unlock(&receiver->expected.adding);
    return opening != NULL;
}

uint32_t gs_receiver_source(gs_receiver *receiver, uint32_t place, gs_source_facts *facts)
{
    pthread_mutex_lock(&receiver->expected.adding);
    const gs_known_source *source = &receiver->sources[place];
    *facts = gs_source_read(&source->state, &receiver->attention);
    uint32_t channel_id = source->channel_id;
    pthread_mutex_unlock(&receiver->expected.adding);
    return channel_id;
}

uint32_t gs_receiver_source_count(const gs_receiver *receiver)
{
    return __atomic_load_n(&receiver->source_count, __ATOMIC_ACQUIRE);
}

/* --- Batches and figures ----------------------------------------------------------------- */

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
    gs_wake_signal(
        &receiver->wake); /* The signal of samples that came meanwhile was just cleared. */
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
    return (uint64_t)gs_socket_dropped(receiver->sockets[GS_PORT_DATA]) +
           gs_socket_dropped(receiver->sockets[GS_PORT_URGENT]);
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
