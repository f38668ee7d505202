#include "loop.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "egress.h"
#include "memory.h"
#include "platform.h"

#define NS_PER_S         1000000000ULL
#define URGENT_CALLS_MAX 8

typedef struct {
    gs_message messages[GS_RECEIVE_BUFFERS];
    struct iovec parts[GS_RECEIVE_BUFFERS];
    char control[GS_RECEIVE_BUFFERS][GS_CONTROL_BYTES] __attribute__((aligned(16)));
} batch;

/* One message of the kernel, which may hold many datagrams; when it arrived. */
static uint64_t forward_message(gs_loop *loop, const gs_root *root, uint32_t port,
                                gs_message *message, gs_now now)
{
    gs_remarks found = gs_read_remarks(&message->header);
    if (found.dropped != loop->kernel_dropped[port]) {
        gs_add(&loop->core->counters.kernel_dropped,
               (uint32_t)(found.dropped - loop->kernel_dropped[port]));
        loop->kernel_dropped[port] = found.dropped;
    }
    gs_arrival arrival = {
        .at = message->header.msg_iov->iov_base,
        .bytes = message->bytes,
        .step = found.segment_bytes != 0 ? found.segment_bytes : message->bytes,
        .port = port,
    };
    gs_forward(loop->core, root, &arrival, now);
    return found.arrived_ns;
}

static void prepare(gs_loop *loop, batch *received)
{
    for (int i = 0; i < GS_RECEIVE_BUFFERS; i++) {
        received->parts[i].iov_base = loop->buffers + (size_t)i * GS_RECEIVE_BYTES;
        received->parts[i].iov_len = GS_RECEIVE_BYTES;
        received->messages[i].header.msg_iov = &received->parts[i];
        received->messages[i].header.msg_iovlen = 1;
        received->messages[i].header.msg_control = received->control[i];
    }
}

/* One receive call, forwarded and flushed, so that nothing waits for company. */
static bool serve(gs_loop *loop, const gs_root *root, uint32_t port, batch *received)
{
    gs_core *core = loop->core;
    int count = gs_receive(loop->sockets[port], received->messages, GS_RECEIVE_BUFFERS,
                           core->limits.is_posix);
    if (count <= 0)
        return false;
    gs_now now = gs_now_read();
    uint64_t before = gs_read(&core->counters.dispatched), arrived_ns = 0;
    for (int i = 0; i < count; i++) {
        uint64_t at_ns = forward_message(loop, root, port, &received->messages[i], now);
        if (arrived_ns == 0)
            arrived_ns = at_ns;
    }
    gs_flush(core, now.steady_ns);
    gs_add(&core->counters.receive_calls, 1);
    uint64_t dispatched = gs_read(&core->counters.dispatched) - before;
    if (arrived_ns != 0 && dispatched != 0) {
        uint64_t sent_ns = gs_now_read().wall_ns;
        gs_histogram_add(&core->latency, sent_ns > arrived_ns ? sent_ns - arrived_ns : 0,
                         dispatched);
    }
    return count == GS_RECEIVE_BUFFERS;
}

static void answer_writer(gs_loop *loop)
{
    char bytes[64];
    while (read(loop->wake[0], bytes, sizeof bytes) > 0)
        ;
    gs_channel *channel = __atomic_load_n(&loop->forget, __ATOMIC_ACQUIRE);
    if (channel != NULL) {
        gs_forget(loop->core, channel);
        __atomic_store_n(&loop->forget, NULL, __ATOMIC_RELEASE);
    }
}

/* How long the loop may sleep: until a paced line comes free, or for ever. */
static uint64_t sleep_ns(const gs_core *core)
{
    if (core->wake_ns == GS_IDLE_NS)
        return UINT64_MAX;
    uint64_t now_ns = gs_now_read().steady_ns;
    return core->wake_ns > now_ns ? core->wake_ns - now_ns : 0;
}

static void serve_round(gs_loop *loop, const struct pollfd *ready, batch *received)
{
    const gs_root *root = gs_table_enter(loop->core->table);
    if (ready[2].revents != 0)
        answer_writer(loop);
    /* Urgent events first, yet not for ever: a flood of them must not silence the streams. */
    for (int i = 0; i < URGENT_CALLS_MAX && ready[0].revents != 0; i++)
        if (!serve(loop, root, GS_PORT_URGENT, received))
            break;
    if (ready[1].revents != 0)
        serve(loop, root, GS_PORT_DATA, received);
    if (loop->core->wake_ns != GS_IDLE_NS)
        gs_pump(loop->core, gs_now_read().steady_ns);
}

static uint64_t cpu_ns_of(clockid_t clock)
{
    struct timespec time;
    if (clock_gettime(clock, &time) < 0)
        return 0;
    return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

uint64_t gs_loop_cpu_ns(const gs_loop *loop)
{
    clockid_t clock;
    if (loop->is_running && pthread_getcpuclockid(loop->thread, &clock) == 0)
        return cpu_ns_of(clock);
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
    while (!__atomic_load_n(&loop->must_stop, __ATOMIC_ACQUIRE)) {
        gs_table_sleep(loop->core->table);
        int count = gs_wait(ready, 3, sleep_ns(loop->core));
        if (count < 0 && errno != EINTR)
            break;
        if (count <= 0)
            ready[0].revents = ready[1].revents = ready[2].revents = 0;
        serve_round(loop, ready, &received);
    }
    gs_table_sleep(loop->core->table);
    gs_set(&loop->thread_cpu_ns, cpu_ns_of(CLOCK_THREAD_CPUTIME_ID));
    return NULL;
}

gs_loop *gs_loop_open(gs_core *core)
{
    gs_loop *loop = gs_allocate(sizeof *loop);
    loop->core = core;
    loop->sockets[0] = loop->sockets[1] = -1;
    loop->wake[0] = loop->wake[1] = -1;
    loop->cpu = -1;
    loop->buffers = gs_allocate((size_t)GS_RECEIVE_BUFFERS * GS_RECEIVE_BYTES);
    return loop;
}

void gs_loop_close(gs_loop *loop)
{
    gs_loop_stop(loop);
    for (int i = 0; i < GS_PORTS; i++)
        if (loop->sockets[i] >= 0)
            close(loop->sockets[i]);
    gs_release(loop->buffers);
    gs_release(loop);
}

int gs_loop_listen(gs_loop *loop, uint32_t port, struct sockaddr *address, socklen_t *bytes)
{
    return gs_receiving_socket(address, bytes, loop->core->limits.is_posix, &loop->sockets[port]);
}

/* Real-time wishes are granted or remembered as refused; the core runs in either case. */
static void apply_wishes(gs_loop *loop)
{
    loop->scheduling_error = 0;
    if (loop->cpu >= 0)
        loop->scheduling_error = gs_pin(loop->thread, loop->cpu);
    if (loop->fifo_priority > 0) {
        struct sched_param wish = {.sched_priority = loop->fifo_priority};
        int refused = pthread_setschedparam(loop->thread, SCHED_FIFO, &wish);
        loop->scheduling_error = refused != 0 ? refused : loop->scheduling_error;
    }
}

int gs_loop_start(gs_loop *loop)
{
    sigset_t all, before;
    if (gs_pipe(loop->wake) < 0)
        return errno;
    loop->must_stop = false;
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
    apply_wishes(loop);
    return 0;
}

static void wake(const gs_loop *loop)
{
    ssize_t written = write(loop->wake[1], "", 1);
    (void)written; /* A full pipe wakes as well. */
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
    while (__atomic_load_n(&loop->forget, __ATOMIC_ACQUIRE) != NULL)
        nanosleep(&nap, NULL);
}
