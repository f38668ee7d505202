#include "sender.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "channel.h"
#include "event.h"
#include "loop.h"
#include "memory.h"
#include "platform.h"
#include "variable_index.h"

#define RUN_EVENTS_MAX      (GS_RUN_BYTES_MAX / GS_EVENT_BYTES)
#define WAIT_MS             100
#define FULL_DEVICE_WAIT_NS 1000000L
#define MTU_BYTES_MIN       256U

/* Datagrams to be sent: all as long as the stride except the last. */
typedef struct {
    uint8_t *bytes;
    uint32_t length;
    uint32_t sent;
    uint32_t stride;
    uint32_t event_bytes;
    uint32_t port;
    bool may_fragment; /* Larger than the path takes in one piece. */
    bool was_refused;
} gs_outgoing_run;

struct gs_sender {
    uint32_t channel_id;
    uint32_t version;
    uint32_t mtu_bytes;
    bool is_posix, has_gso;
    bool may_fragment[GS_PORTS]; /* As the socket is set now. */
    int sockets[GS_PORTS];
    uint32_t fork_generation;
    uint32_t variables_max, variable_count;
    gs_variable_index index;
    uint16_t *sequences;
    gs_counter counter;
    uint32_t overhead;   /* Bytes of a datagram beside its events. */
    gs_sealing *sealing; /* In use; NULL: not sealed, or no key yet. */
    gs_sealing *asked;   /* Atomic: the key to use from the next run on; NULL: no other. */
    bool is_used_up;     /* The key in use may seal no other run. */
    gs_sealing *ended;   /* Atomic: the one before it, for the control side to close. */
    gs_sealing *newest;  /* The control side's: the key set last; NULL: none. */
    gs_outgoing_run lone, run;
    gs_sender_counters counters;
    pthread_mutex_t lock;
    uint32_t places[RUN_EVENTS_MAX];
};

/* --- Handing a run to the kernel --------------------------------------------------------- */

static uint32_t datagrams_in(const gs_outgoing_run *run, uint32_t bytes)
{
    return (bytes + run->stride - 1) / run->stride;
}

static uint32_t events_in(const gs_sender *sender, const gs_outgoing_run *run, uint32_t bytes)
{
    return (bytes - datagrams_in(run, bytes) * sender->overhead) / run->event_bytes;
}

static ssize_t send_rest(const gs_sender *sender, const gs_outgoing_run *run)
{
    int socket_ = sender->sockets[run->port];
    const uint8_t *bytes = run->bytes + run->sent;
    uint32_t count = run->length - run->sent;
    if (sender->has_gso && !run->may_fragment && count > run->stride)
        return gs_send_segments(socket_, bytes, count, (uint16_t)run->stride);
    return gs_send_each(socket_, bytes, count, run->stride, sender->is_posix);
}

/* The path's MTU is smaller than assumed: read it for the next runs, and let this one be
 * fragmented. */
static void narrow(gs_sender *sender, gs_outgoing_run *run)
{
    int socket_ = sender->sockets[run->port];
    uint32_t payload_bytes = gs_path_payload_bytes(socket_, gs_socket_is_ipv6(socket_));
    if (payload_bytes >= MTU_BYTES_MIN && payload_bytes < sender->mtu_bytes)
        sender->mtu_bytes = payload_bytes;
    gs_add(&sender->counters.mtu_changes, 1);
    run->may_fragment = true;
    sender->has_gso =
        GS_LINUX && !sender->is_posix; /* The failure that looked like missing GSO was this. */
}

/* Handle a call that sent nothing: DONE to try again, else the status of the run. */
static gs_send_status recover(gs_sender *sender, gs_outgoing_run *run)
{
    switch (errno) {
    case EINTR:
        return GS_SEND_DONE;
    case EAGAIN:
    case ENOBUFS:
        return GS_SEND_BLOCKED;
    case ECONNREFUSED: /* Reports an earlier datagram; this one has not been tried. */
        gs_add(&sender->counters.refused, 1);
        if (run->was_refused)
            return GS_SEND_FAILED;
        run->was_refused = true;
        return GS_SEND_DONE;
    case EMSGSIZE:
        if (run->may_fragment)
            return GS_SEND_FAILED;
        narrow(sender, run);
        return GS_SEND_DONE;
    case EINVAL:
    case EIO:
        if (!sender->has_gso)
            return GS_SEND_FAILED;
        gs_add(&sender->counters.fallback, 1);
        sender->has_gso = false;
        return GS_SEND_DONE;
    default:
        return GS_SEND_FAILED;
    }
}

static void set_fragmenting(gs_sender *sender, const gs_outgoing_run *run)
{
    if (sender->may_fragment[run->port] == run->may_fragment)
        return;
    int socket_ = sender->sockets[run->port];
    gs_let_fragment(socket_, gs_socket_is_ipv6(socket_), run->may_fragment);
    sender->may_fragment[run->port] = run->may_fragment;
}

static void count_sent(gs_sender *sender, const gs_outgoing_run *run, uint32_t bytes)
{
    gs_add(&sender->counters.sent, events_in(sender, run, bytes));
    gs_add(&sender->counters.datagrams_out, datagrams_in(run, bytes));
    gs_add(&sender->counters.bytes_out, bytes);
}

static gs_send_status send_run(gs_sender *sender, gs_outgoing_run *run)
{
    while (run->sent < run->length) {
        set_fragmenting(sender, run);
        ssize_t bytes = send_rest(sender, run);
        if (bytes > 0) {
            count_sent(sender, run, (uint32_t)bytes);
            run->sent += (uint32_t)bytes;
            run->was_refused = false;
            continue;
        }
        gs_send_status status = recover(sender, run);
        if (status != GS_SEND_DONE)
            return status;
    }
    return GS_SEND_DONE;
}

static void drop_rest(const gs_sender *sender, gs_outgoing_run *run, gs_counter *reason)
{
    if (run->sent < run->length)
        gs_add(reason, events_in(sender, run, run->length - run->sent));
    run->sent = run->length;
}

/* --- Building events --------------------------------------------------------------------- */

/* Return the place of the variable's sequence; GS_NO_PLACE when there are too many variables. */
static uint32_t place_of(gs_sender *sender, uint32_t variable_id)
{
    uint32_t place = gs_variable_index_find(&sender->index, variable_id);
    if (__builtin_expect(place != GS_NO_PLACE || sender->variable_count == sender->variables_max,
                         1))
        return place;
    place = sender->variable_count++;
    gs_variable_index_put(&sender->index, variable_id, place);
    return place;
}

static bool is_sealed(const gs_sender *sender)
{
    return sender->version == GS_VERSION_SEALED;
}

/* Write the header of a datagram whose events stand behind it, and seal it. Returns its bytes. */
static inline uint32_t finish_datagram(gs_sender *sender, uint8_t *at, uint32_t length,
                                       uint32_t port)
{
    uint64_t counter = gs_read(&sender->counter) + 1;
    gs_set(&sender->counter, counter);
    if (!is_sealed(sender)) {
        gs_header_write(at, sender->version, length, sender->channel_id, counter);
        return length;
    }
    if (gs_sealing_count(sender->sealing))
        sender->is_used_up = true;
    gs_sealing_write(sender->sealing, at, length, sender->channel_id, counter, port);
    return length + GS_TAG_BYTES;
}

static inline void write_event(uint8_t *at, uint64_t created_ns, uint32_t variable_id,
                               uint32_t option_count, uint8_t flags, uint16_t sequence)
{
    gs_store_u64(at, created_ns);
    gs_store_u32(at + 8, variable_id);
    at[12] = (uint8_t)option_count;
    at[13] = flags;
    gs_store_u16(at + 14, sequence);
}

/* Send the datagram of `length` whose events stand in the buffer for a lone one. */
static gs_send_status send_lone(gs_sender *sender, uint32_t length, uint32_t port)
{
    gs_outgoing_run *run = &sender->lone;
    run->length = run->stride = finish_datagram(sender, run->bytes, length, port);
    run->sent = 0;
    run->port = port;
    run->may_fragment = run->length > sender->mtu_bytes;
    run->was_refused = false;
    return send_run(sender, run);
}

/* Stands in `asked` for no key at all. */
static gs_sealing no_sealing;

/* Use the key that was asked for. The one in use is closed by the control side, which may read it
 * just now; should it not have closed the one before yet, the change waits for that. */
static __attribute__((noinline)) void take_asked(gs_sender *sender)
{
    if (__atomic_load_n(&sender->ended, __ATOMIC_ACQUIRE) != NULL)
        return;
    gs_sealing *fresh = __atomic_exchange_n(&sender->asked, NULL, __ATOMIC_ACQ_REL);
    if (fresh == NULL)
        return;
    gs_sealing *before = sender->sealing;
    sender->is_used_up = false;
    __atomic_store_n(&sender->sealing, fresh == &no_sealing ? NULL : fresh, __ATOMIC_RELEASE);
    __atomic_store_n(&sender->ended, before, __ATOMIC_RELEASE);
}

/* Between runs alone: the next one is sealed with the newest key. */
static bool has_no_key(gs_sender *sender)
{
    if (!is_sealed(sender))
        return false;
    if (__builtin_expect(__atomic_load_n(&sender->asked, __ATOMIC_RELAXED) != NULL, 0))
        take_asked(sender);
    return sender->sealing == NULL || sender->is_used_up;
}

gs_send_status gs_sender_send(gs_sender *sender, const gs_outgoing *event)
{
    uint32_t place = place_of(sender, event->variable_id);
    if (place == GS_NO_PLACE)
        return GS_SEND_TOO_MANY_VARIABLES;
    uint32_t options = event->record_bytes <= 8 ? 0 : (event->record_bytes - 8 + 23) / 24;
    gs_add(&sender->counters.events, 1);
    if (has_no_key(sender)) {
        gs_add(&sender->counters.no_key, 1);
        return GS_SEND_NO_KEY;
    }
    gs_outgoing_run *run = &sender->lone;
    run->event_bytes = GS_EVENT_BYTES + GS_OPTION_BYTES * options;

    uint8_t *at = run->bytes + GS_HEADER_BYTES;
    uint64_t created_ns = event->is_created_now ? gs_clock_ns(CLOCK_REALTIME) : event->created_ns;
    write_event(at, created_ns, event->variable_id, options, event->flags,
                event->has_sequence ? event->sequence : sender->sequences[place]++);
    memcpy(at + 16, event->record, event->record_bytes);
    memset(at + 16 + event->record_bytes, 0, run->event_bytes - 16 - event->record_bytes);

    gs_send_status status = send_lone(sender, GS_HEADER_BYTES + run->event_bytes,
                                      event->is_urgent ? GS_PORT_URGENT : GS_PORT_DATA);
    bool is_blocked = status == GS_SEND_BLOCKED;
    drop_rest(sender, run,
              is_blocked ? &sender->counters.would_block : &sender->counters.send_failed);
    return status;
}

gs_send_status gs_sender_probe(gs_sender *sender)
{
    gs_outgoing_run *run = &sender->lone;
    if (has_no_key(sender))
        return GS_SEND_NO_KEY;
    run->event_bytes = GS_EVENT_BYTES;
    gs_send_status status = send_lone(sender, GS_HEADER_BYTES, GS_PORT_DATA);
    gs_add(&sender->counters.probes, status == GS_SEND_DONE);
    run->sent = run->length;
    return status;
}

/* Plan the next run: full datagrams, as many as one call may carry. */
static uint32_t plan_run(gs_sender *sender, const gs_outgoing_batch *batch)
{
    gs_outgoing_run *run = &sender->run;
    run->event_bytes = GS_EVENT_BYTES + GS_OPTION_BYTES * batch->option_count;
    uint32_t per_datagram = (sender->mtu_bytes - sender->overhead) / run->event_bytes;
    run->may_fragment = per_datagram == 0;
    if (batch->events_per_datagram != 0 && batch->events_per_datagram < per_datagram)
        per_datagram = batch->events_per_datagram;
    if (per_datagram == 0)
        per_datagram = 1;
    run->stride = sender->overhead + per_datagram * run->event_bytes;
    run->port = GS_PORT_DATA;
    run->was_refused = false;
    run->sent = 0;
    uint32_t datagrams = GS_RUN_BYTES_MAX / run->stride;
    if (datagrams > GS_RUN_SEGMENTS_MAX)
        datagrams = GS_RUN_SEGMENTS_MAX;
    uint64_t left = batch->count - batch->done;
    uint32_t events = datagrams * per_datagram;
    return left < events ? (uint32_t)left : events;
}

static inline void write_batched(gs_sender *sender, const gs_outgoing_batch *batch, uint32_t index,
                                 uint8_t *at)
{
    uint64_t from = batch->done + index;
    write_event(at, batch->created_ns[from], batch->variable_ids[from], batch->option_count,
                batch->flags, sender->sequences[sender->places[index]]++);
    gs_store_u64(at + 16, batch->values[from]);
    uint64_t option_bytes = (uint64_t)GS_OPTION_BYTES * batch->option_count;
    if (option_bytes != 0)
        memcpy(at + GS_EVENT_BYTES, batch->options + from * option_bytes, option_bytes);
}

/* False when not even the first event has a place for its sequence. */
static bool build_run(gs_sender *sender, const gs_outgoing_batch *batch)
{
    gs_outgoing_run *run = &sender->run;
    uint32_t planned = plan_run(sender, batch);
    uint32_t count = 0;
    for (; count < planned; count++) {
        uint32_t place = place_of(sender, batch->variable_ids[batch->done + count]);
        if (place == GS_NO_PLACE)
            break;
        sender->places[count] = place;
    }
    uint8_t *at = run->bytes;
    uint32_t per_datagram = (run->stride - sender->overhead) / run->event_bytes;
    for (uint32_t i = 0; i < count;) {
        uint32_t end = count - i < per_datagram ? count : i + per_datagram;
        uint32_t length = GS_HEADER_BYTES;
        for (; i < end; i++) {
            write_batched(sender, batch, i, at + length);
            length += run->event_bytes;
        }
        at += finish_datagram(sender, at, length, run->port);
    }
    run->length = (uint32_t)(at - run->bytes);
    gs_add(&sender->counters.events, count);
    return count != 0;
}

/* True when the socket takes more; false after a while, or when the device's queue is full. */
static bool wait_for_room(const gs_sender *sender)
{
    if (errno == ENOBUFS) {
        struct timespec pause = {.tv_nsec = FULL_DEVICE_WAIT_NS};
        nanosleep(&pause, NULL);
        return false;
    }
    struct pollfd room = {.fd = sender->sockets[GS_PORT_DATA], .events = POLLOUT};
    return poll(&room, 1, WAIT_MS) > 0;
}

gs_send_status gs_sender_send_many(gs_sender *sender, gs_outgoing_batch *batch)
{
    gs_outgoing_run *run = &sender->run;
    while (batch->done < batch->count) {
        if (run->sent == run->length && has_no_key(sender)) {
            gs_add(&sender->counters.events, batch->count - batch->done);
            gs_add(&sender->counters.no_key, batch->count - batch->done);
            batch->done = batch->count;
            return GS_SEND_NO_KEY;
        }
        if (run->sent == run->length && !build_run(sender, batch))
            return GS_SEND_TOO_MANY_VARIABLES;
        uint64_t sent_before = gs_read(&sender->counters.sent);
        gs_send_status status = send_run(sender, run);
        batch->sent += gs_read(&sender->counters.sent) - sent_before;
        if (status == GS_SEND_BLOCKED) {
            if (!wait_for_room(sender))
                return GS_SEND_BLOCKED;
            continue;
        }
        drop_rest(sender, run, &sender->counters.send_failed);
        batch->done += events_in(sender, run, run->length);
    }
    return batch->sent == batch->count ? GS_SEND_DONE : GS_SEND_FAILED;
}

void gs_sender_restart_sequences(gs_sender *sender)
{
    memset(sender->sequences, 0, sender->variable_count * sizeof *sender->sequences);
}

void gs_sender_abandon(gs_sender *sender)
{
    drop_rest(sender, &sender->run, &sender->counters.send_failed);
}

/* --- Opening and closing ----------------------------------------------------------------- */

gs_end_status gs_sender_retarget(gs_sender *sender, const char *host, const uint16_t ports[2])
{
    int opened[GS_PORTS] = {-1, -1};
    gs_end_status status = GS_END_OK;
    for (uint32_t port = 0; port < GS_PORTS && status == GS_END_OK; port++) {
        gs_endpoint peer = {host, ports[port], sender->is_posix};
        status = gs_socket_connect(&peer, &opened[port]);
    }
    for (uint32_t port = 0; port < GS_PORTS; port++) {
        if (status == GS_END_OK) {
            gs_socket_close(&sender->sockets[port]);
            sender->sockets[port] = opened[port];
            sender->may_fragment[port] = false;
        } else {
            gs_socket_close(&opened[port]);
        }
    }
    return status;
}

gs_end_status gs_sender_open(const gs_sender_options *options, gs_sender **opened)
{
    gs_sender *sender = gs_allocate(sizeof *sender);
    sender->channel_id = options->channel_id;
    sender->version = options->version;
    sender->counter = options->counter_start;
    sender->mtu_bytes = options->mtu_bytes;
    sender->variables_max = options->variables_max;
    sender->is_posix = options->is_posix;
    sender->has_gso = GS_LINUX && !options->is_posix;
    sender->fork_generation = gs_fork_generation();
    sender->sockets[0] = sender->sockets[1] = -1;
    sender->overhead = GS_HEADER_BYTES + (is_sealed(sender) ? GS_TAG_BYTES : 0);
    sender->lone.bytes = gs_allocate(GS_HEADER_BYTES + GS_EVENT_BYTES_MAX + GS_TAG_BYTES);
    sender->run.bytes = gs_allocate(GS_RUN_BYTES_MAX);
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&sender->lock, &kind);
    pthread_mutexattr_destroy(&kind);
    sender->sequences = gs_lazy_allocate(options->variables_max * sizeof *sender->sequences);
    bool has_index = gs_variable_index_open(&sender->index, options->variables_max);
    gs_end_status status = GS_END_NO_MEMORY;
    if (sender->sequences != NULL && has_index)
        status = gs_sender_retarget(sender, options->host, options->ports);
    if (status != GS_END_OK)
        gs_sender_close(sender);
    else
        *opened = sender;
    return status;
}

void gs_sender_shut(gs_sender *sender)
{
    for (uint32_t port = 0; port < GS_PORTS; port++)
        gs_socket_close(&sender->sockets[port]);
}

void gs_sender_close(gs_sender *sender)
{
    gs_sender_shut(sender);
    gs_sender_set_key(sender, NULL);
    gs_sealing_close(sender->sealing);
    gs_variable_index_close(&sender->index);
    gs_lazy_release(sender->sequences, sender->variables_max * sizeof *sender->sequences);
    gs_release(sender->lone.bytes);
    gs_release(sender->run.bytes);
    pthread_mutex_destroy(&sender->lock);
    gs_release(sender);
}

static void close_ended(gs_sender *sender)
{
    gs_sealing_close(__atomic_exchange_n(&sender->ended, NULL, __ATOMIC_ACQ_REL));
}

void gs_sender_set_key(gs_sender *sender, gs_sealing *sealing)
{
    close_ended(sender);
    sender->newest = sealing;
    gs_sealing *asked = sealing == NULL ? &no_sealing : sealing;
    gs_sealing *untaken = __atomic_exchange_n(&sender->asked, asked, __ATOMIC_ACQ_REL);
    if (untaken != &no_sealing)
        gs_sealing_close(untaken);
    if (gs_sender_try_lock(sender)) { /* Else the call under way takes it at its next run. */
        close_ended(sender);
        take_asked(sender);
        gs_sender_unlock(sender);
        close_ended(sender);
    }
}

/* Of the two fields that the sending thread changes, `asked` is empty before `sealing` is the new
 * key: who asks in between must not be told of the key before. */
const gs_sealing *gs_sender_key(gs_sender *sender)
{
    close_ended(sender);
    return sender->newest;
}

/* --- Calls from Python ------------------------------------------------------------------ */

bool gs_sender_try_lock(gs_sender *sender)
{
    return pthread_mutex_trylock(&sender->lock) == 0;
}

bool gs_sender_lock(gs_sender *sender)
{
    return pthread_mutex_lock(&sender->lock) == 0;
}

void gs_sender_unlock(gs_sender *sender)
{
    pthread_mutex_unlock(&sender->lock);
}

bool gs_sender_is_foreign(const gs_sender *sender)
{
    return sender->fork_generation != gs_fork_generation();
}

int gs_sender_socket(const gs_sender *sender, uint32_t port)
{
    return sender->sockets[port];
}

uint32_t gs_sender_mtu_bytes(const gs_sender *sender)
{
    return sender->mtu_bytes;
}

uint32_t gs_sender_version(const gs_sender *sender)
{
    return sender->version;
}

uint64_t gs_sender_counter(const gs_sender *sender)
{
    return gs_read(&sender->counter);
}

const gs_sender_counters *gs_sender_counted(const gs_sender *sender)
{
    return &sender->counters;
}
