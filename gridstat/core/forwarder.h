/* The forwarding core: what happens to an event between its arrival and its channels.
 *
 * One thread owns a core: table snapshot, windows, channels, queues, pool. The writer's side (the
 * door, under the interpreter's lock) builds tables and swaps them; the two meet in a few atomic
 * words. A router that needs more than one processor runs several cores.
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
    uint32_t versions_max;                   /* Of datagrams that are understood. */
    bool is_posix;
} gs_limits;

typedef struct {
    gs_counter in;
    gs_counter malformed[GS_MALFORMED_REASONS]; /* By gs_form; [0] is not used. */
    gs_counter unknown_channel, unknown_variable;
    gs_counter policed_port, policed_source, policed_stamp, policed_slot, policed_jump,
        policed_interval;
    gs_counter duplicate, not_due, dispatched, flooded, flood_withheld, newest_too_large;
    gs_counter datagrams_in, bytes_in, kernel_dropped, receive_calls;
} gs_core_counters;

typedef struct gs_core {
    gs_limits limits;
    gs_table *table;
    gs_states states;      /* The table's, at hand. */
    gs_channel **channels; /* By index; NULL: closed. */
    uint64_t modes;
    gs_buffer_pool pool;
    gs_channel **dirty; /* Channels with something to flush, in the order of first append. */
    uint32_t dirty_count;
    gs_channel **backlog; /* Paced channels that wait for their line. */
    uint32_t backlog_count;
    uint64_t wake_ns;     /* When the first of them is due, GS_IDLE_NS when none. */
    gs_channel **probing; /* Channels that send probes. */
    uint32_t probing_count;
    uint64_t probe_ns; /* When the first probe is due, GS_IDLE_NS when none. */
    gs_attention attention;
    uint64_t copies;  /* Handed to channels without a queue, since the core began. */
    uint64_t version; /* Odd while a receive call is being worked on. */
    gs_core_counters counters;
    gs_histogram latency;
    gs_policed *policed; /* GS_POLICED_PLACES of them. */
} gs_core;

gs_core *gs_core_open(const gs_limits *limits);
void gs_core_close(gs_core *core);

/* One moment, by both clocks: stamps are compared with the wall, spans with the steady one. */
typedef struct {
    uint64_t wall_ns;
    uint64_t steady_ns;
} gs_now;

/* Table and modes as they stood at one moment, for all events of a receive call. */
typedef struct {
    const gs_root *root;
    uint64_t active;
} gs_view;

/* Also a quiet point: the thread lets go of older versions. */
gs_view gs_enter(gs_core *core);

/* What one receive buffer holds: datagrams of `step` bytes that the kernel coalesced, the last one
 * perhaps shorter; a lone datagram has step = bytes. */
typedef struct {
    const uint8_t *at;
    size_t bytes;
    size_t step;
    uint32_t port;
    uint64_t arrived_ns; /* When the kernel had it, by the steady clock; 0: nobody knows. */
} gs_arrival;

/* Take in what has arrived; its copies stay open until the flush. */
void gs_forward(gs_core *core, const gs_view *view, const gs_arrival *arrival, gs_now now);

/* Around the work on one receive call, so that a reader can tell whole sums from half ones. */
void gs_begin_call(gs_core *core);
void gs_end_call(gs_core *core);

/* The counters as they stood between two calls, or as they are if the core never pauses. */
gs_core_counters gs_core_counters_read(const gs_core *core);

/* Let everything leave that may leave now. */
void gs_flush(gs_core *core, uint64_t steady_ns);

/* The paced channels whose line has come free. */
void gs_pump(gs_core *core, uint64_t steady_ns);

/* On the owning thread: look again which channels send probes. */
void gs_find_probing(gs_core *core);

/* Send the probes that are due, at most so many. */
void gs_probe(gs_core *core, uint64_t steady_ns, uint32_t probes_max);

/* What is known of an open source; the writer may ask. */
gs_source_facts gs_core_source(const gs_core *core, uint32_t channel_id);

/* On the owning thread: forget a channel that the table no longer reaches, with what it queued. */
void gs_forget(gs_core *core, gs_channel *channel);

/* The writer's words, one store each. */
static inline void gs_switch_modes(gs_core *core, uint64_t modes)
{
    __atomic_store_n(&core->modes, modes, __ATOMIC_SEQ_CST);
}

static inline void gs_set_channel(gs_core *core, uint32_t index, gs_channel *channel)
{
    __atomic_store_n(&core->channels[index], channel, __ATOMIC_RELEASE);
}

#endif
