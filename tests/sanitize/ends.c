/* Everything that may happen to the ends at once, for ASan and TSan: two senders on redundant
 * paths, the receiving thread, a reader of batches, readers of newest values and counters, somebody
 * who adds variables all the while, some of which came unannounced before, renews the terms of
 * some, forgets others and watches channels that come and go, and two who stop it.
 * Ends well when every event was counted once. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "receiver.h"
#include "sender.h"

#define VARIABLES   64U
#define ANNOUNCED   32U /* At the start; later rounds bring others in place of the rest. */
#define OTHERS_MAX  4096U
#define BATCHES     400U
#define BATCH       512U
#define OPTIONS     48U
#define START_NS    1700000000000000000ULL
#define EVENTS_SENT (2ULL * BATCHES * BATCH)

typedef struct {
    gs_receiver *receiver;
    bool has_ended;
    uint64_t taken;
} gs_stage;

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static bool has_ended(gs_stage *stage)
{
    return __atomic_load_n(&stage->has_ended, __ATOMIC_ACQUIRE);
}

static void *send_all(void *argument)
{
    gs_stage *stage = argument;
    gs_sender_options words = {
        .version = GS_VERSION_PROBES,
        .channel_id = 7,
        .host = "127.0.0.1",
        .ports = {gs_receiver_port(stage->receiver, 0), gs_receiver_port(stage->receiver, 1)},
        .mtu_bytes = 1232,
        .variables_max = OTHERS_MAX,
    };
    gs_sender *sender = NULL;
    if (gs_sender_open(&words, &sender) != GS_END_OK)
        fail("cannot open a sender");
    static uint8_t options[BATCH * OPTIONS];
    uint32_t ids[BATCH];
    uint64_t stamps[BATCH], values[BATCH];
    for (uint32_t round = 0; round < BATCHES; round++) {
        for (uint32_t i = 0; i < BATCH; i++) {
            ids[i] = i % VARIABLES < ANNOUNCED ? i % VARIABLES : i % VARIABLES + round * 8;
            stamps[i] = START_NS + ((uint64_t)round * BATCH + i) / VARIABLES * 1000000;
            values[i] = stamps[i];
        }
        gs_outgoing_batch batch = {
            .variable_ids = ids,
            .created_ns = stamps,
            .values = values,
            .options = options,
            .count = BATCH,
            .option_count = round % 2 ? OPTIONS / 24 : 0,
        };
        while (gs_sender_send_many(sender, &batch) == GS_SEND_BLOCKED)
            continue;
        usleep(200);
    }
    gs_sender_close(sender);
    return NULL;
}

static void *take_all(void *argument)
{
    gs_stage *stage = argument;
    gs_sample_ring *ring = gs_receiver_ring(stage->receiver);
    static gs_sample samples[300];
    static uint8_t options[300 * OPTIONS];
    while (!has_ended(stage) || gs_sample_ring_ready(ring) != 0) {
        gs_receiver_wait(stage->receiver, 10);
        uint64_t count = gs_sample_ring_ready(ring);
        count = count < 300 ? count : 300;
        if (count == 0)
            continue;
        gs_sample_ring_take(ring, samples, count, options);
        for (uint64_t i = 0; i < count; i++)
            if (samples[i].value != samples[i].created_ns)
                fail("a sample is torn");
        stage->taken += count;
    }
    return NULL;
}

/* Other terms, other slots, gone and back; and what was counted must stay readable. */
static void renew(gs_receiver *receiver, uint32_t added, uint64_t round)
{
    gs_ledger_facts facts = {0};
    gs_source_facts heard = {0};
    uint32_t variable = (uint32_t)(round % added);
    gs_law law = gs_law_make(variable % 5 != 0, 1000, round % 3, 1 + (uint32_t)(round % 2), round);
    if (round % 4 == 0)
        gs_receiver_forget(receiver, variable);
    else if (variable >= ANNOUNCED)
        gs_receiver_expect(receiver, variable, &law);
    if (gs_receiver_ledger(receiver, variable, &facts) && facts.late > facts.delivered + round)
        fail("more are late than came");
    gs_receiver_open_source(receiver, 7, false);
    if (gs_receiver_source(receiver, 0, &heard) == 7 && heard.probes > heard.datagrams)
        fail("more probes than datagrams");
    if (round % 16 == 0 && !gs_receiver_close_source(receiver, 7))
        fail("a source cannot be closed");
}

static void *watch_all(void *argument)
{
    gs_stage *stage = argument;
    uint32_t added = ANNOUNCED;
    gs_law law = gs_law_make(1, 1000, 0, 1, 0);
    while (!has_ended(stage)) {
        gs_sample newest;
        for (uint32_t variable = 0; variable < VARIABLES; variable++)
            if (gs_receiver_newest(stage->receiver, variable, &newest) &&
                newest.value != newest.created_ns)
                fail("a newest value is torn");
        uint64_t delivered = gs_receiver_count(stage->receiver, GS_RECEIVED_DELIVERED);
        gs_receiver_latency(stage->receiver, 100);
        gs_receiver_cpu_ns(stage->receiver);
        if (added < OTHERS_MAX && added < delivered / 64) /* About as they come in. */
            gs_receiver_expect(stage->receiver, added++, &law);
        renew(stage->receiver, added, delivered);
        if (gs_receiver_newest(stage->receiver, added, &newest) &&
            newest.value != newest.created_ns)
            fail("a newest value of an unknown variable is torn");
    }
    return NULL;
}

static void *stop(void *argument)
{
    gs_stage *stage = argument;
    gs_receiver_stop(stage->receiver);
    if (gs_receiver_is_running(stage->receiver))
        fail("it runs after a stop");
    return NULL;
}

static uint64_t count_of(const gs_stage *stage, gs_received counter)
{
    return gs_receiver_count(stage->receiver, counter);
}

/* Loopback may drop under a sanitizer's weight; what the kernel dropped never came in. */
static void wait_for_quiet(const gs_stage *stage)
{
    uint64_t before = 0;
    for (uint32_t quiet = 0; quiet < 20;) {
        uint64_t now = count_of(stage, GS_RECEIVED_IN);
        quiet = now == before ? quiet + 1 : 0;
        before = now;
        if (now == EVENTS_SENT)
            return;
        usleep(20000);
    }
}

static void check(const gs_stage *stage)
{
    uint64_t in = count_of(stage, GS_RECEIVED_IN);
    uint64_t delivered = count_of(stage, GS_RECEIVED_DELIVERED);
    uint64_t others =
        count_of(stage, GS_RECEIVED_DUPLICATE) + count_of(stage, GS_RECEIVED_TOO_OLD) +
        count_of(stage, GS_RECEIVED_POLICED_JUMP) + count_of(stage, GS_RECEIVED_POLICED_SOURCE) +
        count_of(stage, GS_RECEIVED_RING_FULL);
    printf("in %lu delivered %lu others %lu taken %lu\n", (unsigned long)in,
           (unsigned long)delivered, (unsigned long)others, (unsigned long)stage->taken);
    if (in == 0 || in != delivered + others || stage->taken != delivered)
        fail("the counters do not reconcile");
}

int main(void)
{
    static uint64_t page[512];
    gs_receiver_options words = {
        .host = "127.0.0.1",
        .ring_events = 4096,
        .option_bytes = 1 << 16,
        .variables_max = OTHERS_MAX,
        .ring_expiry_ns = 60000000000ULL,
        .accepts_unknown = true,
        .page = page,
    };
    gs_stage stage = {0};
    if (gs_receiver_open(&words, &stage.receiver) != GS_END_OK)
        fail("cannot open a receiver");
    gs_law law = gs_law_make(1, 1000, 0, 1, 0);
    for (uint32_t variable = 0; variable < ANNOUNCED; variable++)
        gs_receiver_expect(stage.receiver, variable, &law);
    if (gs_receiver_start(stage.receiver) != GS_END_OK)
        fail("cannot start the receiver");
    pthread_t senders[2], stoppers[2], taker, watcher;
    pthread_create(&taker, NULL, take_all, &stage);
    pthread_create(&watcher, NULL, watch_all, &stage);
    for (uint32_t i = 0; i < 2; i++)
        pthread_create(&senders[i], NULL, send_all, &stage);
    for (uint32_t i = 0; i < 2; i++)
        pthread_join(senders[i], NULL);
    wait_for_quiet(&stage);
    for (uint32_t i = 0; i < 2; i++)
        pthread_create(&stoppers[i], NULL, stop, &stage);
    for (uint32_t i = 0; i < 2; i++)
        pthread_join(stoppers[i], NULL);
    __atomic_store_n(&stage.has_ended, true, __ATOMIC_RELEASE);
    pthread_join(taker, NULL);
    pthread_join(watcher, NULL);
    check(&stage);
    gs_receiver_close(stage.receiver);
    return 0;
}
