/* Measures the time in which a core rejects forged datagrams of a sealed channel that it knows.
 *
 * Arguments: the backend, bytes of the events in a datagram, how many datagrams. The datagrams have
 * a counter that is due and a wrong tag, so each is looked up and opened. Prints the nanoseconds a
 * datagram, the median of 21 runs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "forwarder.h"

enum { SOURCE = 77, EPOCH = 9, RUNS = 21, DATAGRAMS_APART = 64, BYTES_MAX = 1472 };

static uint64_t thread_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static gs_core *open_core(gs_seal_backend backend)
{
    gs_limits limits = {.versions_max = GS_VERSIONS_MAX,
                        .variables_max = 64,
                        .rings_max = 1,
                        .channels_max = 1,
                        .pool_small = 1,
                        .pool_large = 1};
    gs_core *core = gs_core_open(&limits);
    gs_source source = {.channel_id = SOURCE, .is_publisher = true, .is_sealed = true};
    gs_table_set_sources(core->table, &source, 1);
    gs_key_spec key = {.epoch = EPOCH};
    if (!gs_set_receiving_keys(core, SOURCE, backend, &key, 1)) {
        fprintf(stderr, "this machine does not have the backend\n");
        exit(3);
    }
    return core;
}

static uint64_t reject(gs_core *core, uint8_t datagrams[][BYTES_MAX], uint32_t bytes,
                       uint64_t count)
{
    uint64_t began_ns = thread_ns();
    for (uint64_t i = 0; i < count; i++) {
        gs_arrival arrival = {.at = datagrams[i % DATAGRAMS_APART], .bytes = bytes, .step = bytes};
        gs_view view = gs_enter(core);
        gs_forward(core, &view, &arrival, (gs_now){i + 1, i + 1});
    }
    return thread_ns() - began_ns;
}

static int is_less(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

int main(int count, char **words)
{
    static uint8_t datagrams[DATAGRAMS_APART][BYTES_MAX];
    uint32_t event_bytes = count == 4 ? (uint32_t)strtoul(words[2], NULL, 10) : 0;
    if (event_bytes < GS_EVENT_BYTES || event_bytes > BYTES_MAX - 64) {
        fprintf(stderr, "rejected_datagrams evp|ipsec-mb EVENT_BYTES DATAGRAMS\n");
        return 2;
    }
    gs_core *core = open_core(strcmp(words[1], "evp") == 0 ? GS_SEAL_EVP : GS_SEAL_IPSEC_MB);
    uint32_t length = GS_HEADER_BYTES + event_bytes, bytes = length + GS_SEAL_TAG_BYTES;
    for (uint32_t i = 0; i < DATAGRAMS_APART; i++) {
        for (uint32_t at = 0; at < bytes; at++)
            datagrams[i][at] = (uint8_t)rand();
        gs_header_write(datagrams[i], GS_VERSION_SEALED, length, SOURCE, 1000 + i);
        datagrams[i][1] = EPOCH;
    }
    uint64_t each = strtoull(words[3], NULL, 10) / RUNS;
    double ns[RUNS];
    for (uint32_t run = 0; run < RUNS; run++)
        ns[run] = (double)reject(core, datagrams, bytes, each) / (double)each;
    qsort(ns, RUNS, sizeof *ns, is_less);
    if (core->counters.sealed_forged != each * RUNS || core->counters.in != 0) {
        fprintf(stderr, "%lu of %lu datagrams were rejected as forged\n",
                (unsigned long)core->counters.sealed_forged, (unsigned long)(each * RUNS));
        return 1;
    }
    printf("%.1f\n", ns[RUNS / 2]);
    gs_core_close(core);
    return 0;
}
