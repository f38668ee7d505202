/* An outgoing event channel: its open datagrams, sockets and counters.
 *
 * A run is a sequence of equal segments that one GSO send carries; each segment is a datagram with
 * its own header. A lone event makes a run of one short segment and is sent by the next flush.
 */
#ifndef GS_CHANNEL_H
#define GS_CHANNEL_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "channel_keys.h"
#include "counters.h"
#include "event.h"

#define GS_PORTS            2
#define GS_PORT_DATA        0
#define GS_PORT_URGENT      1
#define GS_RUN_BYTES_MAX    65000U
#define GS_RUN_SEGMENTS_MAX 64U

struct gs_queues;

typedef struct {
    uint8_t *bytes;
    uint32_t used;        /* 0: nothing open. */
    uint32_t segment;     /* Where the open segment begins. */
    uint32_t segment_end; /* Where it must end. */
    uint32_t segments;    /* The open one included. */
    uint32_t stride;      /* 0 until the first segment has closed. */
    uint32_t events;
} gs_run;

typedef struct {
    gs_counter due, sent, queued;
    gs_counter queue_full, pool_empty, send_failed;
    gs_counter datagrams_out, bytes_out, fallback, mtu_changes;
    gs_counter probes_sent, probes_failed;
    gs_counter replay_queued; /* Part of `queued`. */
    gs_counter no_key;        /* Due while a sealed channel had no key, or a used up one. */
    gs_counter unproven;      /* Due while the channel was held. */
} gs_channel_counters;

/* Datagrams of a memory channel, for tests and for channels inside one process. */
typedef struct {
    uint8_t *bytes;
    size_t used, capacity;
} gs_sink;

/* What a channel may send. */
typedef enum {
    GS_SENDS_ALL = 0,
    GS_SENDS_PROBES,
    GS_SENDS_NOTHING,
} gs_holding;

/* Sending an event touches only the first two cache lines: the run, and the fields up to the first
 * counter. With fifty channels an event, each further line costs time. */
typedef struct gs_channel {
    gs_run runs[GS_PORTS];
    uint32_t channel_id;
    uint32_t index;
    uint32_t mtu_bytes;
    uint32_t level;
    uint8_t version; /* Version of its datagrams. */
    bool floods;
    bool is_dirty;
    bool is_backlogged; /* Paced, and its line is busy. */
    bool has_gso;
    bool is_posix;
    bool is_ipv6;
    bool is_guarded;          /* Sealed, or opened held: see `append_guarded`. */
    int sockets[GS_PORTS];    /* -1: a memory channel. */
    gs_counter counter;       /* Of the last datagram. */
    struct gs_queues *queues; /* NULL: not paced. */
    uint64_t sent_ns;         /* When events were last sent, by the steady clock; 0: never. */
    gs_channel_counters counters;
    uint64_t probe_interval_ns; /* 0: no probes. */
    uint64_t next_probe_ns;     /* By the steady clock. */
    bool probes_only_when_idle; /* No probe within an interval of the last events. */
    bool probes_only_when_held; /* No probe once it is released. */
    bool has_failed;            /* Events could not be sent since the last probe. */
    bool is_sealed;
    uint64_t first_counter;           /* Of the first datagram since it was opened. */
    uint8_t holding;                  /* Atomic: a `gs_holding`. */
    gs_sealing *sealing;              /* Atomic: the key to use from the next run on; NULL: none. */
    gs_sealing *owned_key;            /* The writer's: the one it set, also when it is used up. */
    gs_sealing *keys[GS_PORTS];       /* Of the open runs; valid until the flush. */
    uint32_t closed_events[GS_PORTS]; /* Events in closed sealed segments. */
    uint16_t segment_events[GS_PORTS][GS_RUN_SEGMENTS_MAX]; /* Events in each of them. */
    gs_sink sink;
} gs_channel;
_Static_assert(offsetof(gs_channel, counters.due) < 128, "in the second cache line");

typedef struct {
    uint32_t channel_id, index, level, mtu_bytes, version;
    uint64_t probe_interval_ns;
    uint64_t counter; /* Counter of the last datagram ever sent under this id. */
    bool floods, is_posix, probes_only_when_idle;
    bool is_held, probes_only_when_held; /* Sealed if its version is. */
    uint64_t bandwidth_bytes_per_s;
    uint32_t queue_events_max;
    const struct sockaddr *addresses[GS_PORTS]; /* NULL: memory. */
    socklen_t address_bytes;
} gs_channel_options;

/* 0, or the errno of the socket call that failed. */
int gs_channel_open(const gs_channel_options *options, gs_channel **opened);
void gs_channel_close(gs_channel *channel);

/* Append an event that does not fit into the open segment, or finds none open. */
void gs_channel_append_rare(gs_channel *channel, uint32_t port, const uint8_t *event,
                            uint32_t bytes);

/* Append one due event; the caller has counted it as due and will flush. */
static inline void gs_channel_append(gs_channel *channel, uint32_t port, const uint8_t *event,
                                     uint32_t bytes)
{
    gs_run *run = &channel->runs[port];
    if (__builtin_expect(run->used == 0 || run->used + bytes > run->segment_end, 0)) {
        gs_channel_append_rare(channel, port, event, bytes);
        return;
    }
    gs_event_copy(run->bytes + run->used, event, bytes);
    run->used += bytes;
    run->events++;
}

/* Bytes of a datagram beside its events. */
static inline uint32_t gs_channel_overhead(const gs_channel *channel)
{
    return channel->is_sealed ? GS_HEADER_BYTES + GS_TAG_BYTES : GS_HEADER_BYTES;
}

/* The counter of due events that are not sent because the channel is held or has no key; NULL: it
 * sends. */
gs_counter *gs_channel_silence(gs_channel *channel);

/* Changes by the writer, one atomic store each. The key before goes to `gs_sealing_close` when the
 * sending thread holds it no more. */
gs_sealing *gs_channel_swap_key(gs_channel *channel, gs_sealing *fresh);
void gs_channel_hold(gs_channel *channel, gs_holding holding); /* Of one that is guarded. */

/* Send the open datagrams, urgent ones first. */
void gs_channel_flush(gs_channel *channel);

/* True if the channel sends probes at all, as it is held now. */
bool gs_channel_is_probing(const gs_channel *channel);

/* True if a probe is due; events sent meanwhile may have postponed it. */
bool gs_channel_needs_probe(gs_channel *channel, uint64_t now_ns);

/* Send a probe and set when the next one is due; no datagram may be open. Returns its bytes; 0:
 * none was sent, for want of a key, or because the channel is held without probes. */
uint32_t gs_channel_probe(gs_channel *channel, uint64_t now_ns);

#endif
