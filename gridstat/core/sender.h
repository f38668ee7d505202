/* The sending end: one event leaves at once in a datagram of its own; many leave packed.
 *
 * A lone event never waits for company (S0 §8.2.4). `send_many` fills datagrams up to the MTU and
 * hands runs of equal datagrams to the kernel in one GSO call. Buffers are made at the start; no
 * call that sends allocates. Every event ends in exactly one counter:
 * events = sent + send_failed + would_block + no_key.
 */
#ifndef GS_SENDER_H
#define GS_SENDER_H

#include <stdbool.h>
#include <stdint.h>

#include "channel_keys.h"
#include "counters.h"
#include "end_socket.h"

#define GS_RECORD_BYTES_MAX (8U + 255U * 24U)

typedef struct {
    uint32_t channel_id;
    const char *host;
    uint16_t ports[2];
    uint32_t mtu_bytes;
    uint32_t variables_max;
    uint32_t version;       /* Of its datagrams; sealed if it is the sealed one. */
    uint64_t counter_start; /* Counter of the last datagram ever sent under this channel id. */
    bool is_posix;
} gs_sender_options;

typedef struct {
    gs_counter events, sent, send_failed, would_block;
    gs_counter datagrams_out, bytes_out;
    gs_counter fallback;    /* Runs for which the kernel or the device refused GSO. */
    gs_counter mtu_changes; /* How often the path proved narrower than thought. */
    gs_counter refused;     /* ICMP errors about earlier datagrams. */
    gs_counter probes;      /* Sent; no events are in them. */
    gs_counter no_key;      /* Events of a sealed channel without a key, or with a used up one. */
} gs_sender_counters;

typedef enum {
    GS_SEND_DONE = 0,
    GS_SEND_FAILED,
    GS_SEND_BLOCKED, /* No failure: call again. */
    GS_SEND_TOO_MANY_VARIABLES,
    GS_SEND_NO_KEY,
} gs_send_status;

typedef struct {
    uint32_t variable_id;
    uint8_t flags;
    bool is_urgent;
    bool has_sequence; /* Else the variable's next number is used. */
    uint16_t sequence;
    bool is_created_now; /* Then the stamp is read just before the kernel call. */
    uint64_t created_ns;
    const uint8_t *record; /* In wire order: the value, then the options. */
    uint32_t record_bytes;
} gs_outgoing;

typedef struct {
    const uint32_t *variable_ids;
    const uint64_t *created_ns;
    const uint64_t *values; /* Eight bytes each, in the host's order. */
    const uint8_t *options; /* `option_count` of 24 bytes for each event. */
    uint64_t count;
    uint32_t option_count;
    uint32_t events_per_datagram; /* 0: as many as the MTU takes. */
    uint8_t flags;
    uint64_t done; /* How far the call has come. */
    uint64_t sent; /* Of these, how many the kernel took. */
} gs_outgoing_batch;

typedef struct gs_sender gs_sender;

gs_end_status gs_sender_open(const gs_sender_options *options, gs_sender **opened);
void gs_sender_shut(gs_sender *sender);  /* Closes the sockets; the caller holds the lock. */
void gs_sender_close(gs_sender *sender); /* No thread may use it any more. */

/* Send elsewhere from now on, all else as before; with an error nothing has changed. The caller
 * holds the lock. */
gs_end_status gs_sender_retarget(gs_sender *sender, const char *host, const uint16_t ports[2]);

/* Number the events of every variable from 0 again; the caller holds the lock. */
void gs_sender_restart_sequences(gs_sender *sender);

/* Seal with this key from the next run on; NULL: with none, so that nothing is sent. The control
 * side changes and reads keys one call at a time and without the lock: it never waits for a call
 * that sends. A key lives until the control side's next call. */
void gs_sender_set_key(gs_sender *sender, gs_sealing *sealing);
const gs_sealing *gs_sender_key(gs_sender *sender); /* The newest one; NULL: none. */

/* One caller at a time. False: this very thread is inside a call already. */
bool gs_sender_try_lock(gs_sender *sender);
bool gs_sender_lock(gs_sender *sender);
void gs_sender_unlock(gs_sender *sender);

gs_send_status gs_sender_send(gs_sender *sender, const gs_outgoing *event);

/* A datagram without events; from version 2 on. */
gs_send_status gs_sender_probe(gs_sender *sender);

/* Returns GS_SEND_BLOCKED now and then, so that Python can handle its signals. */
gs_send_status gs_sender_send_many(gs_sender *sender, gs_outgoing_batch *batch);

/* Drop what a blocked call has left unsent. */
void gs_sender_abandon(gs_sender *sender);

bool gs_sender_is_foreign(const gs_sender *sender); /* Opened before this fork. */
int gs_sender_socket(const gs_sender *sender, uint32_t port);
uint32_t gs_sender_mtu_bytes(const gs_sender *sender);
uint32_t gs_sender_version(const gs_sender *sender);
uint64_t gs_sender_counter(const gs_sender *sender); /* Of the last datagram. */
const gs_sender_counters *gs_sender_counted(const gs_sender *sender);

#endif
