/* One event from a sender through two routers to a receiver, over two channels between the routers.
 *
 * Compiled with `GS_TRACED` for gcov, the program forgets what ran while the parts were opened, so
 * that gcov counts one event alone: `tests/protocol/test_journeys.py` compares the files that ran
 * with those that `docs/journeys/status-event.md` names. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "loop.h"
#include "receiver.h"
#include "sender.h"

#define SECOND_NS    1000000000ULL
#define VARIABLE     7U
#define PER_SECOND   30U
#define PUBLISHER    3U
#define UPPER        11U
#define LOWER        12U
#define SUBSCRIBER   31U
#define MTU_BYTES    1232U
#define QUEUE_EVENTS 32U
#define WARM_EVENTS  2U

#if GS_TRACED
void __gcov_reset(void);
void __gcov_dump(void);
#else
#define __gcov_reset() ((void)0)
#define __gcov_dump()  ((void)0)
#endif

static void check(bool is_true, const char *what)
{
    if (is_true)
        return;
    fprintf(stderr, "failed: %s\n", what);
    exit(1);
}

typedef struct {
    gs_core *core;
    gs_loop *loop;
    uint16_t port;
} gs_router;

static gs_router open_router(void)
{
    gs_limits limits = {.versions_max = GS_VERSIONS_MAX,
                        .variables_max = 16,
                        .rings_max = 16,
                        .channels_max = 2,
                        .pool_small = 64,
                        .pool_large = 4,
                        .stamp_bound_ns = 10 * SECOND_NS,
                        .ring_expiry_ns = SECOND_NS};
    gs_router made = {.core = gs_core_open(&limits)};
    made.loop = gs_loop_open(made.core);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_storage addresses[GS_PORTS] = {0};
    for (int i = 0; i < GS_PORTS; i++)
        memcpy(&addresses[i], &any, sizeof any);
    uint32_t failed;
    check(gs_loop_listen(made.loop, addresses, sizeof any, &failed) == 0, "a router listens");
    made.port = gs_port_of(&addresses[GS_PORT_DATA]);
    return made;
}

static void open_channel(gs_router *router, uint32_t index, uint32_t channel_id, uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    gs_channel_options words = {
        .channel_id = channel_id,
        .mtu_bytes = MTU_BYTES,
        .version = GS_VERSION_PLAIN,
        .bandwidth_bytes_per_s = SECOND_NS,
        .queue_events_max = QUEUE_EVENTS,
        .addresses = {(struct sockaddr *)&to, (struct sockaddr *)&to},
        .address_bytes = sizeof to,
    };
    gs_channel *channel;
    check(gs_channel_open(&words, &channel) == 0, "a channel opens");
    gs_set_channel(router->core, index, channel);
}

/* Every tenth slot to all channels, as the page says. */
static void commit_row(gs_router *router, gs_row_spec *words, uint32_t channels)
{
    gs_term terms[] = {{.modes = ~0ULL, .every = 10}, {.modes = ~0ULL, .every = 10}};
    gs_route routes[] = {{0, 0, 0, 1}, {1, 0, 1, 1}};
    words->variable_id = VARIABLE;
    words->flags |= GS_ROW_PERIODIC;
    words->seconds = 1;
    words->per_seconds = PER_SECOND;
    words->route_count = channels;
    words->routes = routes;
    words->terms = terms;
    check(gs_table_commit(router->core->table, words, 1, NULL, 0) == GS_COMMITTED,
          "a row is committed");
    gs_switch_modes(router->core, 1);
    check(gs_loop_start(router->loop) == 0, "a router starts");
}

static gs_receiver *open_receiver(void)
{
    gs_receiver_options own = {.host = "127.0.0.1",
                               .ring_events = 1024,
                               .variables_max = 16,
                               .ring_expiry_ns = SECOND_NS,
                               .only_sources = true};
    gs_receiver *receiver;
    check(gs_receiver_open(&own, &receiver) == GS_END_OK, "a receiver opens");
    gs_law law = gs_law_make(1, PER_SECOND, 0, 10, SECOND_NS);
    check(gs_receiver_expect(receiver, VARIABLE, &law), "a variable is expected");
    check(gs_receiver_open_source(receiver, SUBSCRIBER, false), "a source opens");
    check(gs_receiver_start(receiver) == GS_END_OK, "a receiver starts");
    return receiver;
}

static void send_event(gs_sender *sender, uint64_t created_ns)
{
    uint8_t value[8] = {0};
    gs_outgoing event = {.variable_id = VARIABLE,
                         .created_ns = created_ns,
                         .record = value,
                         .record_bytes = sizeof value};
    check(gs_sender_send(sender, &event) == GS_SEND_DONE, "an event leaves");
}

/* Waits until the last router has seen both copies and the receiver has the event. */
static void await_event(const gs_router *last, gs_receiver *receiver, uint64_t events)
{
    while (gs_read(&last->core->counters.duplicate) < events ||
           gs_receiver_count(receiver, GS_RECEIVED_DELIVERED) < events)
        usleep(100);
    gs_sample sample;
    uint8_t options[1];
    check(gs_receiver_wait(receiver, 1000), "a sample waits");
    gs_sample_ring_take(gs_receiver_ring(receiver), &sample, 1, options);
    check(sample.variable_id == VARIABLE, "the sample is of the variable");
}

int main(void)
{
    gs_receiver *receiver = open_receiver();
    gs_router first = open_router(), last = open_router();
    open_channel(&first, 0, UPPER, last.port);
    open_channel(&first, 1, LOWER, last.port);
    open_channel(&last, 0, SUBSCRIBER, gs_receiver_port(receiver, 0));
    gs_source publisher = {.channel_id = PUBLISHER, .is_publisher = true};
    gs_table_set_sources(first.core->table, &publisher, 1);
    gs_source paths[] = {{.channel_id = UPPER}, {.channel_id = LOWER}};
    gs_table_set_sources(last.core->table, paths, 2);
    commit_row(&first, &(gs_row_spec){.source = PUBLISHER}, 2);
    commit_row(
        &last,
        &(gs_row_spec){.flags = GS_ROW_COUNTS_COPIES | GS_ROW_KEEPS_NEWEST, .counted_every = 10},
        1);
    gs_sender_options peer = {
        .channel_id = PUBLISHER,
        .version = GS_VERSION_PLAIN,
        .host = "127.0.0.1",
        .ports = {first.port, first.port},
        .mtu_bytes = MTU_BYTES,
        .variables_max = 16,
    };
    gs_sender *sender;
    check(gs_sender_open(&peer, &sender) == GS_END_OK, "a sender opens");
    /* The due slot nearest to now; a later one for each event, all within the bound of stamps. */
    uint64_t due_ns = gs_clock_ns(CLOCK_REALTIME) / SECOND_NS * SECOND_NS;
    for (uint64_t event = 0; event <= WARM_EVENTS; event++) {
        if (event == WARM_EVENTS)
            __gcov_reset();
        send_event(sender, due_ns + event * SECOND_NS / 3);
        await_event(&last, receiver, event + 1);
    }
    __gcov_dump();
    gs_loop_stop(first.loop);
    gs_loop_stop(last.loop);
    for (uint32_t i = 0; i < 2; i++)
        gs_forget(first.core, first.core->channels[i]);
    gs_forget(last.core, last.core->channels[0]);
    gs_loop_close(first.loop);
    gs_loop_close(last.loop);
    gs_core_close(first.core);
    gs_core_close(last.core);
    gs_sender_close(sender);
    gs_receiver_close(receiver);
    printf("one event has arrived\n");
    return 0;
}
