/* Stress of key swaps: sender, running core and receiver, every hop sealed, while the control side
 * changes all keys without pause and opens and closes a source. Every event ends in a counter, and
 * most arrive. Then a source is closed again and again, while a stranger sends sealed datagrams of
 * channel 0, the mark of a free place: none of them may find a key. Run under TSan and ASan.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "egress.h"
#include "loop.h"
#include "memory.h"
#include "receiver.h"
#include "sender.h"

#define VARIABLES 64U
#define UP        77U
#define DOWN      78U
#define SWAPS     3000U
#define STEP_NS   1000000ULL
#define CLOSED    20000U /* Times that a source is closed. */

static struct {
    gs_core *core;
    gs_loop *loop;
    gs_channel *channel;
    gs_receiver *receiver;
    gs_sender *sender;
    bool must_stop;
} stage;

static gs_key_spec key_of(uint32_t epoch)
{
    gs_key_spec spec = {.epoch = (uint8_t)epoch};
    memset(spec.key, (int)(epoch % 251), sizeof spec.key);
    return spec;
}

static void open_core(gs_seal_backend backend)
{
    gs_limits limits = {.versions_max = GS_VERSIONS_MAX,
                        .variables_max = 256,
                        .rings_max = 128,
                        .channels_max = 2,
                        .pool_small = 64,
                        .pool_large = 4};
    stage.core = gs_core_open(&limits);
    stage.loop = gs_loop_open(stage.core);
    struct sockaddr_in to[GS_PORTS];
    for (uint32_t port = 0; port < GS_PORTS; port++)
        to[port] = (struct sockaddr_in){.sin_family = AF_INET,
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                        .sin_port = htons(gs_receiver_port(stage.receiver, port))};
    gs_channel_options words = {
        .channel_id = DOWN,
        .mtu_bytes = 1232,
        .version = GS_VERSION_SEALED,
        .probe_interval_ns = 1000000,
        .addresses = {(struct sockaddr *)&to[0], (struct sockaddr *)&to[1]},
        .address_bytes = sizeof to[0],
    };
    assert(gs_channel_open(&words, &stage.channel) == 0);
    gs_set_channel(stage.core, 0, stage.channel);
    gs_source source = {.channel_id = UP, .is_sealed = true};
    gs_table_set_sources(stage.core->table, &source, 1);
    gs_key_spec first = key_of(0);
    assert(gs_set_receiving_keys(stage.core, UP, backend, &first, 1));
    static const gs_term term = {.modes = 1, .every = 1};
    static const gs_route route = {.channel_index = 0, .event_class = 3, .term_count = 1};
    for (uint32_t id = 0; id < VARIABLES; id++) {
        gs_row_spec row = {.variable_id = id,
                           .flags = id % 8 == 0 ? GS_ROW_URGENT : 0,
                           .route_count = 1,
                           .routes = &route,
                           .terms = &term};
        assert(gs_table_commit(stage.core->table, &row, 1, NULL, 0) == GS_COMMITTED);
    }
}

static void open_ends(void)
{
    gs_receiver_options own = {.host = "127.0.0.1",
                               .variables_max = 256,
                               .ring_expiry_ns = 1000000000,
                               .keep = GS_KEEP_NEWEST,
                               .only_sources = true};
    assert(gs_receiver_open(&own, &stage.receiver) == GS_END_OK);
    assert(gs_receiver_open_source(stage.receiver, DOWN, true));
    for (uint32_t id = 0; id < VARIABLES; id++) {
        gs_law law = gs_law_make(0, 0, 0, 1, 0);
        assert(gs_receiver_expect(stage.receiver, id, &law));
    }
    assert(gs_receiver_start(stage.receiver) == GS_END_OK);
}

static void listen_and_send(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_storage addresses[GS_PORTS] = {0};
    uint32_t failed;
    for (int i = 0; i < GS_PORTS; i++)
        memcpy(&addresses[i], &any, sizeof any);
    assert(gs_loop_listen(stage.loop, addresses, sizeof any, &failed) == 0);
    gs_sender_options words = {.channel_id = UP,
                               .host = "127.0.0.1",
                               .ports = {gs_port_of(&addresses[0]), gs_port_of(&addresses[1])},
                               .mtu_bytes = 1232,
                               .variables_max = 256,
                               .version = GS_VERSION_SEALED};
    assert(gs_sender_open(&words, &stage.sender) == GS_END_OK);
    assert(gs_loop_start(stage.loop) == 0);
}

/* Lone events and packed ones in turn, as an application's threads send them. */
static void *send_all(void *unused)
{
    uint64_t stamp = 1700000000000000000ULL;
    uint32_t ids[VARIABLES];
    uint64_t stamps[VARIABLES], values[VARIABLES] = {0};
    (void)unused;
    for (uint64_t round = 0; !__atomic_load_n(&stage.must_stop, __ATOMIC_ACQUIRE); round++) {
        uint8_t value[8] = {0};
        gs_outgoing event = {.variable_id = (uint32_t)(round % VARIABLES),
                             .is_urgent = round % VARIABLES % 8 == 0,
                             .created_ns = stamp += STEP_NS,
                             .record = value,
                             .record_bytes = sizeof value};
        for (uint32_t i = 0; i < VARIABLES; i++) {
            ids[i] = i;
            stamps[i] = stamp += STEP_NS;
        }
        gs_outgoing_batch batch = {
            .variable_ids = ids, .created_ns = stamps, .values = values, .count = VARIABLES};
        gs_sender_lock(stage.sender);
        gs_sender_send(stage.sender, &event);
        if (round % 4 == 0)
            gs_sender_send_many(stage.sender, &batch);
        gs_sender_abandon(stage.sender);
        gs_sender_unlock(stage.sender);
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    return NULL;
}

/* Nobody's datagrams: no key is known to the sender, and no channel has the number 0. */
static void *send_as_nobody(void *unused)
{
    int to = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port =
                                      htons(gs_receiver_port(stage.receiver, GS_PORT_DATA))};
    uint8_t datagram[GS_HEADER_BYTES + 24 + GS_TAG_BYTES] = {0};
    (void)unused;
    assert(connect(to, (struct sockaddr *)&address, sizeof address) == 0);
    for (uint64_t counter = 1; !__atomic_load_n(&stage.must_stop, __ATOMIC_ACQUIRE); counter++) {
        gs_header_write(datagram, GS_VERSION_SEALED, GS_HEADER_BYTES + 24, 0, counter);
        datagram[1] = (uint8_t)counter;
        if (send(to, datagram, sizeof datagram, 0) < 0)
            break;
    }
    close(to);
    return NULL;
}

static void swap_keys(gs_seal_backend backend, uint32_t epoch)
{
    gs_key_spec accepted[2] = {key_of(epoch), key_of(epoch - 1)}, fresh = key_of(epoch);
    assert(gs_set_receiving_keys(stage.core, UP, backend, accepted, 2));
    assert(gs_receiver_set_keys(stage.receiver, DOWN, backend, accepted, 2));
    gs_set_sending_key(stage.core, stage.channel, gs_sealing_open(backend, &fresh));
    gs_sender_set_key(stage.sender, gs_sealing_open(backend, &fresh));
    const gs_sealing *newest = gs_sender_key(stage.sender);
    assert(newest->epoch == (uint8_t)epoch);
}

/* The key in use is dropped and comes back, with the windows that the threads write. */
static void drop_for_a_moment(gs_seal_backend backend, uint32_t epoch)
{
    gs_key_spec kept = key_of(epoch - 1);
    assert(gs_set_receiving_keys(stage.core, UP, backend, &kept, 1));
    assert(gs_receiver_set_keys(stage.receiver, DOWN, backend, &kept, 1));
    gs_key_spec accepted[2] = {key_of(epoch), kept};
    assert(gs_set_receiving_keys(stage.core, UP, backend, accepted, 2));
    assert(gs_receiver_set_keys(stage.receiver, DOWN, backend, accepted, 2));
}

/* What the control side reads while the threads write. */
static void read_states(void)
{
    gs_epochs_seen seen;
    gs_source_facts heard = gs_core_source(stage.core, UP);
    assert(heard.newest_counter >= heard.lost);
    gs_opening_take(gs_core_opening(stage.core, UP), &seen);
    assert(gs_receiver_keys(stage.receiver, DOWN, &seen));
    assert(gs_read(&stage.channel->counter) + 1 >= stage.channel->first_counter);
    const gs_sealing *sealing = gs_sender_key(stage.sender);
    assert(sealing != NULL && gs_sealing_datagrams(sealing) <= gs_sender_counter(stage.sender));
}

static void stress(gs_seal_backend backend)
{
    stage.must_stop = false;
    open_ends();
    open_core(backend);
    listen_and_send();
    swap_keys(backend, 1);
    pthread_t sending;
    assert(pthread_create(&sending, NULL, send_all, NULL) == 0);
    for (uint32_t epoch = 2; epoch < SWAPS; epoch++) {
        swap_keys(backend, epoch);
        if (epoch % 20 == 0)
            drop_for_a_moment(backend, epoch);
        read_states();
        if (epoch % 50 == 0)
            gs_set_sending_key(stage.core, stage.channel, NULL);
        if (epoch % 200 == 0) {
            gs_receiver_close_source(stage.receiver, DOWN);
            assert(gs_receiver_open_source(stage.receiver, DOWN, true));
        }
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    __atomic_store_n(&stage.must_stop, true, __ATOMIC_RELEASE);
    pthread_join(sending, NULL);
    gs_loop_stop(stage.loop);
    gs_receiver_stop(stage.receiver);
    gs_table_reclaim(stage.core->table);
    assert(gs_table_retired(stage.core->table) == 0);
    const gs_channel_counters *c = &stage.channel->counters;
    assert(c->due == c->sent + c->send_failed + c->no_key);
    uint64_t delivered = gs_receiver_count(stage.receiver, GS_RECEIVED_DELIVERED);
    assert(delivered > c->sent / 4 && delivered <= c->sent);
    printf("key swaps, %s: %u swaps, %lu sent by the core, %lu delivered\n",
           gs_seal_backend_name(backend), SWAPS, (unsigned long)c->sent, (unsigned long)delivered);
    gs_sender_close(stage.sender);
    gs_receiver_close(stage.receiver);
    gs_loop_close(stage.loop);
    gs_core_close(stage.core);
}

static void close_a_source_under_forgery(gs_seal_backend backend)
{
    gs_key_spec keys[GS_ACCEPTED_KEYS_MAX];
    for (uint32_t i = 0; i < GS_ACCEPTED_KEYS_MAX; i++)
        keys[i] = key_of(i);
    stage.must_stop = false;
    open_ends();
    pthread_t forging;
    assert(pthread_create(&forging, NULL, send_as_nobody, NULL) == 0);
    for (uint32_t round = 0; round < CLOSED; round++) {
        assert(gs_receiver_open_source(stage.receiver, UP, true));
        assert(gs_receiver_set_keys(stage.receiver, UP, backend, keys, GS_ACCEPTED_KEYS_MAX));
        assert(gs_receiver_close_source(stage.receiver, UP));
    }
    __atomic_store_n(&stage.must_stop, true, __ATOMIC_RELEASE);
    pthread_join(forging, NULL);
    for (gs_received reason = GS_RECEIVED_SEALED_UNKNOWN_CHANNEL + 1;
         reason <= GS_RECEIVED_SEALED_PLAIN; reason++)
        assert(gs_receiver_count(stage.receiver, reason) == 0);
    assert(gs_receiver_count(stage.receiver, GS_RECEIVED_SEALED_UNKNOWN_CHANNEL) != 0);
    gs_receiver_close(stage.receiver);
}

static gs_send_status send_one(gs_sender *sender)
{
    uint8_t value[8] = {0};
    gs_outgoing event = {.created_ns = STEP_NS, .record = value, .record_bytes = sizeof value};
    gs_sender_lock(sender);
    gs_send_status status = gs_sender_send(sender, &event);
    gs_sender_unlock(sender);
    return status;
}

/* A call that sends holds the lock: keys are changed and read all the same. */
static void set_keys_during_a_call(gs_seal_backend backend, gs_sender *sender)
{
    gs_key_spec second = key_of(2), third = key_of(3);
    gs_sender_lock(sender);
    gs_sender_set_key(sender, gs_sealing_open(backend, &second));
    gs_sender_set_key(sender, gs_sealing_open(backend, &third));
    assert(gs_sender_key(sender)->epoch == 3);
    gs_sender_set_key(sender, NULL);
    assert(gs_sender_key(sender) == NULL);
    gs_sender_unlock(sender);
    assert(send_one(sender) == GS_SEND_NO_KEY);
    gs_sender_lock(sender);
    gs_sender_set_key(sender, gs_sealing_open(backend, &third));
    gs_sender_unlock(sender);
    assert(send_one(sender) == GS_SEND_DONE);
    assert(gs_sealing_datagrams(gs_sender_key(sender)) == 1);
}

/* However late the control side is, no key seals more than 2^23 datagrams. */
static void use_a_sender_s_key_up(gs_seal_backend backend)
{
    gs_sender_options words = {.channel_id = UP,
                               .host = "127.0.0.1",
                               .ports = {9, 9},
                               .mtu_bytes = 1232,
                               .variables_max = 256,
                               .version = GS_VERSION_SEALED};
    gs_sender *sender;
    gs_key_spec first = key_of(1), next = key_of(2);
    assert(gs_sender_open(&words, &sender) == GS_END_OK);
    gs_sealing *sealing = gs_sealing_open(backend, &first);
    gs_sender_set_key(sender, sealing);
    sealing->left = 1;
    assert(send_one(sender) != GS_SEND_NO_KEY);
    assert(send_one(sender) == GS_SEND_NO_KEY && gs_sender_probe(sender) == GS_SEND_NO_KEY);
    uint32_t ids[VARIABLES] = {0};
    uint64_t stamps[VARIABLES] = {0}, values[VARIABLES] = {0};
    gs_outgoing_batch batch = {
        .variable_ids = ids, .created_ns = stamps, .values = values, .count = VARIABLES};
    assert(gs_sender_send_many(sender, &batch) == GS_SEND_NO_KEY && batch.sent == 0);
    assert(gs_sender_counted(sender)->no_key == 1 + VARIABLES);
    assert(gs_sealing_datagrams(gs_sender_key(sender)) == GS_SEALED_DATAGRAMS_MAX);
    gs_sender_set_key(sender, gs_sealing_open(backend, &next));
    assert(send_one(sender) != GS_SEND_NO_KEY);
    set_keys_during_a_call(backend, sender);
    gs_sender_close(sender);
}

static void use_a_channel_s_key_up(gs_seal_backend backend)
{
    gs_channel_options words = {.channel_id = DOWN,
                                .mtu_bytes = 1232,
                                .version = GS_VERSION_SEALED,
                                .probe_interval_ns = 1};
    gs_channel *channel;
    gs_key_spec first = key_of(1);
    uint8_t event[GS_EVENT_BYTES] = {0};
    assert(gs_channel_open(&words, &channel) == 0);
    gs_sealing *sealing = gs_sealing_open(backend, &first);
    assert(gs_channel_swap_key(channel, sealing) == NULL);
    sealing->left = 2;
    assert(gs_channel_probe(channel, 1) != 0 && gs_channel_silence(channel) == NULL);
    gs_channel_append_rare(channel, GS_PORT_DATA, event, sizeof event);
    gs_channel_flush(channel);
    assert(gs_channel_silence(channel) == &channel->counters.no_key);
    gs_channel_append_rare(channel, GS_PORT_DATA, event, sizeof event);
    gs_channel_flush(channel);
    assert(gs_channel_probe(channel, 2) == 0);
    assert(channel->counters.no_key == 1 && channel->counters.sent == 1);
    assert(gs_sealing_datagrams(sealing) == GS_SEALED_DATAGRAMS_MAX);
    gs_channel_close(channel);
}

int main(void)
{
    uint64_t held = gs_held();
    for (gs_seal_backend backend = GS_SEAL_EVP; backend <= GS_SEAL_IPSEC_MB; backend++)
        if (*gs_seal_backend_name(backend) != 0) {
            use_a_sender_s_key_up(backend);
            use_a_channel_s_key_up(backend);
            stress(backend);
            close_a_source_under_forgery(backend);
        }
    assert(gs_held() == held);
    return 0;
}
