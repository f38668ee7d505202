/* The forwarding core: the path of an event from its arrival to its outgoing channels.
 *
 * One thread owns a core: table snapshot, windows, channels, queues, pool. The writer (Cython code
 * under its lock) builds tables and swaps them; writer and thread share a few atomic words. A
 * router that needs more than one processor runs several cores.
 */
#ifndef GS_FORWARDER_H
#define GS_FORWARDER_H

#include <stdbool.h>
#include <stdint.h>

#include "buffer_pool.h"
#include "channel.h"
#include "counters.h"
#include "event.h"
#include "forwarding_table.h"
#include "policing.h"

typedef struct {
    uint32_t variables_max, rings_max, channels_max, pool_small, pool_large;
    uint64_t stamp_bound_ns, ring_expiry_ns; /* A bound of 0: none. */
    uint32_t versions_max;                   /* Highest datagram version that is accepted. */
    bool is_posix;
} gs_limits;

typedef struct {
    gs_counter in;
    gs_counter malformed[GS_MALFORMED_REASONS]; /* By gs_form; [0] is not used. */
    gs_counter unknown_channel, unknown_variable;
    gs_counter policed_port, policed_source, policed_stamp, policed_slot, policed_jump,
        policed_interval;
    gs_counter duplicate, too_old, not_due, dispatched, flooded, flood_withheld, newest_too_large;
    /* Datagrams that are not authentic, in the order of `gs_authenticity`; none is part of `in`. */
    gs_counter sealed_unknown_channel, sealed_unknown_epoch, sealed_replayed, sealed_forged,
        sealed_plain;
    gs_counter datagrams_in, bytes_in, kernel_dropped, receive_calls;
} gs_core_counters;

typedef struct gs_core {
    gs_limits limits;
    uint32_t plain_versions_max; /* Highest datagram version that is accepted without a seal. */
    gs_table *table;
    gs_states states;      /* Copy of the table's pointers. */
    gs_channel **channels; /* By index; NULL: closed. */
    uint64_t modes;
    gs_buffer_pool pool;
    gs_channel **dirty; /* Channels with something to flush, in the order of first append. */
    uint32_t dirty_count;
    gs_channel **backlog; /* Paced channels that wait for their line. */
    uint32_t backlog_count;
    uint64_t wake_ns;     /* When the first backlogged channel is due; GS_IDLE_NS: none. */
    gs_channel **probing; /* Channels that send probes. */
    uint32_t probing_count;
    uint64_t probe_ns; /* When the first probe is due, GS_IDLE_NS when none. */
    gs_attention attention;
    uint64_t copies;  /* Copies appended to channels without a queue, since the core began. */
    uint64_t version; /* Odd while a receive call is processed. */
    gs_core_counters counters;
    gs_histogram latency;
    gs_policed *policed; /* GS_POLICED_PLACES of them. */
} gs_core;

gs_core *gs_core_open(const gs_limits *limits);
void gs_core_close(gs_core *core);

/* The same instant by both clocks: stamps are compared with the wall clock, durations with the
 * steady one. */
typedef struct {
    uint64_t wall_ns;
    uint64_t steady_ns;
} gs_now;

/* Consistent snapshot of table and modes, for all events of a receive call. */
typedef struct {
    const gs_root *root;
    uint64_t active;
} gs_view;

/* Take the present snapshot. This is a quiet point: the thread releases older versions. */
gs_view gs_enter(gs_core *core);

/* Content of one receive buffer: datagrams of `step` bytes that the kernel coalesced, the last one
 * perhaps shorter; a lone datagram has step = bytes. */
typedef struct {
    uint8_t *at; /* Sealed datagrams are opened in place. */
    size_t bytes;
    size_t step;
    uint32_t port;
    uint64_t arrived_ns; /* When the kernel received it, by the steady clock; 0: unknown. */
} gs_arrival;

/* Forward the events of an arrival; their copies stay in open datagrams until the flush. */
void gs_forward(gs_core *core, const gs_view *view, const gs_arrival *arrival, gs_now now);

/* Called before and after the work on one receive call, so that a reader of counters gets complete
 * sums. */
void gs_begin_call(gs_core *core);
void gs_end_call(gs_core *core);

/* Counters as of an instant between two calls; the present ones if the core never pauses. */
gs_core_counters gs_core_counters_read(const gs_core *core);

/* Send all open datagrams, and of paced channels as much as their lines allow. */
void gs_flush(gs_core *core, uint64_t steady_ns);

/* Send from the paced channels whose line has come free. */
void gs_pump(gs_core *core, uint64_t steady_ns);

/* On the owning thread: rebuild the list of channels that send probes. */
void gs_find_probing(gs_core *core);

/* Send the due probes, at most `probes_max`. */
void gs_probe(gs_core *core, uint64_t steady_ns, uint32_t probes_max);

/* Facts of an open source; the writer may call this. */
gs_source_facts gs_core_source(const gs_core *core, uint32_t channel_id);

/* Changes of keys by the writer; the old ones are wiped once the owning thread has passed. Without
 * `sealing` the channel has no key any more. */
void gs_set_sending_key(gs_core *core, gs_channel *channel, gs_sealing *sealing);

/* False: the source is not open, or the machine cannot seal. */
bool gs_set_receiving_keys(gs_core *core, uint32_t channel_id, gs_seal_backend backend,
                           const gs_key_spec *specs, uint32_t count);

/* Keys of an open source; NULL: it is not open. The writer may call this. */
gs_opening *gs_core_opening(const gs_core *core, uint32_t channel_id);

/* On the owning thread: remove a channel that no table row reaches, and drop its queued events. */
void gs_forget(gs_core *core, gs_channel *channel);

/* Changes by the writer, one atomic store each. */
static inline void gs_switch_modes(gs_core *core, uint64_t modes)
{
    __atomic_store_n(&core->modes, modes, __ATOMIC_SEQ_CST);
}

static inline void gs_set_channel(gs_core *core, uint32_t index, gs_channel *channel)
{
    __atomic_store_n(&core->channels[index], channel, __ATOMIC_RELEASE);
}

#endif
