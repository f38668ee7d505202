/* Stress of table swaps: one thread forwards without pause while the other changes rows, channels,
 * sources and modes. Run under TSan and ASan; counters must reconcile at the end.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "egress.h"
#include "loop.h"

#define VARIABLES 400U
#define CHANNELS  6U
#define SOURCE    77U
#define CHANGES   6000U

static int sink_socket;
static struct sockaddr_in sink_address;

static void open_channel(gs_core *core, uint32_t index, uint64_t bandwidth_bytes_per_s)
{
    gs_channel_options words = {
        .channel_id = index + 1,
        .index = index,
        .level = index % 3,
        .floods = index % 2 == 0,
        .mtu_bytes = 1232,
        .version = GS_VERSION_PROBES,
        .probe_interval_ns = index % 2 == 0 ? 1000000 : 0,
        .bandwidth_bytes_per_s = bandwidth_bytes_per_s,
        .queue_events_max = 32,
        .addresses = {(struct sockaddr *)&sink_address, (struct sockaddr *)&sink_address},
        .address_bytes = sizeof sink_address,
    };
    gs_channel *channel;
    assert(gs_channel_open(&words, &channel) == 0);
    gs_set_channel(core, index, channel);
}

static void set_floods(gs_core *core, uint32_t open_mask)
{
    struct gs_flood_output ways[CHANNELS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < CHANNELS; i += 2)
        if (open_mask >> i & 1)
            ways[count++] = (struct gs_flood_output){i, i + 1, i % 3};
    gs_table_set_floods(core->table, ways, count);
}

static void change_row(gs_core *core, unsigned *seed)
{
    gs_term terms[CHANNELS];
    gs_route routes[CHANNELS];
    uint32_t count = (uint32_t)rand_r(seed) % CHANNELS;
    for (uint32_t i = 0; i < count; i++) {
        terms[i] =
            (gs_term){.modes = 1U << rand_r(seed) % 4, .every = 1 + (uint32_t)rand_r(seed) % 6};
        routes[i] = (gs_route){i, 1 + (uint32_t)rand_r(seed) % 6, i, 1};
    }
    gs_flood flood = {.modes = 2, .level = 1};
    uint32_t variable_id = (uint32_t)rand_r(seed) % VARIABLES;
    gs_row_spec words = {
        .variable_id = variable_id,
        .flags = (variable_id % 10 == 0 ? GS_ROW_URGENT : GS_ROW_PERIODIC) |
                 (variable_id % 7 == 0 ? GS_ROW_STAMP_EXEMPT : 0) |
                 (rand_r(seed) % 4 == 0 ? 0 : GS_ROW_KEEPS_NEWEST),
        .newest_options_max = rand_r(seed) % 4 == 0,
        .seconds = 1,
        .per_seconds = 1000000,
        .interval_ns_min = variable_id % 2 == 0 ? 1000 : 0,
        .source = SOURCE,
        .route_count = count,
        .flood_count = variable_id % 3 == 0,
        .routes = routes,
        .terms = terms,
        .floods = &flood,
    };
    if (rand_r(seed) % 8 == 0)
        assert(gs_table_commit(core->table, NULL, 0, &variable_id, 1) == GS_COMMITTED);
    else
        assert(gs_table_commit(core->table, &words, 1, NULL, 0) == GS_COMMITTED);
}

/* A whole event of the variable asked for, whatever the forwarding thread is writing. */
static uint32_t read_newest(const gs_core *core)
{
    uint8_t event[GS_EVENT_BYTES_MAX];
    uint32_t found = 0;
    for (uint32_t variable_id = 0; variable_id < VARIABLES; variable_id += 7) {
        uint32_t bytes = gs_table_newest(core->table, variable_id, event);
        assert(bytes == 0 || bytes == gs_event_bytes(event));
        assert(bytes == 0 || gs_event_variable(event) == variable_id);
        found += bytes != 0;
    }
    return found;
}

static void send_burst(int socket_, const struct sockaddr_in *to, unsigned *seed, uint64_t stamp)
{
    uint8_t datagram[16 + 40 * 24] = {0};
    for (uint32_t i = 0; i < 40; i++) {
        gs_store_u64(datagram + 16 + 24 * i, stamp + i * 1000);
        gs_store_u32(datagram + 16 + 24 * i + 8, (uint32_t)rand_r(seed) % (VARIABLES + 8));
    }
    gs_header_write(datagram, GS_VERSION_PLAIN, sizeof datagram, SOURCE, 1);
    (void)sendto(socket_, datagram, sizeof datagram, MSG_DONTWAIT, (const struct sockaddr *)to,
                 sizeof *to);
}

/* The data port's address; the urgent one is bound beside it. */
static struct sockaddr_in listen_on_both(gs_loop *loop)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_storage addresses[GS_PORTS] = {0};
    uint32_t failed;
    for (int i = 0; i < GS_PORTS; i++)
        memcpy(&addresses[i], &any, sizeof any);
    assert(gs_loop_listen(loop, addresses, sizeof any, &failed) == 0);
    memcpy(&any, &addresses[GS_PORT_DATA], sizeof any);
    return any;
}

static uint64_t ended(const gs_core_counters *counters)
{
    uint64_t sum = gs_read(&counters->unknown_channel) + gs_read(&counters->unknown_variable) +
                   gs_read(&counters->policed_port) + gs_read(&counters->policed_source) +
                   gs_read(&counters->policed_stamp) + gs_read(&counters->policed_slot) +
                   gs_read(&counters->policed_jump) + gs_read(&counters->policed_interval) +
                   gs_read(&counters->duplicate) + gs_read(&counters->too_old) +
                   gs_read(&counters->not_due) + gs_read(&counters->dispatched);
    for (uint32_t i = 0; i < GS_MALFORMED_REASONS; i++)
        sum += gs_read(&counters->malformed[i]);
    return sum;
}

static void assert_balanced(const gs_channel *channel)
{
    const gs_channel_counters *c = &channel->counters;
    assert(gs_read(&c->due) == gs_read(&c->sent) + gs_read(&c->queue_full) +
                                   gs_read(&c->pool_empty) + gs_read(&c->send_failed));
}

/* An index may be given anew only when the reader holds no version older than this one. */
static void check_quiet_points(void)
{
    gs_table *table = gs_table_open(64, 4);
    gs_table_enter(table);
    gs_table_set_floods(table, NULL, 0);
    uint64_t epoch = gs_table_epoch(table);
    assert(!gs_table_is_past(table, epoch) && gs_table_retired(table) > 0);
    gs_table_enter(table);
    assert(gs_table_is_past(table, epoch));
    gs_table_reclaim(table);
    assert(gs_table_retired(table) == 0);
    gs_table_set_floods(table, NULL, 0);
    gs_table_sleep(table);
    assert(gs_table_is_past(table, gs_table_epoch(table)));
    gs_table_close(table);
}

/* Close and reopen one channel under traffic, as the door does it. */
static void replace_channel(gs_core *core, gs_loop *loop, uint32_t index)
{
    gs_channel *old = core->channels[index];
    gs_set_channel(core, index, NULL);
    set_floods(core, ~(1U << index));
    gs_loop_forget(loop, old);
    assert_balanced(old);
    gs_channel_close(old);
    open_channel(core, index, index == 1 ? 20000 : 0);
    set_floods(core, ~0U);
}

static void open_sink(void)
{
    socklen_t bytes = sizeof sink_address;
    sink_socket = socket(AF_INET, SOCK_DGRAM, 0);
    sink_address.sin_family = AF_INET;
    sink_address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert(bind(sink_socket, (struct sockaddr *)&sink_address, bytes) == 0);
    assert(getsockname(sink_socket, (struct sockaddr *)&sink_address, &bytes) == 0);
}

int main(void)
{
    check_quiet_points();
    open_sink();
    gs_limits limits = {.versions_max = GS_VERSIONS_MAX,
                        .variables_max = 1024,
                        .rings_max = 128,
                        .channels_max = CHANNELS,
                        .pool_small = 64,
                        .pool_large = 4,
                        .ring_expiry_ns = 1000000000};
    gs_core *core = gs_core_open(&limits);
    gs_loop *loop = gs_loop_open(core);
    for (uint32_t i = 0; i < CHANNELS; i++)
        open_channel(core, i, i == 1 ? 20000 : 0);
    set_floods(core, ~0U);
    gs_source source = {.channel_id = SOURCE, .is_publisher = true};
    gs_table_set_sources(core->table, &source, 1);
    struct sockaddr_in to = listen_on_both(loop);
    assert(gs_loop_start(loop) == 0);
    int sender = socket(AF_INET, SOCK_DGRAM, 0);
    unsigned seed = 20061;
    uint64_t kept = 0, lost = 0;
    for (uint32_t i = 0; i < CHANGES; i++) {
        send_burst(sender, &to, &seed, 1000000 + i * 50000ULL);
        change_row(core, &seed);
        gs_switch_modes(core, (uint64_t)rand_r(&seed) % 16);
        kept += read_newest(core);
        lost = gs_core_source(core, SOURCE).lost;
        if (i % 50 == 0)
            gs_table_set_sources(core->table, &source, 1);
        if (i % 100 == 0)
            replace_channel(core, loop, (i / 100) % CHANNELS);
    }
    gs_loop_stop(loop);
    gs_table_reclaim(core->table);
    assert(gs_table_retired(core->table) == 0);
    assert(gs_read(&core->counters.in) == ended(&core->counters));
    printf("table swaps: %u changes, %lu events, %lu dispatched, all reconciled\n", CHANGES,
           (unsigned long)gs_read(&core->counters.in),
           (unsigned long)gs_read(&core->counters.dispatched));
    assert(gs_read(&core->counters.dispatched) > 0 && kept > 0 && lost == 0);
    for (uint32_t i = 0; i < CHANNELS; i++) {
        gs_forget(core, core->channels[i]);
        assert_balanced(core->channels[i]);
    }
    assert(gs_read(&core->pool.small.free) == limits.pool_small);
    gs_loop_close(loop);
    gs_core_close(core);
    close(sender);
    close(sink_socket);
    return 0;
}
