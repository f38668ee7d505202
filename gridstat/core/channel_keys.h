/* Keys of sealed channels: the one that a sender uses, and the set that a receiver accepts.
 *
 * The control side makes keys and swaps pointers to them, one atomic store each; the thread that
 * sends or receives uses them without a lock. Whoever swaps keeps the old ones until that thread
 * holds them no more. A key's windows move by authentic datagrams alone.
 *
 * A key that was dropped may be accepted again, and whoever has recorded a datagram under it waits
 * for that. So one that has opened anything is kept, with its windows, until the control side was
 * told so after the thread had let go of it. From then on the control side answers for it: it
 * follows the epoch, or never accepts the key again.
 */
#ifndef GS_CHANNEL_KEYS_H
#define GS_CHANNEL_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "counters.h"
#include "seal.h"

#define GS_ACCEPTED_KEYS_MAX 8U
#define GS_KEY_PORTS         2U
#define GS_EPOCH_WORDS       4U  /* A bit for each of the 256 values of the header's epoch. */
#define GS_DROPPED_KEYS_MAX  16U /* Kept with their windows, if nobody asks what they opened. */

typedef struct {
    uint8_t epoch;
    uint8_t key[GS_SEAL_KEY_BYTES];
    uint8_t salt[GS_SEAL_SALT_BYTES];
} gs_key_spec;

/* --- Sending ----------------------------------------------------------------------------- */

/* Datagrams under one key since it was set. There is room to 2^23 for those of the runs that are
 * open when it is reached, and for those before the channel was opened again with the same key. The
 * control side changes keys long before; if it is late, nothing more is sealed. */
#define GS_SEALED_DATAGRAMS_MAX ((1U << 23) - (1U << 19))

typedef struct {
    gs_seal_key *key;
    gs_counter left; /* Datagrams that it may still seal. */
    uint8_t epoch;
} gs_sealing;

gs_sealing *gs_sealing_open(gs_seal_backend backend, const gs_key_spec *spec); /* NULL: none. */
void gs_sealing_close(void *sealing); /* Wipes the key; NULL is no error. */

static inline uint64_t gs_sealing_datagrams(const gs_sealing *sealing)
{
    return GS_SEALED_DATAGRAMS_MAX - gs_read(&sealing->left);
}

/* Count a datagram that is about to be sealed. True: the key is used up, and the caller takes it
 * for no other run. */
static inline bool gs_sealing_count(gs_sealing *sealing)
{
    uint64_t left = gs_read(&sealing->left) - 1;
    gs_set(&sealing->left, left);
    return __builtin_expect((int64_t)left <= 0, 0);
}

/* Write the header of a datagram of `length`, the tag not counted, and seal it in place. */
static inline void gs_sealing_write(gs_sealing *sealing, uint8_t *datagram, uint32_t length,
                                    uint32_t channel_id, uint64_t counter, uint32_t port)
{
    gs_header_write(datagram, GS_VERSION_SEALED, length, channel_id, counter);
    datagram[1] = sealing->epoch;
    gs_seal(sealing->key, datagram, length, port);
}

/* --- Receiving --------------------------------------------------------------------------- */

typedef struct gs_accepted_key {
    gs_seal_key *key;
    uint8_t epoch;
    bool is_told;         /* The writer's: dropped, and what it opened was asked for since. */
    uint32_t holders;     /* The writer's: sets, retired ones too, and the list of the dropped. */
    gs_counter is_opener; /* Atomic: 1 if it has opened a datagram since that was asked for. */
    gs_replay_window windows[GS_KEY_PORTS];
    struct gs_accepted_key *next; /* The writer's: dropped before this one. */
} gs_accepted_key;

typedef struct {
    uint32_t count;
    gs_accepted_key *keys[GS_ACCEPTED_KEYS_MAX];
} gs_key_set;

/* What an incoming channel knows of its keys. */
typedef struct {
    gs_key_set *keys;                 /* Atomic; NULL: none. */
    gs_accepted_key *dropped;         /* The writer's: the newest of those that may come back. */
    uint64_t unknown[GS_EPOCH_WORDS]; /* Atomic: epochs for which there was no key. */
} gs_opening;

/* Sets of epochs, each since the last time that they were asked for. */
typedef struct {
    uint64_t opened[GS_EPOCH_WORDS];  /* Of accepted keys that have opened datagrams. */
    uint64_t dropped[GS_EPOCH_WORDS]; /* Of keys that have done so and are no longer accepted. */
    uint64_t unknown[GS_EPOCH_WORDS]; /* For which there was no key. */
} gs_epochs_seen;

typedef enum {
    GS_SEAL_AUTHENTIC = 0,
    GS_SEAL_UNKNOWN_EPOCH,
    GS_SEAL_REPLAYED,
    GS_SEAL_FORGED,
} gs_authenticity;

/* Open a sealed datagram in place, whose lengths `gs_sealed_read` has checked. Only an authentic
 * one moves anything but the set of unknown epochs. */
gs_authenticity gs_opening_open(gs_opening *opening, uint8_t *datagram, uint32_t port);

/* Make the next set of accepted keys; one that was accepted before keeps its windows. NULL: there
 * is no such backend. It has fewer keys than `count` if there was no memory for all. */
gs_key_set *gs_key_set_make(gs_seal_backend backend, const gs_key_spec *specs, uint32_t count,
                            gs_opening *opening);

/* Put a set in place and return the one before, which goes to `gs_key_set_release` when the
 * receiving thread holds it no more. */
gs_key_set *gs_opening_swap(gs_opening *opening, gs_key_set *fresh);
void gs_key_set_release(void *set);         /* With the keys that nobody keeps; NULL is no error. */
void gs_opening_close(gs_opening *opening); /* Releases all; no thread may use it any more. */

/* Move what was seen since the last call into `seen`. */
void gs_opening_take(gs_opening *opening, gs_epochs_seen *seen);

#endif
