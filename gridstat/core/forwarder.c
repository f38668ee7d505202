#include "forwarder.h"

#include <time.h>

#include "egress.h"
#include "memory.h"
#include "pace.h"

#define GROUP    24U /* Events that are looked up together, so that their cache misses overlap. */
#define NO_SCOPE UINT32_MAX

#define NO_CHANNEL     UINT64_MAX
#define SEALED_CHANNEL (1ULL << 32)

#define COUNTER_SPINS_MAX 2000U /* About a tenth of a millisecond, several calls long. */
#define COUNTER_TRIES_MAX (COUNTER_SPINS_MAX + 10000U)
#define COUNTER_NAP_NS    50000

typedef struct {
    gs_core *core;
    const gs_root *root;
    const gs_source *source; /* NULL: unknown, or sealed and the datagram is not, or not sealed. */
    uint64_t named;    /* Channel of the last datagram, and SEALED_CHANNEL if it was sealed. */
    uint64_t received; /* Newest datagram of the current run, not noted yet. */
    uint64_t active;
    gs_now now;
    uint64_t arrived_ns;      /* By the steady clock. */
    uint64_t arrived_wall_ns; /* By the wall clock, as it is set now. */
    uint32_t port;
} arrival_context;

typedef struct {
    const uint8_t *bytes;
    const gs_row *row;
    gs_buffer *buffer; /* Copy shared by all paced channels; NULL until the first needs it. */
    uint64_t arrived_ns;
    uint32_t length;
    uint32_t port;
} forwarded_event;

typedef struct {
    uint32_t scope;
    uint32_t copies;
} flooding;

typedef struct {
    const uint8_t *events[GROUP];
    uint32_t count;
} group;

gs_core *gs_core_open(const gs_limits *limits)
{
    gs_core *core = gs_allocate(sizeof *core);
    core->limits = *limits;
    core->plain_versions_max =
        limits->versions_max < GS_VERSIONS_PLAIN ? limits->versions_max : GS_VERSIONS_PLAIN;
    if (limits->stamp_bound_ns == 0)
        core->limits.stamp_bound_ns = UINT64_MAX;
    core->table = gs_table_open(limits->variables_max, limits->rings_max);
    core->states = gs_table_states(core->table);
    core->channels = gs_allocate(sizeof(gs_channel *) * (limits->channels_max + 1UL));
    core->dirty = gs_allocate(sizeof(gs_channel *) * (limits->channels_max + 1UL));
    core->backlog = gs_allocate(sizeof(gs_channel *) * (limits->channels_max + 1UL));
    core->probing = gs_allocate(sizeof(gs_channel *) * (limits->channels_max + 1UL));
    core->policed = gs_allocate(sizeof(gs_policed) * GS_POLICED_PLACES);
    core->wake_ns = core->probe_ns = GS_IDLE_NS;
    gs_pool_open(&core->pool, limits->pool_small, limits->pool_large);
    return core;
}

void gs_core_close(gs_core *core)
{
    for (uint32_t i = 0; i < core->limits.channels_max; i++)
        if (core->channels[i] != NULL)
            gs_channel_close(core->channels[i]);
    gs_table_close(core->table);
    gs_pool_close(&core->pool);
    gs_release(core->channels);
    gs_release(core->dirty);
    gs_release(core->backlog);
    gs_release(core->probing);
    gs_release(core->policed);
    gs_release(core);
}

gs_view gs_enter(gs_core *core)
{
    gs_view view;
    uint64_t modes;
    /* Read modes, root, modes again: a change of both, in either order, is never seen half. */
    do {
        modes = __atomic_load_n(&core->modes, __ATOMIC_SEQ_CST);
        view.root = gs_table_enter(core->table);
    } while (__atomic_load_n(&core->modes, __ATOMIC_SEQ_CST) != modes);
    view.active = modes | 1;
    return view;
}

void gs_begin_call(gs_core *core)
{
    __atomic_exchange_n(&core->version, core->version + 1, __ATOMIC_SEQ_CST);
}

void gs_end_call(gs_core *core)
{
    __atomic_store_n(&core->version, core->version + 1, __ATOMIC_RELEASE);
}

static void mark_dirty(gs_core *core, gs_channel *channel)
{
    if (!channel->is_dirty) {
        channel->is_dirty = true;
        core->dirty[core->dirty_count++] = channel;
    }
}

static void enqueue(gs_core *core, gs_channel *channel, forwarded_event *event,
                    uint32_t event_class)
{
    if (!gs_queue_has_room(channel->queues, event_class)) {
        gs_add(&channel->counters.queue_full, 1);
        return;
    }
    if (event->buffer == NULL &&
        (event_class != GS_CLASS_REPLAY || gs_pool_has_plenty(&core->pool, event->length)))
        event->buffer =
            gs_pool_take(&core->pool, event->bytes, event->length, (uint8_t)event->port);
    if (event->buffer == NULL) {
        gs_add(&channel->counters.pool_empty, 1);
        return;
    }
    event->buffer->arrived_ns = event->arrived_ns;
    gs_queue_put(channel, event_class, event->buffer);
}

static inline void dispatch(gs_core *core, gs_channel *channel, forwarded_event *event,
                            uint32_t event_class)
{
    gs_add(&channel->counters.due, 1);
    if (__builtin_expect(channel->queues == NULL, 1)) {
        gs_channel_append(channel, event->port, event->bytes, event->length);
        core->copies++;
    } else {
        enqueue(core, channel, event, event_class);
    }
    mark_dirty(core, channel);
}

static inline gs_channel *channel_at(const gs_core *core, uint32_t index)
{
    return __atomic_load_n(&core->channels[index], __ATOMIC_ACQUIRE);
}

/* Return the widest flooding scope that an active mode requests for this slot, or NO_SCOPE. */
static uint32_t flooding_scope(const gs_row *row, uint64_t active, int64_t slot)
{
    const uint64_t *flood = gs_row_floods(row);
    uint32_t scope = NO_SCOPE;
    for (uint32_t i = 0; i < row->flood_count; i++, flood += 2)
        if ((flood[0] & active) != 0 && (uint32_t)flood[1] < scope &&
            gs_slot_magnitude(slot) % (flood[1] >> 32) == 0)
            scope = (uint32_t)flood[1];
    return scope;
}

/* In a cycle of routers a copy returns, and is dropped where its event is remembered. A possible
 * copy of a forgotten event is routed but not flooded: `model/flooding.py`. */
static bool may_flood(const arrival_context *context, const forwarded_event *event)
{
    const gs_row *row = event->row;
    const gs_core *core = context->core;
    if (!(row->flags & GS_ROW_PERIODIC) &&
        gs_ring_is_crowded(&core->states.rings[row->state], context->arrived_ns))
        return false;
    uint64_t created_ns = gs_event_created_ns(event->bytes);
    uint64_t age_ns = context->now.wall_ns > created_ns ? context->now.wall_ns - created_ns : 0;
    return row->flags & GS_ROW_STAMP_EXEMPT || age_ns <= GS_FLOOD_HOLD_NS ||
           age_ns - GS_FLOOD_HOLD_NS <= core->limits.stamp_bound_ns;
}

/* Send to every channel in scope except the one back to the event's sender. Not inlined, so that
 * the path of rows that do not flood stays short. */
static __attribute__((noinline)) flooding flood(const arrival_context *context,
                                                forwarded_event *event, int64_t slot)
{
    const gs_flood_set *set = context->root->floods;
    flooding done = {.scope = flooding_scope(event->row, context->active, slot)};
    if (done.scope == NO_SCOPE)
        return done;
    if (!may_flood(context, event)) {
        gs_add(&context->core->counters.flood_withheld, 1);
        return (flooding){.scope = NO_SCOPE};
    }
    for (uint32_t i = 0; i < set->count; i++) {
        if (set->outputs[i].level < done.scope ||
            set->outputs[i].channel_id == context->source->back_channel)
            continue;
        gs_channel *channel = channel_at(context->core, set->outputs[i].channel_index);
        if (channel != NULL) {
            dispatch(context->core, channel, event, 0);
            done.copies++;
        }
    }
    gs_add(&context->core->counters.flooded, 1);
    return done;
}

/* Send one copy to each output whose bit is set, in the order of the outputs. */
static inline uint32_t send_due(const arrival_context *context, forwarded_event *event,
                                uint64_t due, const uint32_t *outputs, uint32_t scope)
{
    uint32_t copies = 0;
    for (; due != 0; due &= due - 1) {
        uint32_t next = outputs[__builtin_ctzll(due)];
        gs_channel *channel = channel_at(context->core, next >> 4);
        if (channel == NULL || (channel->floods && channel->level >= scope))
            continue;
        dispatch(context->core, channel, event, next & 15);
        copies++;
    }
    return copies;
}

/* Route a row with more than 64 outputs. Not inlined, so that the path of other rows stays
 * short. */
static __attribute__((noinline)) uint32_t route_wide(const arrival_context *context,
                                                     forwarded_event *event, int64_t slot,
                                                     uint32_t scope)
{
    const gs_row *row = event->row;
    uint64_t due[GS_MAP_WORDS_MAX];
    uint32_t copies = 0;
    for (uint32_t first = 0; first < gs_row_map_words(row); first += GS_MAP_WORDS_MAX) {
        uint32_t left = gs_row_map_words(row) - first;
        uint32_t count = left < GS_MAP_WORDS_MAX ? left : GS_MAP_WORDS_MAX;
        gs_row_due_wide(row, context->active, slot, first, count, due);
        for (uint32_t i = 0; i < count; i++)
            copies +=
                send_due(context, event, due[i], gs_row_outputs(row) + 64UL * (first + i), scope);
    }
    return copies;
}

static inline uint32_t route(const arrival_context *context, forwarded_event *event, int64_t slot,
                             uint32_t scope)
{
    if (event->row->output_count > 64)
        return route_wide(context, event, slot, scope);
    uint64_t due = gs_row_due(event->row, context->active, slot);
    return send_due(context, event, due, gs_row_outputs(event->row), scope);
}

/* Route a plain row: one output, one term. */
static inline __attribute__((always_inline)) uint32_t route_plain(const arrival_context *context,
                                                                  forwarded_event *event,
                                                                  int64_t slot)
{
    const uint64_t *program = event->row->program;
    uint32_t only = (uint32_t)program[GS_PLAIN_OUTPUT];
    if (!gs_term_is_due(program, context->active, gs_slot_magnitude(slot)))
        return 0;
    gs_channel *channel = channel_at(context->core, only >> 4);
    if (channel == NULL)
        return 0;
    dispatch(context->core, channel, event, only & 15);
    return 1;
}

/* Police a stamp that is not near the present. Replayed or late-found events may have any; they
 * must keep a pace by arrival. An aperiodic event is held to its pace after the duplicate check.
 * All others have the bounds of their variable, or the core's. An event is as old as it was on
 * arrival: the publisher cannot help how long it waits for this thread. */
static __attribute__((noinline)) gs_counter *policed_apart(const arrival_context *context,
                                                           const gs_row *row, uint64_t created_ns)
{
    gs_core_counters *counters = &context->core->counters;
    if (!(row->flags & GS_ROW_STAMP_EXEMPT)) {
        uint64_t most_ns = context->core->limits.stamp_bound_ns;
        gs_stamp_bounds bounds = {.ahead_ns = most_ns, .behind_ns = most_ns};
        if (row->flags & GS_ROW_STAMP_BOUNDED && most_ns != UINT64_MAX)
            bounds = *gs_row_stamp_bounds(row);
        bool is_within = gs_stamp_is_within(&bounds, created_ns, context->arrived_wall_ns);
        return is_within ? NULL : &counters->policed_stamp;
    }
    if (!gs_row_is_paced(row->flags))
        return NULL;
    bool keeps = gs_keeps_pace(&context->core->states.paces[row->state], gs_row_interval_ns(row),
                               GS_PACE_BURST_NS, context->arrived_ns);
    return keeps ? NULL : &counters->policed_interval;
}

/* Police a stamp ahead of the present behind the first hop, where no honest event is ahead by more
 * than the bound and a second for the clocks: one forged stamp of the future would silence a sparse
 * flood in its whole scope. */
static __attribute__((noinline)) gs_counter *policed_ahead(const arrival_context *context,
                                                           const gs_row *row, uint64_t created_ns)
{
    uint64_t bound_ns = context->core->limits.stamp_bound_ns, now_ns = context->now.wall_ns;
    uint64_t ahead_ns = created_ns > now_ns ? created_ns - now_ns : 0;
    bool is_forged = ahead_ns > GS_FLOOD_HOLD_NS && ahead_ns - GS_FLOOD_HOLD_NS > bound_ns;
    return is_forged && !(row->flags & GS_ROW_STAMP_EXEMPT) ? &context->core->counters.policed_stamp
                                                            : NULL;
}

/* Return the counter of the rule that the event breaks, or NULL. The first hop accepts of a
 * publisher only its own variables and stamps near the present. */
static inline gs_counter *policed_by(const arrival_context *context, const gs_row *row,
                                     uint64_t created_ns)
{
    gs_core_counters *counters = &context->core->counters;
    if (context->port == GS_PORT_URGENT && !(row->flags & GS_ROW_URGENT))
        return &counters->policed_port;
    if (!context->source->is_publisher)
        return __builtin_expect(row->flood_count != 0, 0) ? policed_ahead(context, row, created_ns)
                                                          : NULL;
    if (row->source != context->source->channel_id)
        return &counters->policed_source;
    if (__builtin_expect(!gs_stamp_is_near(created_ns, context->arrived_wall_ns) ||
                             row->flags & GS_ROW_STAMP_EXEMPT,
                         0))
        return policed_apart(context, row, created_ns);
    return NULL;
}

/* Decide on a slot that is none of the next. Beyond the window our clock may have been set. */
static __attribute__((noinline)) gs_verdict accept_rare(const arrival_context *context,
                                                        const gs_row *row, int64_t slot)
{
    gs_window *window = &context->core->states.windows[row->state];
    bool from_publisher = context->source->is_publisher;
    gs_verdict verdict =
        gs_window_accept_rare(window, &row->period, slot, from_publisher, context->arrived_ns);
    if (verdict < GS_POLICED_JUMP || row->flags & GS_ROW_STAMP_EXEMPT)
        return verdict;
    bool follows = gs_window_follow_clock(window, &row->period, slot, from_publisher,
                                          context->arrived_ns, context->now.wall_ns);
    return follows ? GS_ACCEPTED : verdict;
}

static inline gs_verdict first_copy(const arrival_context *context, const gs_row *row,
                                    const uint8_t *event, int64_t *slot)
{
    uint64_t created_ns = gs_event_created_ns(event);
    bool from_publisher = context->source->is_publisher;
    if (row->flags & GS_ROW_PERIODIC) {
        *slot = gs_slot_of(created_ns, &row->period);
        gs_window *window = &context->core->states.windows[row->state];
        return gs_window_accept_next(window, *slot, from_publisher, context->arrived_ns)
                   ? GS_ACCEPTED
                   : accept_rare(context, row, *slot);
    }
    gs_occurrence occurrence = {
        .created_ns = created_ns,
        .now_ns = context->arrived_ns,
        .expiry_ns = context->core->limits.ring_expiry_ns,
        .interval_ns_min = from_publisher ? row->interval_ns_min : 0,
        .tolerance_ns = row->tolerance_ns,
        .sequence = gs_event_sequence(event),
    };
    *slot = 0; /* Every divisor of an aperiodic row is 1. */
    return gs_ring_accept(&context->core->states.rings[row->state], &occurrence);
}

static inline gs_counter *rejected_by(gs_core_counters *counters, gs_verdict verdict)
{
    switch (verdict) {
    case GS_DUPLICATE:
        return &counters->duplicate;
    case GS_BEYOND:
        return &counters->too_old;
    case GS_POLICED_SLOT:
        return &counters->policed_slot;
    case GS_POLICED_JUMP:
        return &counters->policed_jump;
    case GS_POLICED_INTERVAL:
        return &counters->policed_interval;
    case GS_ACCEPTED:
        break;
    }
    return NULL;
}

/* Count a copy. Not inlined: few rows of few routers count. Flooded slots are left out, because
 * their copies come by channels that are on no path. */
static __attribute__((noinline)) void note_copy(const arrival_context *context, const gs_row *row,
                                                int64_t slot, gs_verdict verdict)
{
    if (verdict != GS_ACCEPTED && verdict != GS_DUPLICATE)
        return;
    if (row->flood_count == 0 || flooding_scope(row, context->active, slot) == NO_SCOPE)
        gs_row_note_copy(row, context->source, slot, verdict == GS_ACCEPTED);
}

/* Note a policed event for the report to its publisher. Behind the first hop the publisher is
 * unknown. */
static __attribute__((noinline, cold)) gs_counter *
note_policed(const arrival_context *context, const gs_row *row, gs_counter *stopped)
{
    if (context->source->is_publisher) {
        uint32_t reason = (uint32_t)(stopped - &context->core->counters.policed_port);
        gs_policed_note(context->core->policed, context->source->channel_id, row->variable_id,
                        reason);
    }
    return stopped;
}

/* Process one event; return the one counter that it ends in. */
static inline gs_counter *pass(const arrival_context *context, const gs_row *row,
                               const uint8_t *bytes)
{
    gs_core_counters *counters = &context->core->counters;
    if (row == NULL)
        return &counters->unknown_variable;
    gs_counter *stopped = policed_by(context, row, gs_event_created_ns(bytes));
    if (stopped != NULL)
        return note_policed(context, row, stopped);
    int64_t slot;
    gs_verdict verdict = first_copy(context, row, bytes, &slot);
    if (__builtin_expect(verdict != GS_ACCEPTED, 0)) {
        if (__builtin_expect(row->flags & GS_ROW_COUNTS_COPIES, 0))
            note_copy(context, row, slot, verdict);
        gs_counter *rejected = rejected_by(counters, verdict);
        bool is_copy = verdict == GS_DUPLICATE || verdict == GS_BEYOND;
        return is_copy ? rejected : note_policed(context, row, rejected);
    }
    forwarded_event event = {
        .bytes = bytes,
        .row = row,
        .arrived_ns = context->arrived_ns,
        .length = gs_event_bytes(bytes),
        .port = row->flags & GS_ROW_URGENT ? GS_PORT_URGENT : GS_PORT_DATA,
    };
    if (__builtin_expect(row->flags & GS_ROW_PLAIN, 1))
        return route_plain(context, &event, slot) ? &counters->dispatched : &counters->not_due;
    if (row->flags & GS_ROW_KEEPS_NEWEST &&
        !gs_newest_keep(gs_row_newest(row), bytes, context->now.steady_ns))
        gs_add(&counters->newest_too_large, 1);
    if (row->flags & GS_ROW_COUNTS_COPIES)
        note_copy(context, row, slot, GS_ACCEPTED);
    if (row->flags & GS_ROW_PLAIN_BUT_KEEPS)
        return route_plain(context, &event, slot) ? &counters->dispatched : &counters->not_due;
    flooding done = {NO_SCOPE, 0};
    if (__builtin_expect(row->flood_count != 0, 0))
        done = flood(context, &event, slot);
    uint32_t copies = done.copies + route(context, &event, slot, done.scope);
    return copies != 0 ? &counters->dispatched : &counters->not_due;
}

/* Three short passes over a group of events: prefetch the slots, prefetch row and window,
 * forward. */
static void pass_group(const arrival_context *context, const uint8_t *const *events, uint32_t count)
{
    const gs_row *rows[GROUP];
    const gs_page *pages[GROUP];
    gs_core *core = context->core;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t hash = gs_hash(gs_event_variable(events[i]));
        pages[i] = gs_page_of(context->root, hash);
        __builtin_prefetch(gs_slot_first(pages[i], hash));
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t variable_id = gs_event_variable(events[i]);
        const gs_slot *slot = gs_find(pages[i], gs_hash(variable_id), variable_id);
        rows[i] = slot == NULL ? NULL : slot->row;
        if (slot == NULL)
            continue;
        __builtin_prefetch(slot->row);
        __builtin_prefetch(slot->row->program);
        __builtin_prefetch(&core->states.windows[slot->state], 1);
    }
    for (uint32_t i = 0; i < count; i++)
        gs_add(pass(context, rows[i], events[i]), 1);
}

static void drain_group(const arrival_context *context, group *open)
{
    if (open->count != 0)
        pass_group(context, open->events, open->count);
    open->count = 0;
}

/* Note a run of consecutive datagrams at once; most arrivals are one run. */
static void note_received(const arrival_context *context)
{
    if (context->source != NULL)
        gs_source_note_run(context->source->state, context->received, context->port,
                           context->now.steady_ns);
}

/* A sealed source accepts only sealed datagrams, any other source only plain ones. */
static inline __attribute__((always_inline)) void
change_source(arrival_context *context, group *open, uint32_t channel_id, bool is_sealed)
{
    if (context->source != NULL) { /* Else nothing came from it, and the group is empty. */
        note_received(context);
        drain_group(context, open);
    }
    const gs_source *source = gs_source_of(context->root->sources, channel_id);
    context->named = is_sealed ? SEALED_CHANNEL | channel_id : channel_id;
    context->source = NULL;
    if (source != NULL && source->is_sealed == is_sealed) {
        context->source = source;
        context->received = source->state->newest;
    }
}

/* Note a probe, or a datagram whose counter is not the next one. */
static __attribute__((noinline)) void receive_out_of_order(arrival_context *context,
                                                           const gs_datagram *read)
{
    gs_source_state *state = context->source->state;
    note_received(context);
    gs_source_note(state, read, context->port, context->now.steady_ns);
    context->received = state->newest;
}

static void count_malformed(gs_core_counters *counters, gs_form form)
{
    gs_add(&counters->in, 1);
    gs_add(&counters->malformed[form], 1);
}

/* Drop a plain datagram of an unknown channel, or of one that accepts only sealed ones. */
static __attribute__((noinline, cold)) void drop_plain(const arrival_context *context,
                                                       uint32_t channel_id, uint32_t event_count)
{
    gs_core_counters *counters = &context->core->counters;
    if (gs_source_of(context->root->sources, channel_id) != NULL) {
        gs_add(&counters->sealed_plain, 1);
        return;
    }
    gs_add(&counters->in, event_count);
    gs_add(&counters->unknown_channel, event_count);
}

/* Add the events of a good datagram, of the present source, to the open group. */
static inline __attribute__((always_inline)) void
take_events(arrival_context *context, group *open, const uint8_t *datagram, const gs_datagram *read)
{
    gs_add(&context->core->counters.in, read->event_count);
    if (__builtin_expect(read->counter == context->received + 1 && read->event_count != 0, 1))
        context->received = read->counter;
    else
        receive_out_of_order(context, read);
    for (uint32_t at = GS_HEADER_BYTES; at < read->events_end;) {
        open->events[open->count++] = datagram + at;
        at += gs_event_bytes(datagram + at);
        if (open->count == GROUP)
            drain_group(context, open);
    }
}

/* Open a sealed datagram, then add its events to the open group. Before it has proved authentic,
 * nothing is counted but why it was dropped. */
static __attribute__((noinline)) void forward_sealed(arrival_context *context, group *open,
                                                     uint8_t *datagram, size_t bytes)
{
    gs_core_counters *counters = &context->core->counters;
    gs_datagram read;
    gs_form form = gs_sealed_read(datagram, bytes, &read);
    if (form != GS_WELL_FORMED) {
        count_malformed(counters, form);
        return;
    }
    if (context->named != (SEALED_CHANNEL | read.channel_id))
        change_source(context, open, read.channel_id, true);
    if (context->source == NULL) {
        gs_add(&counters->sealed_unknown_channel, 1);
        return;
    }
    gs_authenticity found =
        gs_opening_open(&context->source->state->opening, datagram, context->port);
    if (__builtin_expect(found != GS_SEAL_AUTHENTIC, 0)) {
        gs_add(&counters->sealed_unknown_channel + found, 1); /* In the order of the reasons. */
        return;
    }
    form = gs_events_read(datagram, &read);
    if (form != GS_WELL_FORMED)
        count_malformed(counters, form);
    else
        take_events(context, open, datagram, &read);
}

/* A datagram that is not a good plain one: sealed, or malformed. */
static __attribute__((noinline)) void forward_other(arrival_context *context, group *open,
                                                    uint8_t *datagram, size_t bytes, gs_form form)
{
    if (form == GS_MALFORMED_VERSION && datagram[0] == GS_VERSION_SEALED &&
        context->core->limits.versions_max >= GS_VERSION_SEALED)
        forward_sealed(context, open, datagram, bytes);
    else
        count_malformed(&context->core->counters, form);
}

/* Check one datagram as a whole, then add its events to the open group. */
static void forward_datagram(arrival_context *context, group *open, uint8_t *datagram, size_t bytes)
{
    gs_datagram read;
    gs_form form = gs_datagram_read(datagram, bytes, context->core->plain_versions_max, &read);
    if (__builtin_expect(form != GS_WELL_FORMED, 0)) {
        forward_other(context, open, datagram, bytes, form);
        return;
    }
    if (context->named != read.channel_id)
        change_source(context, open, read.channel_id, false);
    if (__builtin_expect(context->source == NULL, 0)) {
        drop_plain(context, read.channel_id, read.event_count);
        return;
    }
    take_events(context, open, datagram, &read);
}

void gs_forward(gs_core *core, const gs_view *view, const gs_arrival *arrival, gs_now now)
{
    uint64_t arrived_ns = arrival->arrived_ns != 0 ? arrival->arrived_ns : now.steady_ns;
    arrival_context context = {
        .core = core,
        .root = view->root,
        .active = view->active,
        .now = now,
        .arrived_ns = arrived_ns,
        .arrived_wall_ns = now.wall_ns - (now.steady_ns - arrived_ns),
        .port = arrival->port,
        .named = NO_CHANNEL,
    };
    group open = {.count = 0};
    uint64_t datagrams = 0;
    size_t at = 0;
    do {
        size_t left = arrival->bytes - at;
        size_t bytes = left < arrival->step ? left : arrival->step;
        forward_datagram(&context, &open, arrival->at + at, bytes);
        at += bytes;
        datagrams++;
    } while (at < arrival->bytes);
    drain_group(&context, &open);
    note_received(&context);
    gs_add(&core->counters.datagrams_in, datagrams);
    gs_add(&core->counters.bytes_in, arrival->bytes);
}

/* --- Sending: open datagrams at once, paced channels as their lines come free -------------- */

static void note_backlog(gs_core *core, gs_channel *channel, uint64_t again_ns)
{
    if (again_ns == GS_IDLE_NS)
        return;
    channel->is_backlogged = true;
    core->backlog[core->backlog_count++] = channel;
    if (again_ns < core->wake_ns)
        core->wake_ns = again_ns;
}

static void pump_channel(gs_core *core, gs_channel *channel, uint64_t steady_ns)
{
    gs_pumping pumping = {.pool = &core->pool, .latency = &core->latency, .now_ns = steady_ns};
    note_backlog(core, channel, gs_egress_pump(channel, &pumping));
}

void gs_pump(gs_core *core, uint64_t steady_ns)
{
    uint32_t count = core->backlog_count;
    core->backlog_count = 0;
    core->wake_ns = GS_IDLE_NS;
    for (uint32_t i = 0; i < count; i++) {
        core->backlog[i]->is_backlogged = false;
        pump_channel(core, core->backlog[i], steady_ns);
    }
}

void gs_flush(gs_core *core, uint64_t steady_ns)
{
    for (uint32_t i = 0; i < core->dirty_count; i++) {
        gs_channel *channel = core->dirty[i];
        channel->is_dirty = false;
        if (channel->queues == NULL) {
            gs_channel_flush(channel);
            channel->sent_ns = steady_ns;
        } else if (!channel->is_backlogged) {
            pump_channel(core, channel, steady_ns);
        }
    }
    core->dirty_count = 0;
    if (core->wake_ns <= steady_ns)
        gs_pump(core, steady_ns);
}

/* --- Probes, and the silence of sources -------------------------------------------------- */

void gs_find_probing(gs_core *core)
{
    core->probing_count = 0;
    core->probe_ns = GS_IDLE_NS;
    for (uint32_t i = 0; i < core->limits.channels_max; i++) {
        gs_channel *channel = __atomic_load_n(&core->channels[i], __ATOMIC_ACQUIRE);
        if (channel == NULL || !gs_channel_is_probing(channel))
            continue;
        core->probing[core->probing_count++] = channel;
        if (channel->next_probe_ns < core->probe_ns)
            core->probe_ns = channel->next_probe_ns;
    }
}

void gs_probe(gs_core *core, uint64_t steady_ns, uint32_t probes_max)
{
    core->probe_ns = GS_IDLE_NS;
    for (uint32_t i = 0; i < core->probing_count; i++) {
        gs_channel *channel = core->probing[i];
        if (channel->next_probe_ns <= steady_ns && probes_max > 0 &&
            gs_channel_needs_probe(channel, steady_ns)) {
            uint32_t bytes = gs_channel_probe(channel, steady_ns);
            /* The probe overtakes queued events, but uses the same line. */
            if (channel->queues != NULL && bytes != 0)
                gs_egress_charge(channel, bytes, steady_ns);
            probes_max--;
        }
        if (channel->next_probe_ns < core->probe_ns)
            core->probe_ns = channel->next_probe_ns;
    }
}

gs_source_facts gs_core_source(const gs_core *core, uint32_t channel_id)
{
    const gs_source *source = gs_source_of(gs_table_sources(core->table), channel_id);
    if (source == NULL)
        return (gs_source_facts){0};
    return gs_source_read(source->state, &core->attention);
}

/* --- Keys, changed by the writer ---------------------------------------------------------- */

void gs_set_sending_key(gs_core *core, gs_channel *channel, gs_sealing *sealing)
{
    gs_sealing *old = gs_channel_swap_key(channel, sealing);
    if (old != NULL)
        gs_table_retire(core->table, gs_sealing_close, old);
    gs_table_pass(core->table);
}

gs_opening *gs_core_opening(const gs_core *core, uint32_t channel_id)
{
    const gs_source *source = gs_source_of(gs_table_sources(core->table), channel_id);
    return source == NULL ? NULL : &source->state->opening;
}

bool gs_set_receiving_keys(gs_core *core, uint32_t channel_id, gs_seal_backend backend,
                           const gs_key_spec *specs, uint32_t count)
{
    gs_opening *opening = gs_core_opening(core, channel_id);
    gs_key_set *fresh = opening == NULL ? NULL : gs_key_set_make(backend, specs, count, opening);
    if (fresh == NULL)
        return false;
    gs_key_set *old = gs_opening_swap(opening, fresh);
    if (old != NULL)
        gs_table_retire(core->table, gs_key_set_release, old);
    gs_table_pass(core->table);
    return true;
}

/* --- Closing a channel: the core keeps no pointer to it ----------------------------------- */

static uint32_t leave_out(gs_channel **channels, uint32_t count, const gs_channel *channel)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (channels[i] != channel)
            channels[kept++] = channels[i];
    return kept;
}

void gs_forget(gs_core *core, gs_channel *channel)
{
    core->backlog_count = leave_out(core->backlog, core->backlog_count, channel);
    core->probing_count = leave_out(core->probing, core->probing_count, channel);
    channel->is_backlogged = false;
    if (channel->queues != NULL)
        gs_egress_drop(channel, &core->pool);
}

/* --- Counters, read by other threads ------------------------------------------------------ */

gs_core_counters gs_core_counters_read(const gs_core *core)
{
    gs_core_counters copy;
    const gs_counter *from = (const gs_counter *)&core->counters;
    gs_counter *to = (gs_counter *)&copy;
    uint64_t before, after;
    uint32_t tries = 0;
    do {
        if (tries > COUNTER_SPINS_MAX) /* The thread was interrupted within a call. */
            nanosleep(&(struct timespec){.tv_nsec = COUNTER_NAP_NS}, NULL);
        before = __atomic_load_n(&core->version, __ATOMIC_ACQUIRE);
        for (size_t i = 0; i < sizeof copy / sizeof(gs_counter); i++)
            to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
        after = __atomic_load_n(&core->version, __ATOMIC_RELAXED);
    } while ((before != after || (before & 1) != 0) && ++tries < COUNTER_TRIES_MAX);
    return copy;
}
