/* More than a million malformed datagrams against the core's parser and forwarder: no crash,
 * no leak, the core counts by reason what was judged beforehand, and the next good datagram is
 * forwarded.
 *
 * Arguments: how many, and the seed.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "egress.h"
#include "forwarder.h"
#include "lies.h"

#define SOURCE        77U
#define GOOD_VARIABLE 5000U
#define CHANNELS      3U

static uint64_t sum_malformed(const gs_core *core)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < GS_MALFORMED_REASONS; i++)
        sum += core->counters.malformed[i];
    return sum;
}

static uint64_t sum_ended(const gs_core *core)
{
    const gs_core_counters *c = &core->counters;
    return sum_malformed(core) + c->unknown_channel + c->unknown_variable + c->policed_port +
           c->policed_source + c->policed_stamp + c->policed_slot + c->policed_jump +
           c->policed_interval + c->duplicate + c->too_old + c->not_due + c->dispatched;
}

static void forward(gs_core *core, const gs_arrival *arrival, uint64_t now_ns)
{
    gs_view view = gs_enter(core);
    gs_forward(core, &view, arrival, (gs_now){now_ns, now_ns});
    gs_flush(core, now_ns);
}

/* One arrival holds one datagram at least, be it empty; cut, each piece is a datagram. */
static void judge(lie_tally *tally, const gs_arrival *arrival)
{
    size_t at = 0;
    do {
        size_t left = arrival->bytes - at;
        size_t bytes = left < arrival->step ? left : arrival->step;
        lie_judge(tally, arrival->at + at, bytes);
        at += bytes;
    } while (at < arrival->bytes);
}

static void assert_alike(const gs_core *core, const lie_tally *tally)
{
    assert(core->counters.datagrams_in == tally->datagrams);
    for (uint32_t form = GS_MALFORMED_SHORT; form < GS_MALFORMED_REASONS; form++)
        assert(core->counters.malformed[form] == tally->forms[form]);
    assert(core->counters.in == lie_malformed(tally) + tally->events);
    assert(core->counters.sealed_unknown_channel == tally->sealed);
    assert(core->counters.in == sum_ended(core));
}

static void inject(gs_core *core, lie_tally *tally, const uint8_t *bytes, uint32_t size,
                   uint64_t now_ns)
{
    /* A heap copy of exactly this size, so that one byte too far is seen by the sanitizer. */
    uint8_t *exact = malloc(size == 0 ? 1 : size);
    memcpy(exact, bytes, size);
    gs_arrival arrival = {.at = exact, .bytes = size, .step = size, .port = draw(2)};
    if (draw(8) == 0 && size > 40)
        arrival.step = 20 + draw(size);
    judge(tally, &arrival);
    forward(core, &arrival, now_ns);
    for (uint32_t i = 0; i < CHANNELS; i++)
        core->channels[i]->sink.used = 0;
    free(exact);
}

static gs_core *open_core(void)
{
    gs_limits limits = {.versions_max = GS_VERSIONS_MAX,
                        .variables_max = 8192,
                        .rings_max = 64,
                        .channels_max = 8,
                        .pool_small = 64,
                        .pool_large = 8,
                        .ring_expiry_ns = 1000000,
                        .stamp_bound_ns = 1000000000000ULL};
    gs_core *core = gs_core_open(&limits);
    for (uint32_t i = 0; i < CHANNELS; i++) {
        gs_channel_options words = {.channel_id = i + 1,
                                    .index = i,
                                    .level = i,
                                    .mtu_bytes = 300,
                                    .version = GS_VERSION_PLAIN,
                                    .floods = i == 2,
                                    .queue_events_max = 16,
                                    .bandwidth_bytes_per_s = i == 1 ? 100000 : 0};
        assert(gs_channel_open(&words, &core->channels[i]) == 0);
    }
    struct gs_flood_output way = {2, 3, 2};
    gs_table_set_floods(core->table, &way, 1);
    gs_source source = {.channel_id = SOURCE, .is_publisher = true};
    gs_table_set_sources(core->table, &source, 1);
    gs_term terms[2] = {{.modes = 1, .every = 1}, {.modes = 1, .every = 3}};
    gs_route routes[2] = {{0, 3, 0, 1}, {1, 2, 1, 1}};
    gs_flood flood = {.modes = 1, .level = 1};
    for (uint32_t id = 0; id < 48; id++) {
        gs_row_spec words = {
            .variable_id = id == 47 ? GOOD_VARIABLE : id,
            .flags = id % 6 == 0 ? GS_ROW_URGENT : GS_ROW_PERIODIC,
            .seconds = 1,
            .per_seconds = 1000000,
            .source = SOURCE,
            .route_count = id % 3,
            .routes = routes,
            .terms = terms,
            .flood_count = id % 5 == 0,
            .floods = &flood,
        };
        assert(gs_table_commit(core->table, &words, 1, NULL, 0) == GS_COMMITTED);
    }
    return core;
}

int main(int count, char **words)
{
    uint64_t tries = count > 1 ? strtoull(words[1], NULL, 10) : 1400000;
    lie_seed(count > 2 ? strtoull(words[2], NULL, 10) : 1);
    static uint8_t bytes[LIE_BYTES_MAX];
    gs_core *core = open_core();
    lie_tally tally = {0};
    unsigned long stamp = 1700000000000000000UL, good = 0;
    for (uint64_t i = 0; i < tries; i++) {
        uint32_t size = lie(bytes, stamp);
        inject(core, &tally, bytes, size, stamp);
        stamp += 2000;
        assert_alike(core, &tally);
        if (i % 64 == 0) {
            uint64_t before = core->channels[0]->counters.sent;
            gs_store_u64(bytes + 16, stamp);
            gs_store_u32(bytes + 24, GOOD_VARIABLE);
            bytes[28] = 0;
            gs_header_write(bytes, GS_VERSION_PLAIN, 40, SOURCE, i);
            gs_arrival arrival = {.at = bytes, .bytes = 40, .step = 40};
            judge(&tally, &arrival);
            forward(core, &arrival, stamp);
            assert(core->channels[0]->counters.sent == before + 1);
            good++;
        }
    }
    assert_alike(core, &tally);
    assert(tally.datagrams >= tries && lie_malformed(&tally) > tries / 4);
    lie_tell("forwarding", &tally);
    printf("; the next good one passed %lu times\n", good);
    for (uint32_t i = 0; i < CHANNELS; i++)
        gs_forget(core, core->channels[i]);
    assert(core->pool.small.free == 64 && core->pool.large.free == 8);
    gs_core_close(core);
    return 0;
}
