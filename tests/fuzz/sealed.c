/* More than a million forged and a million replayed datagrams against sealed sources, of the core
 * and of a receiver, with every backend: none is accepted, nothing else moves, each is counted by
 * the reason that was foreseen, and the next authentic one passes.
 *
 * Arguments: how many of each kind, and the seed.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "forwarder.h"
#include "lies.h"
#include "receiver.h"

#define SOURCE        77U
#define VARIABLE      5U
#define KEYS          3U
#define RECORDED      4096U
#define BODY_BYTES    (4U * GS_EVENT_BYTES)
#define SEALED_BYTES  (GS_HEADER_BYTES + BODY_BYTES + GS_TAG_BYTES)
#define FIRST_EPOCH   254U /* The epochs wrap. */
#define IN_FLIGHT_MAX 64U

/* What a forger has: recorded datagrams, and no key. */
typedef struct {
    uint8_t bytes[SEALED_BYTES];
    uint32_t size, port;
} datagram;

typedef struct {
    unsigned long channel, epoch, replayed, forged, plain, malformed, authentic;
} tally;

static gs_key_spec key_specs[KEYS];
static gs_sealing *sealings[KEYS];
static uint64_t counters[KEYS];
static datagram recorded[RECORDED];
static uint32_t recorded_count;

static void open_keys(gs_seal_backend backend)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        key_specs[i].epoch = (uint8_t)(FIRST_EPOCH + i);
        for (uint32_t at = 0; at < GS_SEAL_KEY_BYTES; at++)
            key_specs[i].key[at] = (uint8_t)draw(256);
        sealings[i] = gs_sealing_open(backend, &key_specs[i]);
        assert(sealings[i] != NULL);
        counters[i] = 0;
    }
    recorded_count = 0;
}

static void close_keys(void)
{
    for (uint32_t i = 0; i < KEYS; i++)
        gs_sealing_close(sealings[i]);
}

static datagram make_authentic(uint64_t stamp)
{
    datagram made = {.port = GS_PORT_DATA};
    uint32_t key = draw(KEYS), events = draw(5);
    for (uint32_t i = 0; i < events; i++) {
        uint8_t *event = made.bytes + GS_HEADER_BYTES + GS_EVENT_BYTES * i;
        gs_store_u64(event, stamp + i * 1000);
        gs_store_u32(event + 8, VARIABLE);
    }
    counters[key] += 1 + draw(3) * draw(2);
    uint32_t length = GS_HEADER_BYTES + GS_EVENT_BYTES * events;
    gs_sealing_write(sealings[key], made.bytes, length, SOURCE, counters[key], made.port);
    made.size = length + GS_TAG_BYTES;
    recorded[recorded_count++ % RECORDED] = made;
    return made;
}

static datagram recall(void)
{
    uint32_t kept = recorded_count < RECORDED ? recorded_count : RECORDED;
    return recorded[draw(kept)];
}

/* Change a recorded datagram so that it is no longer authentic, and foresee its reason. */
static datagram forge(tally *foreseen)
{
    datagram forged = recall();
    uint64_t ahead = gs_load_u64(forged.bytes + 8) + 100000 + draw(100000);
    switch (draw(8)) {
    case 0: /* Another port. */
        gs_store_u64(forged.bytes + 8, ahead);
        forged.port = GS_PORT_URGENT;
        foreseen->forged++;
        break;
    case 1: /* The future, with the old tag. */
        gs_store_u64(forged.bytes + 8, ahead);
        foreseen->forged++;
        break;
    case 2: /* An invented body and tag. */
        gs_store_u64(forged.bytes + 8, ahead);
        for (uint32_t i = GS_HEADER_BYTES; i < forged.size; i++)
            forged.bytes[i] = (uint8_t)draw(256);
        foreseen->forged++;
        break;
    case 3: /* Another channel. */
        gs_store_u32(forged.bytes + 4, SOURCE + 1 + draw(1000));
        foreseen->channel++;
        break;
    case 4: /* An epoch without a key. */
        forged.bytes[1] = (uint8_t)(FIRST_EPOCH + KEYS + draw(256 - KEYS));
        foreseen->epoch++;
        break;
    case 5: /* Cut off. */
        forged.size = GS_HEADER_BYTES + draw(forged.size - GS_HEADER_BYTES);
        foreseen->malformed++;
        break;
    case 6: /* Not sealed, as if both had agreed on that. */
        memset(forged.bytes, 0, sizeof forged.bytes);
        gs_header_write(forged.bytes, 1 + draw(2), GS_HEADER_BYTES + GS_EVENT_BYTES, SOURCE, ahead);
        forged.size = GS_HEADER_BYTES + GS_EVENT_BYTES;
        foreseen->plain++;
        break;
    default: /* The old counter, which is looked at first, and another body. */
        forged.bytes[GS_HEADER_BYTES + draw(GS_TAG_BYTES)] ^= (uint8_t)(1U << draw(8));
        foreseen->replayed++;
    }
    return forged;
}

/* --- The core ---------------------------------------------------------------------------- */

static gs_core *open_core(gs_seal_backend backend)
{
    gs_limits limits = {.versions_max = GS_VERSIONS_MAX,
                        .variables_max = 64,
                        .rings_max = 8,
                        .channels_max = 2,
                        .pool_small = 8,
                        .pool_large = 8};
    gs_core *core = gs_core_open(&limits);
    gs_source source = {.channel_id = SOURCE, .is_sealed = true};
    gs_table_set_sources(core->table, &source, 1);
    gs_row_spec row = {
        .variable_id = VARIABLE, .flags = GS_ROW_PERIODIC, .seconds = 1, .per_seconds = 1000000};
    assert(gs_table_commit(core->table, &row, 1, NULL, 0) == GS_COMMITTED);
    assert(gs_set_receiving_keys(core, SOURCE, backend, key_specs, KEYS));
    return core;
}

static void forward(gs_core *core, const datagram *made, uint64_t now_ns)
{
    /* A heap copy of exactly this size, so that one byte too far is seen by the sanitizer. */
    uint8_t *exact = malloc(made->size);
    memcpy(exact, made->bytes, made->size);
    gs_arrival arrival = {.at = exact, .bytes = made->size, .step = made->size, .port = made->port};
    gs_view view = gs_enter(core);
    gs_forward(core, &view, &arrival, (gs_now){now_ns, now_ns});
    free(exact);
}

static void assert_core_alike(const gs_core *core, const tally *foreseen)
{
    const gs_core_counters *c = &core->counters;
    gs_source_facts facts = gs_core_source(core, SOURCE);
    assert(c->sealed_unknown_channel == foreseen->channel);
    assert(c->sealed_unknown_epoch == foreseen->epoch);
    assert(c->sealed_replayed == foreseen->replayed);
    assert(c->sealed_forged == foreseen->forged);
    assert(c->sealed_plain == foreseen->plain);
    assert(c->malformed[GS_MALFORMED_LENGTH] == foreseen->malformed);
    assert(facts.datagrams == foreseen->authentic);
}

static tally attack_core(gs_seal_backend backend, uint64_t tries)
{
    gs_core *core = open_core(backend);
    tally foreseen = {0};
    uint64_t stamp = 1700000000000000000ULL;
    for (uint64_t i = 0; i < tries; i++, stamp += 5000) {
        if (i % 16 == 0) {
            datagram good = make_authentic(stamp);
            foreseen.authentic++;
            forward(core, &good, stamp);
        }
        uint64_t heard_ns = gs_core_source(core, SOURCE).heard_ns;
        datagram forged = forge(&foreseen), again = recall();
        foreseen.replayed++;
        forward(core, &forged, stamp + 1);
        forward(core, &again, stamp + 2);
        assert(gs_core_source(core, SOURCE).heard_ns == heard_ns);
        if (i % 64 == 0)
            assert_core_alike(core, &foreseen);
    }
    assert_core_alike(core, &foreseen);
    gs_core_close(core);
    return foreseen;
}

/* --- A receiver -------------------------------------------------------------------------- */

static gs_receiver *open_receiver(gs_seal_backend backend)
{
    gs_receiver_options words = {
        .host = "127.0.0.1", .variables_max = 16, .keep = GS_KEEP_COUNT, .only_sources = true};
    gs_receiver *receiver = NULL;
    assert(gs_receiver_open(&words, &receiver) == GS_END_OK);
    gs_law law = gs_law_make(1, 1000000, 0, 1, 0);
    assert(gs_receiver_expect(receiver, VARIABLE, &law));
    assert(gs_receiver_open_source(receiver, SOURCE, true));
    assert(gs_receiver_set_keys(receiver, SOURCE, backend, key_specs, KEYS));
    assert(gs_receiver_start(receiver) == GS_END_OK);
    return receiver;
}

static void send_to(const gs_receiver *receiver, int socket_, const datagram *made)
{
    static uint64_t sent;
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(gs_receiver_port(receiver, made->port))};
    ssize_t taken = sendto(socket_, made->bytes, made->size, 0, (struct sockaddr *)&to, sizeof to);
    assert(taken == (ssize_t)made->size);
    if (gs_receiver_count(receiver, GS_RECEIVED_DATAGRAMS) == 0)
        sent = 0;
    while (++sent > IN_FLIGHT_MAX &&
           gs_receiver_count(receiver, GS_RECEIVED_DATAGRAMS) < sent - IN_FLIGHT_MAX) {
        sent--;
        sched_yield();
    }
}

static void attack_receiver(gs_seal_backend backend, uint64_t tries)
{
    gs_receiver *receiver = open_receiver(backend);
    int socket_ = socket(AF_INET, SOCK_DGRAM, 0);
    tally foreseen = {0};
    uint64_t stamp = 1700000000000000000ULL, sent = 0;
    for (uint64_t i = 0; i < tries; i++, stamp += 5000) {
        if (i % 16 == 0) {
            datagram good = make_authentic(stamp);
            foreseen.authentic++;
            send_to(receiver, socket_, &good);
            sent++;
        }
        datagram forged = forge(&foreseen), again = recall();
        foreseen.replayed++;
        send_to(receiver, socket_, &forged);
        send_to(receiver, socket_, &again);
        sent += 2;
    }
    while (gs_receiver_count(receiver, GS_RECEIVED_DATAGRAMS) < sent)
        sched_yield();
    gs_source_facts facts;
    assert(gs_receiver_source(receiver, 0, &facts) == SOURCE);
    assert(facts.datagrams == foreseen.authentic);
    assert(gs_receiver_count(receiver, GS_RECEIVED_SEALED_UNKNOWN_CHANNEL) == foreseen.channel);
    assert(gs_receiver_count(receiver, GS_RECEIVED_SEALED_UNKNOWN_EPOCH) == foreseen.epoch);
    assert(gs_receiver_count(receiver, GS_RECEIVED_SEALED_REPLAYED) == foreseen.replayed);
    assert(gs_receiver_count(receiver, GS_RECEIVED_SEALED_FORGED) == foreseen.forged);
    assert(gs_receiver_count(receiver, GS_RECEIVED_SEALED_PLAIN) == foreseen.plain);
    assert(gs_receiver_count(receiver, GS_RECEIVED_MALFORMED) == foreseen.malformed);
    close(socket_);
    gs_receiver_close(receiver);
}

int main(int count, char **words)
{
    uint64_t tries = count > 1 ? strtoull(words[1], NULL, 10) : 1200000;
    lie_seed(count > 2 ? strtoull(words[2], NULL, 10) : 3);
    for (gs_seal_backend backend = GS_SEAL_EVP; backend <= GS_SEAL_IPSEC_MB; backend++) {
        const char *name = gs_seal_backend_name(backend);
        if (*name == 0) {
            printf("sealed: this machine has no backend %u, which was not tried\n", backend);
            continue;
        }
        open_keys(backend);
        tally seen = attack_core(backend, tries);
        close_keys();
        open_keys(backend);
        attack_receiver(backend, tries / 8);
        close_keys();
        printf("sealed, %s: %lu forged + %lu replayed + %lu of no epoch + %lu of no channel + "
               "%lu plain + %lu cut, none accepted, and %lu authentic\n",
               name, seen.forged, seen.replayed, seen.epoch, seen.channel, seen.plain,
               seen.malformed, seen.authentic);
    }
    return 0;
}
