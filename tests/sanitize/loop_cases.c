/* What Python cannot ask of a running core: a wall clock that is set in the middle of a call.
 *
 * Argument: the name of one case; without it all of them run. Time is ours: see `cases.h`.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"
#include "loop.h"
#include "platform.h"

#define STEP_NS  (SECOND_NS / 10 * 9)
#define SOURCE   77U
#define STRANGER 78U
#define VARIABLE 1U
#define QUEUED   160 /* Ten full calls, and few enough for a plain user's receive buffer. */

static uint64_t reads_until_step = UINT64_MAX;

static void step_wall_clock(void)
{
    if (__atomic_fetch_sub(&reads_until_step, 1, __ATOMIC_ACQ_REL) == 1)
        __atomic_fetch_add(&wall_ns, STEP_NS, __ATOMIC_ACQ_REL);
}

/* A core with one paced channel, whose line is free again after some nanoseconds. */
typedef struct {
    gs_core *core;
    gs_loop *loop;
    int publisher, subscriber;
    struct sockaddr_in to, urgent;
    uint64_t sent;
} hop;

static struct sockaddr_in open_subscriber(hop *made)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    made->subscriber = socket(AF_INET, SOCK_DGRAM, 0);
    check(bind(made->subscriber, (struct sockaddr *)&address, bytes) == 0, "a socket is bound");
    check(getsockname(made->subscriber, (struct sockaddr *)&address, &bytes) == 0, "and named");
    return address;
}

static void open_channel(hop *made, struct sockaddr_in *to)
{
    gs_channel_options words = {
        .channel_id = 1,
        .mtu_bytes = 1232,
        .version = GS_VERSION_PLAIN,
        .bandwidth_bytes_per_s = 1000000000,
        .queue_events_max = 32,
        .addresses = {(struct sockaddr *)to, (struct sockaddr *)to},
        .address_bytes = sizeof *to,
    };
    gs_channel *channel;
    check(gs_channel_open(&words, &channel) == 0, "a channel opens");
    gs_set_channel(made->core, 0, channel);
}

static void commit_row(gs_core *core)
{
    gs_source source = {.channel_id = SOURCE};
    gs_term term = {.modes = ~0ULL, .every = 1};
    gs_route route = {0, 0, 0, 1};
    gs_row_spec words = {
        .variable_id = VARIABLE,
        .flags = GS_ROW_PERIODIC,
        .seconds = 1,
        .per_seconds = 1000,
        .source = SOURCE,
        .route_count = 1,
        .routes = &route,
        .terms = &term,
    };
    gs_table_set_sources(core->table, &source, 1);
    check(gs_table_commit(core->table, &words, 1, NULL, 0) == GS_COMMITTED, "a row is taken");
}

static hop open_hop(void)
{
    hop made = {0};
    gs_limits limits = {.versions_max = GS_VERSIONS_MAX,
                        .variables_max = 16,
                        .rings_max = 16,
                        .channels_max = 1,
                        .pool_small = 64,
                        .pool_large = 4,
                        .ring_expiry_ns = SECOND_NS};
    made.core = gs_core_open(&limits);
    made.loop = gs_loop_open(made.core);
    struct sockaddr_in to = open_subscriber(&made);
    open_channel(&made, &to);
    commit_row(made.core);
    gs_switch_modes(made.core, 1);
    struct sockaddr_storage addresses[GS_PORTS] = {0};
    uint32_t failed;
    to.sin_port = 0;
    for (int i = 0; i < GS_PORTS; i++)
        memcpy(&addresses[i], &to, sizeof to);
    check(gs_loop_listen(made.loop, addresses, sizeof to, &failed) == 0, "a core listens");
    memcpy(&made.to, &addresses[GS_PORT_DATA], sizeof made.to);
    memcpy(&made.urgent, &addresses[GS_PORT_URGENT], sizeof made.urgent);
    made.publisher = socket(AF_INET, SOCK_DGRAM, 0);
    return made;
}

static void close_hop(hop *made)
{
    gs_loop_stop(made->loop);
    gs_forget(made->core, made->core->channels[0]);
    gs_loop_close(made->loop);
    gs_core_close(made->core);
    close(made->publisher);
    close(made->subscriber);
}

static void send_event_of(hop *made, uint32_t source, uint64_t created_ns)
{
    uint8_t datagram[16 + 24] = {0};
    gs_store_u64(datagram + 16, created_ns);
    gs_store_u32(datagram + 24, VARIABLE);
    gs_header_write(datagram, GS_VERSION_PLAIN, sizeof datagram, source, ++made->sent);
    check(sendto(made->publisher, datagram, sizeof datagram, 0, (struct sockaddr *)&made->to,
                 sizeof made->to) == sizeof datagram,
          "an event leaves");
}

static void send_event(hop *made, uint64_t created_ns)
{
    send_event_of(made, SOURCE, created_ns);
}

/* Sends one event, and returns when the call that took it is over. */
static void tell_of(hop *made, uint32_t source, uint64_t created_ns)
{
    send_event_of(made, source, created_ns);
    while (gs_read(&made->core->counters.receive_calls) < made->sent)
        usleep(100);
}

static void tell(hop *made, uint64_t created_ns)
{
    tell_of(made, SOURCE, created_ns);
}

static void a_paced_line_is_free_in_time_though_the_wall_clock_is_set_in_a_call(void)
{
    hop made = open_hop();
    check(gs_loop_start(made.loop) == 0, "the core starts");
    const gs_channel_counters *counters = &made.core->channels[0]->counters;
    uint64_t created_ns = wall_ns;
    __atomic_store_n(&reads_until_step, 2, __ATOMIC_RELEASE);
    tell(&made, created_ns);
    check(gs_read(&counters->sent) == 1, "the first event is sent at once");
    __atomic_fetch_add(&steady_ns, SECOND_NS / 1000, __ATOMIC_ACQ_REL);
    tell(&made, created_ns + SECOND_NS / 1000);
    check(gs_read(&counters->sent) == 2, "the second one too, a millisecond later");
    close_hop(&made);
}

/* As the kernel's stamps have it. */
static void set_wall_clock_right(void)
{
    struct timespec now;
    check(syscall(SYS_clock_gettime, CLOCK_REALTIME, &now) == 0, "there is a clock");
    wall_ns = (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* Three hundred slots apart, and both waiting when the core comes to its senses. */
static void a_stall_costs_no_event_of_a_sparse_stream(void)
{
    hop made = open_hop();
    usleep(100000); /* The kernel begins to stamp what arrives a little after it was asked to. */
    set_wall_clock_right();
    for (uint64_t slot = 0; slot < 900; slot += 300) {
        send_event(&made, wall_ns + slot * SECOND_NS / 1000);
        usleep(300000);
    }
    set_wall_clock_right();
    check(gs_loop_start(made.loop) == 0, "the core starts");
    while (gs_read(&made.core->counters.in) < made.sent)
        usleep(100);
    check(gs_read(&made.core->counters.receive_calls) <= 1, "one call takes them all");
    gs_loop_stop(made.loop);
    check(gs_read(&made.core->counters.dispatched) == made.sent, "and all go on");
    close_hop(&made);
}

static void await(const gs_counter *count, uint64_t at_least, const char *what)
{
    for (int looks = 0; gs_read(count) < at_least; looks++) {
        check(looks < 100000, what);
        usleep(100);
    }
}

/* Two rejected calls, one close behind the other. */
static void flood(hop *made)
{
    tell_of(made, STRANGER, wall_ns);
    tell_of(made, STRANGER, wall_ns);
}

/* The steady clock stands still, so that all of this happens at once. */
static void a_port_with_nothing_but_rejected_datagrams_is_polled(void)
{
    hop made = open_hop();
    made.loop->may_poll = true; /* Also where this test has a single processor. */
    check(gs_loop_start(made.loop) == 0, "the core starts");
    const gs_counter *polls = &made.loop->polls;
    tell_of(&made, STRANGER, wall_ns);
    tell(&made, wall_ns);
    tell_of(&made, STRANGER, wall_ns);
    check(gs_read(polls) == 0, "a stranger before an event and one behind it are no flood");
    flood(&made);
    await(polls, 10, "a port with nothing but strangers is polled");
    __atomic_fetch_add(&wall_ns, SECOND_NS / 1000, __ATOMIC_ACQ_REL);
    tell(&made, wall_ns);
    tell_of(&made, STRANGER, wall_ns);
    gs_loop_stop(made.loop);
    check(gs_read(&made.loop->rests) == 0, "while there is time for it");
    check(gs_read(&made.core->counters.dispatched) == 2, "events among them go on");
    check(gs_read(&made.core->counters.unknown_channel) == 5, "and strangers are counted");
    uint64_t before = gs_read(polls);
    __atomic_fetch_add(&steady_ns, SECOND_NS / 1000, __ATOMIC_ACQ_REL);
    check(gs_loop_start(made.loop) == 0, "the core starts again");
    tell_of(&made, STRANGER, wall_ns);
    tell(&made, wall_ns);
    check(gs_read(polls) == before, "a stranger a while later is no flood either");
    close_hop(&made);
}

static void polling_ends_when_nothing_is_rejected_any_more(void)
{
    hop made = open_hop();
    made.loop->may_poll = true;
    check(gs_loop_start(made.loop) == 0, "the core starts");
    flood(&made);
    await(&made.loop->polls, 1, "a port with nothing but strangers is polled");
    __atomic_fetch_add(&steady_ns, GS_POLL_NS + 1, __ATOMIC_ACQ_REL);
    usleep(50000);
    uint64_t after = gs_read(&made.loop->polls);
    usleep(50000);
    check(gs_read(&made.loop->polls) == after, "and no more once they are gone");
    gs_loop_stop(made.loop);
    check(!made.loop->is_flooded, "for the flood is over");
    close_hop(&made);
}

/* Each flood lasts for a little less than the time after which it counts as over. */
static void polling_leaves_time_for_others(void)
{
    hop made = open_hop();
    made.loop->may_poll = true;
    check(gs_loop_start(made.loop) == 0, "the core starts");
    uint64_t floods = GS_POLLED_NS / GS_POLL_NS + 1;
    for (uint64_t i = 0; i < floods; i++) {
        uint64_t before = gs_read(&made.loop->polls);
        flood(&made);
        if (gs_read(&made.loop->rests) != 0)
            break;
        for (int looks = 0; looks < 1000 && gs_read(&made.loop->polls) == before; looks++)
            usleep(100);
        __atomic_fetch_add(&steady_ns, GS_POLL_NS, __ATOMIC_ACQ_REL);
    }
    await(&made.loop->rests, 1, "the port rests when the time for polling is used up");
    gs_loop_stop(made.loop);
    close_hop(&made);
}

static void a_single_processor_is_never_polled_away(void)
{
    hop made = open_hop();
    made.loop->may_poll = false;
    check(gs_loop_start(made.loop) == 0, "the core starts");
    flood(&made);
    tell_of(&made, STRANGER, wall_ns);
    await(&made.loop->rests, 1, "a port with nothing but strangers rests");
    gs_loop_stop(made.loop);
    check(gs_read(&made.loop->polls) == 0, "and is not polled");
    close_hop(&made);
}

/* A rest after each full call would bound what a router drains, and hold up what waits behind. */
static void a_flood_is_drained_without_a_rest(void)
{
    hop made = open_hop();
    const gs_counter *rests = &made.loop->rests;
    const gs_counter *strangers = &made.core->counters.unknown_channel;
    for (int i = 0; i < QUEUED; i++)
        send_event_of(&made, STRANGER, wall_ns);
    made.loop->may_poll = false;
    check(gs_loop_start(made.loop) == 0, "the core starts");
    while (gs_read(strangers) < QUEUED)
        usleep(100);
    gs_loop_stop(made.loop);
    check(gs_read(rests) <= 1, "the port rests when it is empty, and not before");
    close_hop(&made);
}

static void the_urgent_port_never_rests(void)
{
    hop made = open_hop();
    check(gs_loop_start(made.loop) == 0, "the core starts");
    made.to = made.urgent;
    for (int i = 0; i < 4; i++)
        tell_of(&made, STRANGER, wall_ns);
    gs_loop_stop(made.loop);
    check(gs_read(&made.core->counters.unknown_channel) == 4, "strangers are counted");
    check(gs_read(&made.loop->rests) + gs_read(&made.loop->polls) == 0,
          "and no alert waits because of them");
    close_hop(&made);
}

int main(int count, char **words)
{
    static const gs_case cases[] = {
        CASE(a_paced_line_is_free_in_time_though_the_wall_clock_is_set_in_a_call),
        CASE(a_port_with_nothing_but_rejected_datagrams_is_polled),
        CASE(polling_ends_when_nothing_is_rejected_any_more),
        CASE(polling_leaves_time_for_others),
        CASE(a_single_processor_is_never_polled_away),
        CASE(a_flood_is_drained_without_a_rest),
        CASE(the_urgent_port_never_rests),
#if GS_LINUX /* Only the kernel knows what arrived when, and POSIX does not let it say so. */
        CASE(a_stall_costs_no_event_of_a_sparse_stream),
#endif
    };
    before_wall_read = step_wall_clock;
    run_cases(cases, sizeof cases / sizeof *cases, count > 1 ? words[1] : NULL);
    return 0;
}
