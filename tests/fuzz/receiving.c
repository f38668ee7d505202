/* More than a million malformed datagrams against a running receiver, over a real socket: no crash,
 * no leak, it counts by reason what was judged beforehand, and the next good one is delivered.
 *
 * Arguments: how many, and the seed.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lies.h"
#include "receiver.h"

#define GOOD_VARIABLE 5000U
#define IN_FLIGHT_MAX 64U

static uint64_t ended(const gs_receiver *receiver)
{
    return gs_receiver_count(receiver, GS_RECEIVED_MALFORMED) +
           gs_receiver_count(receiver, GS_RECEIVED_UNKNOWN) +
           gs_receiver_count(receiver, GS_RECEIVED_DUPLICATE) +
           gs_receiver_count(receiver, GS_RECEIVED_TOO_OLD) +
           gs_receiver_count(receiver, GS_RECEIVED_POLICED_JUMP) +
           gs_receiver_count(receiver, GS_RECEIVED_POLICED_SOURCE) +
           gs_receiver_count(receiver, GS_RECEIVED_DELIVERED) +
           gs_receiver_count(receiver, GS_RECEIVED_RING_FULL);
}

static void await(const gs_receiver *receiver, uint64_t datagrams)
{
    while (gs_receiver_count(receiver, GS_RECEIVED_DATAGRAMS) < datagrams)
        sched_yield();
}

static gs_receiver *open_receiver(void)
{
    gs_receiver_options words = {.host = "127.0.0.1",
                                 .ring_events = 1024,
                                 .option_bytes = 65536,
                                 .variables_max = 256,
                                 .ring_expiry_ns = 1000000,
                                 .keep = GS_KEEP_RING};
    gs_receiver *receiver = NULL;
    gs_receiver_open(&words, &receiver);
    assert(receiver != NULL);
    for (uint32_t id = 0; id < 48; id++) {
        gs_law law = gs_law_make(id % 6 != 0, 1000000, 0, 1 + id % 3, 1000);
        assert(gs_receiver_expect(receiver, id, &law));
    }
    gs_law law = gs_law_make(1, 1000000, 0, 1, 0);
    assert(gs_receiver_expect(receiver, GOOD_VARIABLE, &law));
    assert(gs_receiver_open_source(receiver, LIE_SOURCE, false));
    gs_receiver_start(receiver);
    return receiver;
}

static int open_sender(const gs_receiver *receiver)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(gs_receiver_port(receiver, 0))};
    int sender = socket(AF_INET, SOCK_DGRAM, 0);
    assert(connect(sender, (struct sockaddr *)&to, sizeof to) == 0);
    return sender;
}

static void send_judged(int sender, lie_tally *tally, const uint8_t *bytes, uint32_t size)
{
    lie_judge(tally, bytes, size);
    assert(send(sender, bytes, size, 0) == (ssize_t)size);
}

static void assert_alike(const gs_receiver *receiver, const lie_tally *tally)
{
    uint64_t in = gs_receiver_count(receiver, GS_RECEIVED_IN);
    assert(gs_receiver_count(receiver, GS_RECEIVED_DATAGRAMS) == tally->datagrams);
    for (uint32_t form = GS_MALFORMED_SHORT; form < GS_MALFORMED_REASONS; form++) {
        uint32_t reason = GS_RECEIVED_MALFORMED_SHORT + form - GS_MALFORMED_SHORT;
        assert(gs_receiver_count(receiver, reason) == tally->forms[form]);
    }
    assert(gs_receiver_count(receiver, GS_RECEIVED_MALFORMED) == lie_malformed(tally));
    assert(gs_receiver_count(receiver, GS_RECEIVED_SEALED_UNKNOWN_CHANNEL) == tally->sealed);
    assert(in == lie_malformed(tally) + tally->events && in == ended(receiver));
}

static void send_good(int sender, lie_tally *tally, uint8_t *bytes, uint64_t stamp)
{
    memset(bytes, 0, 40);
    gs_header_write(bytes, GS_VERSION_PLAIN, 40, LIE_SOURCE, stamp);
    gs_store_u64(bytes + 16, stamp);
    gs_store_u32(bytes + 24, GOOD_VARIABLE);
    send_judged(sender, tally, bytes, 40);
}

int main(int count, char **words)
{
    uint64_t tries = count > 1 ? strtoull(words[1], NULL, 10) : 1400000;
    lie_seed(count > 2 ? strtoull(words[2], NULL, 10) : 2);
    static uint8_t bytes[LIE_BYTES_MAX];
    gs_receiver *receiver = open_receiver();
    int sender = open_sender(receiver);
    lie_tally tally = {0};
    unsigned long stamp = 1700000000000000000UL, good = 0;
    for (uint64_t i = 0; i < tries; i++, stamp += 2000) {
        uint32_t size = lie(bytes, stamp);
        send_judged(sender, &tally, bytes, size);
        if (i % 64 == 0) {
            gs_sample sample;
            send_good(sender, &tally, bytes, stamp);
            await(receiver, tally.datagrams);
            assert(gs_receiver_newest(receiver, GOOD_VARIABLE, &sample));
            assert(sample.created_ns == stamp);
            good++;
        }
        if (tally.datagrams > IN_FLIGHT_MAX)
            await(receiver, tally.datagrams - IN_FLIGHT_MAX);
    }
    await(receiver, tally.datagrams);
    gs_receiver_stop(receiver);
    assert_alike(receiver, &tally);
    assert(tally.datagrams >= tries && lie_malformed(&tally) > tries / 4);
    lie_tell("receiving", &tally);
    printf("; the next good one came %lu times\n", good);
    gs_receiver_close(receiver);
    close(sender);
    return 0;
}
