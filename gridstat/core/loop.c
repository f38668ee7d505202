#include "loop.h"

#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "egress.h"
#include "memory.h"
#include "platform.h"

#define RECEIVE_BUFFER_BYTES (64 << 20)
#define NS_PER_S             1000000000ULL
#define URGENT_CALLS_MAX     2
#define COALESCED_CALL       4U
#define PROBES_A_ROUND       4U /* So that an event waits for at most these. */

typedef struct {
    gs_message messages[GS_RECEIVE_BUFFERS];
    struct iovec parts[GS_RECEIVE_BUFFERS];
    char control[GS_RECEIVE_BUFFERS][GS_CONTROL_BYTES] __attribute__((aligned(16)));
} batch;

/* Result of one message of the kernel: when it came, and how many copies were sent. */
typedef struct {
    uint64_t arrived_ns;
    uint64_t copies;
} outcome;

static outcome forward_message(gs_loop *loop, const gs_view *view, gs_arrival arrival,
                               gs_message *message, gs_now now)
{
    gs_core *core = loop->core;
    gs_ancillary found = gs_read_ancillary(&message->header);
    uint32_t *dropped = &loop->kernel_dropped[arrival.port];
    if (found.dropped != *dropped) {
        gs_add(&core->counters.kernel_dropped, (uint32_t)(found.dropped - *dropped));
        *dropped = found.dropped;
    }
    uint64_t before = core->copies;
    arrival.at = message->header.msg_iov->iov_base;
    arrival.bytes = message->bytes;
    arrival.step = found.segment_bytes != 0 ? found.segment_bytes : message->bytes;
    arrival.arrived_ns = gs_taken_until(found.arrived_ns, now);
    gs_forward(core, view, &arrival, now);
    return (outcome){found.arrived_ns, core->copies - before};
}

/* Record latencies as S3 §5.2.1 measures them: from the kernel's receive stamp to just before the
 * send. Returns the time of the send by the steady clock. The stamps are the wall clock's, which
 * may be set meanwhile; so it is read once a call. Copies for paced channels are recorded when they
 * are sent. */
static uint64_t note_latencies(gs_core *core, const outcome *outcomes, int count, gs_now now)
{
    uint64_t steady_ns = gs_clock_ns(CLOCK_MONOTONIC);
    uint64_t sent_ns = now.wall_ns + (steady_ns - now.steady_ns);
    for (int i = 0; i < count; i++) {
        uint64_t arrived_ns = outcomes[i].arrived_ns;
        if (arrived_ns != 0 && outcomes[i].copies != 0)
            gs_histogram_add(&core->latency, sent_ns > arrived_ns ? sent_ns - arrived_ns : 0,
                             outcomes[i].copies);
    }
    return steady_ns;
}

static void prepare(gs_loop *loop, batch *received)
{
    for (int i = 0; i < GS_RECEIVE_BUFFERS; i++) {
        received->parts[i].iov_base = loop->buffers + (size_t)i * GS_RECEIVE_BYTES;
        received->parts[i].iov_len = GS_RECEIVE_BYTES;
        received->messages[i].header.msg_iov = &received->parts[i];
        received->messages[i].header.msg_iovlen = 1;
        received->messages[i].header.msg_control = received->control[i];
        received->messages[i].header.msg_controllen = GS_CONTROL_BYTES;
    }
}

/* Many messages a call when they are small; few when the kernel has coalesced them, so that an
 * urgent event waits for at most some hundred kilobytes. */
static void choose_next_call(gs_loop *loop, size_t bytes)
{
    loop->next_call = bytes > GS_RECEIVE_BYTES / 2 ? COALESCED_CALL : GS_RECEIVE_BUFFERS;
}

static uint64_t forwarded_events(const gs_core_counters *counters)
{
    return gs_read(&counters->dispatched) + gs_read(&counters->not_due);
}

/* Note a call of the data port that forwarded nothing: either all of it was rejected, or something
 * was believed. Rejected datagrams of a rare stray sender are no flood. After a call that came back
 * full the port does not rest, since more may be waiting: a rest must never bound what a router
 * drains. */
static void note_unforwarded(gs_loop *loop, bool was_full, uint64_t now_ns)
{
    const gs_core_counters *counters = &loop->core->counters;
    uint64_t plain = gs_read(&counters->unknown_channel), sealed = 0;
    for (uint32_t i = 1; i < GS_MALFORMED_REASONS; i++)
        plain += gs_read(&counters->malformed[i]);
    for (const gs_counter *one = &counters->sealed_unknown_channel; one <= &counters->sealed_plain;
         one++)
        sealed += gs_read(one);
    uint64_t believed = gs_read(&counters->in) - plain, rejected = plain + sealed;
    bool was_rejected = rejected != loop->rejected && believed == loop->believed;
    loop->is_flooded = was_rejected && !was_full && now_ns - loop->rejected_ns < GS_FLOOD_NS;
    loop->rejected_ns = was_rejected ? now_ns : 0;
    loop->rejected = rejected;
    loop->believed = believed;
}

/* The data port was empty: after a while the flood is over. */
static void note_empty(gs_loop *loop)
{
    loop->looked_ns = gs_clock_ns(CLOCK_MONOTONIC);
    if (loop->looked_ns - loop->rejected_ns > GS_POLL_NS)
        loop->is_flooded = false;
}

/* Make one receive call, forward and flush, so that no event waits for others. True when more may
 * be waiting; then every message that came to the port before `taken_ns` has been taken. */
static bool serve(gs_loop *loop, const gs_view *view, uint32_t port, batch *received,
                  uint64_t *taken_ns)
{
    gs_core *core = loop->core;
    outcome outcomes[GS_RECEIVE_BUFFERS];
    uint32_t wanted = loop->next_call;
    *taken_ns = loop->looked_ns; /* Read before the call: the process may be stopped within it. */
    int count = gs_receive(loop->sockets[port], received->messages, wanted, core->limits.is_posix);
    if (count <= 0) {
        if (loop->is_flooded && port == GS_PORT_DATA)
            note_empty(loop);
        return false;
    }
    size_t bytes = 0;
    gs_now now = gs_now_read();
    loop->looked_ns = now.steady_ns;
    uint64_t forwarded = forwarded_events(&core->counters);
    gs_begin_call(core);
    for (int i = 0; i < count; i++) {
        bytes += received->messages[i].bytes;
        outcomes[i] =
            forward_message(loop, view, (gs_arrival){.port = port}, &received->messages[i], now);
    }
    gs_flush(core, note_latencies(core, outcomes, count, now));
    gs_add(&core->counters.receive_calls, 1);
    gs_end_call(core);
    if (__builtin_expect(forwarded_events(&core->counters) == forwarded, 0) && port == GS_PORT_DATA)
        note_unforwarded(loop, count == (int)wanted, now.steady_ns);
    choose_next_call(loop, bytes);
    if (count < (int)wanted)
        return false;
    *taken_ns = gs_taken_until(outcomes[count - 1].arrived_ns, now);
    return true;
}

static void forget_channel(gs_loop *loop)
{
    gs_channel *channel = __atomic_load_n(&loop->forget, __ATOMIC_ACQUIRE);
    if (channel != NULL) {
        gs_forget(loop->core, channel);
        __atomic_store_n(&loop->forget, NULL, __ATOMIC_RELEASE);
    }
}

static void serve_writer(gs_loop *loop)
{
    char bytes[64];
    while (read(loop->wake[0], bytes, sizeof bytes) > 0)
        ;
    forget_channel(loop);
    gs_find_probing(loop->core);
}

/* Return how long the loop may sleep: until a paced line is free, a probe is due, or GS_LOOK_NS
 * have passed. A probe may be late by the little time since the thread read the clock; a line may
 * not. */
static uint64_t sleep_ns(gs_loop *loop)
{
    const gs_core *core = loop->core;
    if (core->wake_ns != GS_IDLE_NS)
        loop->looked_ns = gs_clock_ns(CLOCK_MONOTONIC);
    uint64_t until_ns = loop->looked_ns + GS_LOOK_NS;
    if (core->wake_ns < until_ns)
        until_ns = core->wake_ns;
    if (core->probe_ns < until_ns)
        until_ns = core->probe_ns;
    return until_ns > loop->looked_ns ? until_ns - loop->looked_ns : 0;
}

/* Serve paced lines and probes, after the events of a round, so that no event waits for them. */
static void tend(gs_loop *loop)
{
    gs_core *core = loop->core;
    if (core->wake_ns != GS_IDLE_NS) {
        loop->looked_ns = gs_clock_ns(CLOCK_MONOTONIC);
        if (core->wake_ns <= loop->looked_ns)
            gs_pump(core, loop->looked_ns);
    }
    if (core->probe_ns <= loop->looked_ns)
        gs_probe(core, loop->looked_ns, PROBES_A_ROUND);
}

static void serve_round(gs_loop *loop, const struct pollfd *ready, batch *received)
{
    gs_core *core = loop->core;
    /* A port that was not ready was empty at a later time than this. */
    uint64_t urgent_ns = loop->looked_ns, data_ns = loop->looked_ns;
    gs_view view = gs_enter(core);
    if (ready[2].revents != 0)
        serve_writer(loop);
    /* Urgent events first, but only so many: a flood of them must not starve the streams. */
    for (int i = 0; i < URGENT_CALLS_MAX && ready[0].revents != 0; i++)
        if (!serve(loop, &view, GS_PORT_URGENT, received, &urgent_ns))
            break;
    if (ready[1].revents != 0)
        serve(loop, &view, GS_PORT_DATA, received, &data_ns);
    gs_attention_note(&core->attention, urgent_ns < data_ns ? urgent_ns : data_ns);
    if (ready[0].revents == 0 && ready[1].revents == 0)
        loop->looked_ns = gs_clock_ns(CLOCK_MONOTONIC);
    tend(loop);
}

/* Charge the last round to the time of polling. False: the rest of the window is for others. */
static bool may_poll(gs_loop *loop, uint64_t round_ns)
{
    if (loop->looked_ns - loop->poll_window_ns >= GS_POLL_WINDOW_NS) {
        loop->poll_window_ns = loop->looked_ns;
        loop->polled_ns = 0;
    }
    loop->polled_ns += loop->looked_ns - round_ns;
    return loop->may_poll && loop->polled_ns < GS_POLLED_NS;
}

/* Wait until a port is ready, or the thread is due. The data port, flooded, is looked at without
 * sleeping, or after a rest, whether it is ready or not; the urgent one never rests. */
static int wait_round(gs_loop *loop, struct pollfd *ready, uint64_t round_ns)
{
    uint64_t timeout_ns = sleep_ns(loop);
    if (!loop->is_flooded) {
        ready[1].fd = loop->sockets[GS_PORT_DATA];
        return gs_wait(ready, 3, timeout_ns);
    }
    if (may_poll(loop, round_ns)) {
        gs_add(&loop->polls, 1);
        timeout_ns = 0;
    } else {
        gs_add(&loop->rests, 1);
        loop->is_flooded = false;
        timeout_ns = timeout_ns < GS_REST_NS ? timeout_ns : GS_REST_NS;
    }
    ready[1].fd = -1;
    int count = gs_wait(ready, 3, timeout_ns);
    ready[1].revents = POLLIN;
    return count;
}

uint64_t gs_loop_cpu_ns(const gs_loop *loop)
{
    clockid_t clock;
    if (loop->is_running && pthread_getcpuclockid(loop->thread, &clock) == 0)
        return gs_clock_ns(clock);
    return gs_read(&loop->thread_cpu_ns);
}

static void *run(void *argument)
{
    gs_loop *loop = argument;
    batch received = {0};
    prepare(loop, &received);
    struct pollfd ready[3] = {
        {.fd = loop->sockets[GS_PORT_URGENT], .events = POLLIN},
        {.fd = loop->sockets[GS_PORT_DATA], .events = POLLIN},
        {.fd = loop->wake[0], .events = POLLIN},
    };
    gs_wake_exactly();
    loop->looked_ns = gs_clock_ns(CLOCK_MONOTONIC);
    gs_attention_begin(&loop->core->attention, loop->looked_ns);
    gs_find_probing(loop->core);
    uint64_t round_ns = loop->looked_ns;
    while (!__atomic_load_n(&loop->must_stop, __ATOMIC_ACQUIRE)) {
        gs_table_sleep(loop->core->table);
        int count = wait_round(loop, ready, round_ns);
        round_ns = loop->looked_ns;
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            break;
        serve_round(loop, ready, &received);
    }
    forget_channel(loop);
    gs_table_sleep(loop->core->table);
    __atomic_store_n(&loop->has_ended, true, __ATOMIC_RELEASE);
    gs_set(&loop->thread_cpu_ns, gs_clock_ns(CLOCK_THREAD_CPUTIME_ID));
    return NULL;
}

gs_loop *gs_loop_open(gs_core *core)
{
    gs_loop *loop = gs_allocate(sizeof *loop);
    loop->core = core;
    loop->sockets[0] = loop->sockets[1] = -1;
    loop->wake[0] = loop->wake[1] = -1;
    loop->cpu = -1;
    loop->next_call = GS_RECEIVE_BUFFERS;
    loop->may_poll = sysconf(_SC_NPROCESSORS_ONLN) > 1;
    loop->buffers = gs_allocate((size_t)GS_RECEIVE_BUFFERS * GS_RECEIVE_BYTES);
    return loop;
}

static void close_sockets(const int *sockets)
{
    for (int i = 0; i < GS_PORTS; i++)
        if (sockets[i] >= 0)
            close(sockets[i]);
}

void gs_loop_close(gs_loop *loop)
{
    gs_loop_stop(loop);
    close_sockets(loop->sockets);
    gs_release(loop->buffers);
    gs_release(loop);
}

int gs_loop_listen(gs_loop *loop, struct sockaddr_storage addresses[GS_PORTS], socklen_t bytes,
                   uint32_t *failed)
{
    int opened[GS_PORTS] = {-1, -1};
    for (uint32_t port = 0; port < GS_PORTS; port++) {
        socklen_t length = bytes;
        int failure = gs_receiving_socket((struct sockaddr *)&addresses[port], &length,
                                          loop->core->limits.is_posix, &opened[port]);
        if (failure != 0) {
            *failed = port;
            close_sockets(opened);
            return failure;
        }
    }
    close_sockets(loop->sockets);
    memcpy(loop->sockets, opened, sizeof opened);
    return 0;
}

/* Apply processor and priority; the core runs even if the system refuses them. */
static void apply_scheduling(gs_loop *loop)
{
    loop->scheduling_error = 0;
    if (loop->cpu >= 0)
        loop->scheduling_error = gs_pin(loop->thread, loop->cpu);
    if (loop->fifo_priority > 0) {
        struct sched_param requested = {.sched_priority = loop->fifo_priority};
        int refused = pthread_setschedparam(loop->thread, SCHED_FIFO, &requested);
        loop->scheduling_error = refused != 0 ? refused : loop->scheduling_error;
    }
}

int gs_loop_start(gs_loop *loop)
{
    sigset_t all, before;
    if (gs_pipe(loop->wake) < 0)
        return errno;
    loop->must_stop = loop->has_ended = false;
    loop->is_flooded = false;
    /* Signals belong to the interpreter's main thread. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&loop->thread, NULL, run, loop);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure != 0) {
        close(loop->wake[0]);
        close(loop->wake[1]);
        return failure;
    }
    loop->is_running = true;
    loop->process = getpid();
    apply_scheduling(loop);
    return 0;
}

static void wake(const gs_loop *loop)
{
    ssize_t written = write(loop->wake[1], "", 1);
    (void)written; /* A full pipe wakes as well. */
}

uint64_t gs_loop_now_ns(const gs_loop *loop)
{
    return loop->is_running ? gs_clock_ns(CLOCK_MONOTONIC)
                            : gs_read(&loop->core->attention.quiet_ns);
}

void gs_loop_notify(const gs_loop *loop)
{
    if (loop->is_running && loop->process == getpid())
        wake(loop);
}

void gs_loop_stop(gs_loop *loop)
{
    if (!loop->is_running)
        return;
    if (loop->process == getpid()) {
        __atomic_store_n(&loop->must_stop, true, __ATOMIC_RELEASE);
        wake(loop);
        pthread_join(loop->thread, NULL);
    }
    close(loop->wake[0]);
    close(loop->wake[1]);
    loop->is_running = false;
}

void gs_loop_forget(gs_loop *loop, gs_channel *channel)
{
    if (!loop->is_running || loop->process != getpid()) {
        gs_forget(loop->core, channel);
        return;
    }
    __atomic_store_n(&loop->forget, channel, __ATOMIC_RELEASE);
    wake(loop);
    struct timespec nap = {.tv_nsec = 50000};
    while (__atomic_load_n(&loop->forget, __ATOMIC_ACQUIRE) != NULL) {
        if (__atomic_load_n(&loop->has_ended, __ATOMIC_ACQUIRE)) {
            forget_channel(loop); /* The thread has ended and will not do it. */
            return;
        }
        nanosleep(&nap, NULL);
    }
}

/* --- Sockets and clocks, shared with the ends --------------------------------------------- */

bool gs_resolve(const char *host, uint16_t port, struct sockaddr_storage *address, socklen_t *bytes)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found = NULL;
    if (getaddrinfo(host, NULL, &hints, &found) != 0)
        return false;
    memset(address, 0, sizeof *address);
    memcpy(address, found->ai_addr, found->ai_addrlen);
    *bytes = found->ai_addrlen;
    freeaddrinfo(found);
    if (address->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)address)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)address)->sin_port = htons(port);
    return true;
}

uint16_t gs_port_of(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)address)->sin6_port);
    return ntohs(((const struct sockaddr_in *)address)->sin_port);
}

int gs_receiving_socket(struct sockaddr *address, socklen_t *bytes, bool is_posix, int *opened)
{
    int socket_ = gs_udp_socket(address->sa_family);
    if (socket_ < 0)
        return errno;
    /* A plain user gets what net.core.rmem_max allows; `gridstat host` says how much that is. */
    gs_widen(socket_, SO_RCVBUF, RECEIVE_BUFFER_BYTES);
    if (!is_posix)
        gs_request_ancillary(socket_);
    if (bind(socket_, address, *bytes) < 0 || getsockname(socket_, address, bytes) < 0) {
        int failure = errno;
        close(socket_);
        return failure;
    }
    *opened = socket_;
    return 0;
}

uint64_t gs_clock_ns(clockid_t clock)
{
    struct timespec time;
    if (clock_gettime(clock, &time) < 0)
        return 0;
    return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

gs_now gs_now_read(void)
{
    return (gs_now){.wall_ns = gs_clock_ns(CLOCK_REALTIME),
                    .steady_ns = gs_clock_ns(CLOCK_MONOTONIC)};
}

uint64_t gs_taken_until(uint64_t arrived_ns, gs_now now)
{
    uint64_t age_ns = now.wall_ns > arrived_ns ? now.wall_ns - arrived_ns : 0;
    return arrived_ns == 0 || age_ns > now.steady_ns ? 0 : now.steady_ns - age_ns;
}
