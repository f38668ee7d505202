/* Receiver of an end-point: a thread that turns datagrams into samples for Python.
 *
 *   urgent port, then data port -> check -> first copy? -> ring, newest value, counters
 *
 * The thread blocks all signals, takes no lock (neither Python's nor its own) and never allocates.
 * Every event ends in exactly one counter: in = malformed + policed_source + unknown + duplicate +
 * too_old + policed_jump + delivered + ring_full; a malformed datagram counts once. A datagram of a
 * sealed source that is not authentic is no part of this: it counts in `sealed_...` alone.
 */
#ifndef GS_RECEIVER_H
#define GS_RECEIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "counters.h"
#include "end_socket.h"
#include "laws.h"
#include "ledger.h"
#include "sample_ring.h"
#include "sources.h"

#define GS_RECEIVER_SOURCES 64U

typedef enum {
    GS_KEEP_RING = 0, /* Every event for the reader, and the newest of each variable. */
    GS_KEEP_NEWEST,   /* The newest of each variable only. */
    GS_KEEP_COUNT,    /* Counters and latencies only. */
} gs_keep;

typedef enum {
    GS_RECEIVED_IN = 0,
    GS_RECEIVED_MALFORMED,
    GS_RECEIVED_MALFORMED_SHORT, /* In the order of `gs_form`. */
    GS_RECEIVED_MALFORMED_VERSION,
    GS_RECEIVED_MALFORMED_EPOCH,
    GS_RECEIVED_MALFORMED_LENGTH,
    GS_RECEIVED_MALFORMED_OPTION,
    GS_RECEIVED_UNKNOWN,
    GS_RECEIVED_DUPLICATE,
    GS_RECEIVED_POLICED_JUMP,
    GS_RECEIVED_DELIVERED,
    GS_RECEIVED_RING_FULL,
    GS_RECEIVED_DATAGRAMS,
    GS_RECEIVED_BYTES,
    GS_RECEIVED_PROBES,
    GS_RECEIVED_NEWEST_FULL, /* Accepted unknown, no free place for its newest. */
    GS_RECEIVED_POLICED_SOURCE,
    GS_RECEIVED_SEALED_UNKNOWN_CHANNEL,
    GS_RECEIVED_SEALED_UNKNOWN_EPOCH, /* In the order of `gs_authenticity`. */
    GS_RECEIVED_SEALED_REPLAYED,
    GS_RECEIVED_SEALED_FORGED,
    GS_RECEIVED_SEALED_PLAIN, /* Not sealed, on a channel that is. */
    GS_RECEIVED_TOO_OLD,      /* Its slot had left the window. */
    GS_RECEIVED_COUNTERS,
} gs_received;

/* Words of the shared page, written after each receive call. */
typedef enum {
    GS_PAGE_DELIVERED = 0,
    GS_PAGE_DATAGRAMS,
    GS_PAGE_DUPLICATE,
    GS_PAGE_RING_FULL,
    GS_PAGE_RECEIVED_NS,
} gs_page_word;

typedef struct {
    const char *host;
    uint16_t ports[2];
    uint32_t ring_events;
    uint32_t option_bytes;
    uint32_t variables_max; /* Expected variables; as many unknown ones where these are accepted. */
    uint64_t ring_expiry_ns;
    gs_keep keep;
    bool accepts_unknown;
    bool only_sources; /* Accept datagrams of opened sources only, each from one host at a time. */
    bool is_posix;
    uint64_t *page; /* NULL: none. */
} gs_receiver_options;

typedef struct gs_receiver gs_receiver;

gs_end_status gs_receiver_open(const gs_receiver_options *options, gs_receiver **opened);

/* Stop the thread if it runs and close all descriptors; received samples can still be taken. No
 * other thread may be waiting. In a forked child, which has no thread, this call only closes. */
void gs_receiver_shut(gs_receiver *receiver);

/* Free the receiver; no thread may use it any more. */
void gs_receiver_close(gs_receiver *receiver);

/* Any threads may call these concurrently, but none may start a receiver that another shuts. */
gs_end_status gs_receiver_start(gs_receiver *receiver);
void gs_receiver_stop(gs_receiver *receiver); /* Also wakes a reader that waits. */
bool gs_receiver_is_running(const gs_receiver *receiver);
bool gs_receiver_is_foreign(const gs_receiver *receiver); /* Opened before this fork. */

/* False: `variables_max` is reached. */
bool gs_receiver_expect(gs_receiver *receiver, uint32_t variable_id, const gs_law *law);

/* Both wait until the thread holds the object no more, at most one receive call long. False: it is
 * unknown. */
bool gs_receiver_forget(gs_receiver *receiver, uint32_t variable_id);
bool gs_receiver_close_source(gs_receiver *receiver, uint32_t channel_id);

/* False: there are GS_RECEIVER_SOURCES already. A sealed source accepts sealed datagrams from any
 * host, and no others. One that is open stays as it is. */
bool gs_receiver_open_source(gs_receiver *receiver, uint32_t channel_id, bool is_sealed);

/* Accept these keys on a source from now on; returns when the old ones are wiped, at most one
 * receive call later. False: no such sealed source is open, or the machine cannot seal. */
bool gs_receiver_set_keys(gs_receiver *receiver, uint32_t channel_id, gs_seal_backend backend,
                          const gs_key_spec *specs, uint32_t count);

bool gs_receiver_is_sealed(gs_receiver *receiver, uint32_t channel_id); /* Such a one is open. */

/* Facts about the keys of a source. */
/* Read which epochs were seen since the last call. False: no such sealed source is open. */
bool gs_receiver_keys(gs_receiver *receiver, uint32_t channel_id, gs_epochs_seen *seen);

/* Channel id of the source at an index below the count, with its facts; 0: the index is free. */
uint32_t gs_receiver_source(gs_receiver *receiver, uint32_t place, gs_source_facts *facts);
uint32_t gs_receiver_source_count(const gs_receiver *receiver);

/* False: the variable is unknown, or the receiver keeps only totals. */
bool gs_receiver_ledger(gs_receiver *receiver, uint32_t variable_id, gs_ledger_facts *facts);
bool gs_receiver_newest(gs_receiver *receiver, uint32_t variable_id, gs_sample *sample);

/* Wait until there is a sample to take; false after `timeout_ms`, on a signal, or when the
 * samples have been taken already. The descriptor stays readable until a caller has waited and
 * found none. */
bool gs_receiver_wait(gs_receiver *receiver, int timeout_ms);
gs_sample_ring *gs_receiver_ring(gs_receiver *receiver);
int gs_receiver_wake_fd(const gs_receiver *receiver);

uint16_t gs_receiver_port(const gs_receiver *receiver, uint32_t port);
uint32_t gs_receiver_buffer_bytes(const gs_receiver *receiver);
uint64_t gs_receiver_count(const gs_receiver *receiver, uint32_t counter);

/* Messages that found the socket's buffer full, as the kernel counts them: one message may be up to
 * 64 datagrams that the kernel had joined. */
uint64_t gs_receiver_kernel_dropped(const gs_receiver *receiver);
uint64_t gs_receiver_latency(const gs_receiver *receiver, uint32_t bucket);
uint64_t gs_receiver_cpu_ns(gs_receiver *receiver);

#endif
