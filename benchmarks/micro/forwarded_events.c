/* Forwards made-up events through a core in memory, for tools/instructions.py to count.
 *
 * Arguments: a kind of row, how many events lie in a datagram, how many datagrams. Nothing is sent:
 * what the channels hold is thrown away, so that the count is of our own code.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "egress.h"
#include "forwarder.h"

enum { SOURCE = 77, VARIABLES = 500, CHANNELS = 4, PERIOD_NS = 1000000 };

typedef struct {
    const char *name;
    uint32_t flags, routes, floods;
    bool is_inner;  /* The events come from another router. */
    bool is_opened; /* They come sealed. */
    bool is_sealed; /* They leave sealed. */
} kind;

static const kind KINDS[] = {
    {"plain", GS_ROW_PERIODIC, 1, 0, false, false, false},
    {"inner", GS_ROW_PERIODIC, 1, 0, true, false, false},
    {"newest", GS_ROW_PERIODIC | GS_ROW_KEEPS_NEWEST, 1, 0, false, false, false},
    {"routes", GS_ROW_PERIODIC, CHANNELS, 0, false, false, false},
    {"alerts", GS_ROW_URGENT, 1, 0, false, false, false},
    {"flooded", GS_ROW_PERIODIC, 1, 1, true, false, false},
    {"opened", GS_ROW_PERIODIC, 1, 0, true, true, false},
    {"sealed", GS_ROW_PERIODIC, 1, 0, true, false, true},
};

static const kind *kind_of(const char *name)
{
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (strcmp(KINDS[i].name, name) == 0)
            return &KINDS[i];
    return NULL;
}

static void put_row(gs_core *core, const kind *of, uint32_t variable_id)
{
    static const gs_term term = {.modes = 1, .every = 1};
    static const gs_flood flood = {.modes = 1, .level = 1};
    gs_route routes[CHANNELS];
    for (uint32_t i = 0; i < CHANNELS; i++)
        routes[i] = (gs_route){.channel_index = i, .event_class = 3, .term_count = 1};
    gs_row_spec words = {.variable_id = variable_id,
                         .flags = of->flags,
                         .seconds = 1,
                         .per_seconds = 1000,
                         .source = SOURCE,
                         .route_count = of->routes,
                         .routes = routes,
                         .terms = &term,
                         .flood_count = of->floods,
                         .floods = &flood};
    if (gs_table_commit(core->table, &words, 1, NULL, 0) != GS_COMMITTED)
        exit(3);
}

/* An older core, with which this one is compared, has no sealed channels. */
#ifdef GS_VERSION_SEALED
static const gs_key_spec KEY = {.epoch = 7, .key = "any sixteen byte"};
static gs_sealing *sealing;

static void set_keys(gs_core *core, const kind *of)
{
    sealing = gs_sealing_open(GS_SEAL_BEST, &KEY);
    if (of->is_opened && !gs_set_receiving_keys(core, SOURCE, GS_SEAL_BEST, &KEY, 1))
        exit(3);
    for (uint32_t i = 0; i < CHANNELS && of->is_sealed; i++)
        gs_set_sending_key(core, core->channels[i], gs_sealing_open(GS_SEAL_BEST, &KEY));
}

static uint32_t finish(const kind *of, uint8_t *bytes, uint32_t size, uint64_t counter)
{
    if (of->is_opened) {
        gs_sealing_write(sealing, bytes, size, SOURCE, counter, GS_PORT_DATA);
        return size + GS_TAG_BYTES;
    }
    gs_header_write(bytes, GS_VERSION_PLAIN, size, SOURCE, counter);
    return size;
}

#define VERSION_OUT(of)   ((of)->is_sealed ? GS_VERSION_SEALED : GS_VERSION_PLAIN)
#define SEALED_SOURCE(of) .is_sealed = (of)->is_opened
#else
static void set_keys(gs_core *core, const kind *of)
{
    (void)core;
    if (of->is_opened || of->is_sealed)
        exit(3);
}

static uint32_t finish(const kind *of, uint8_t *bytes, uint32_t size, uint64_t counter)
{
    (void)of;
    gs_header_write(bytes, GS_VERSION_PLAIN, size, SOURCE, counter);
    return size;
}

#define VERSION_OUT(of)   GS_VERSION_PLAIN
#define SEALED_SOURCE(of) .is_open = false
#endif

static gs_core *open_core(const kind *of)
{
    gs_limits limits = {.versions_max = GS_VERSIONS_MAX,
                        .variables_max = 1024,
                        .rings_max = 1024,
                        .channels_max = CHANNELS,
                        .pool_small = 64,
                        .pool_large = 8,
                        .ring_expiry_ns = 1000000000};
    gs_core *core = gs_core_open(&limits);
    for (uint32_t i = 0; i < CHANNELS; i++) {
        gs_channel_options words = {.channel_id = i + 1,
                                    .index = i,
                                    .level = i,
                                    .mtu_bytes = 1232,
                                    .version = VERSION_OUT(of),
                                    .floods = i != 0};
        if (gs_channel_open(&words, &core->channels[i]) != 0)
            exit(3);
    }
    struct gs_flood_output ways[] = {{1, 2, 1}, {2, 3, 2}, {3, 4, 3}};
    gs_table_set_floods(core->table, ways, CHANNELS - 1);
    gs_source source = {.channel_id = SOURCE, .is_publisher = !of->is_inner, SEALED_SOURCE(of)};
    gs_table_set_sources(core->table, &source, 1);
    set_keys(core, of);
    for (uint32_t id = 0; id < VARIABLES; id++)
        put_row(core, of, id);
    return core;
}

static uint64_t forward(gs_core *core, const kind *of, uint32_t packed, uint64_t datagrams)
{
    static uint8_t bytes[GS_HEADER_BYTES + 65 * GS_EVENT_BYTES];
    uint32_t size = GS_HEADER_BYTES + packed * GS_EVENT_BYTES;
    uint64_t begun_ns = 1700000000000000000ULL, events = 0;
    for (uint64_t i = 0; i < datagrams; i++) {
        uint64_t now_ns = begun_ns;
        for (uint32_t j = 0; j < packed; j++, events++) {
            uint8_t *event = bytes + GS_HEADER_BYTES + (size_t)j * GS_EVENT_BYTES;
            now_ns = begun_ns + events / VARIABLES * PERIOD_NS;
            gs_store_u64(event, now_ns);
            gs_store_u32(event + 8, (uint32_t)(events % VARIABLES));
            gs_store_u16(event + 14, (uint16_t)(events / VARIABLES));
        }
        uint32_t whole = finish(of, bytes, size, i + 1);
        gs_arrival arrival = {.at = bytes, .bytes = whole, .step = whole};
        gs_view view = gs_enter(core);
        gs_forward(core, &view, &arrival, (gs_now){now_ns, now_ns});
        for (uint32_t channel = 0; channel < CHANNELS; channel++)
            core->channels[channel]->sink.used = 0;
        gs_flush(core, now_ns);
    }
    return events;
}

int main(int count, char **words)
{
    const kind *of = count == 4 ? kind_of(words[1]) : NULL;
    uint32_t packed = of != NULL ? (uint32_t)strtoul(words[2], NULL, 10) : 0;
    if (packed == 0 || packed > 48) {
        fprintf(stderr, "forwarded_events KIND EVENTS_A_DATAGRAM(1-48) DATAGRAMS\n");
        return 2;
    }
    gs_core *core = open_core(of);
    uint64_t events = forward(core, of, packed, strtoull(words[3], NULL, 10));
    if (core->counters.dispatched != events) {
        fprintf(stderr, "%lu of %lu events were dispatched\n",
                (unsigned long)core->counters.dispatched, (unsigned long)events);
        return 1;
    }
    gs_core_close(core);
    return 0;
}
