/* Keys of sealed channels: the one that a sender uses, and the set that a receiver accepts.
 *
 * The control side makes keys and swaps pointers to them, one atomic store each; the thread that
 * sends or receives uses them without a lock. Whoever swaps keeps the old ones until that thread
 * holds them no more. A key's windows move by authentic datagrams alone.
 */
#ifndef GS_CHANNEL_KEYS_H
#define GS_CHANNEL_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "counters.h"
#include "seal.h"

#define GS_ACCEPTED_KEYS_MAX 8U
#define GS_KEY_PORTS         2U
#define GS_EPOCH_WORDS       4U /* A bit for each of the 256 values of the header's epoch. */

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

typedef struct {
    gs_seal_key *key;
    uint8_t epoch;
    gs_replay_window windows[GS_KEY_PORTS];
} gs_accepted_key;

typedef struct {
    uint32_t count;
    gs_accepted_key *keys[GS_ACCEPTED_KEYS_MAX];
    bool is_dropped[GS_ACCEPTED_KEYS_MAX]; /* The writer's: released with this set. */
} gs_key_set;

/* What an incoming channel knows of its keys. */
typedef struct {
    gs_key_set *keys;                 /* Atomic; NULL: none. */
    gs_counter epoch;                 /* Of the last authentic datagram, and 1; 0: none. */
    uint64_t unknown[GS_EPOCH_WORDS]; /* Atomic: epochs for which there was no key. */
} gs_opening;

typedef enum {
    GS_SEAL_AUTHENTIC = 0,
    GS_SEAL_UNKNOWN_EPOCH,
    GS_SEAL_REPLAYED,
    GS_SEAL_FORGED,
} gs_authenticity;

/* Open a sealed datagram in place, whose lengths `gs_sealed_read` has checked. Only an authentic
 * one moves anything but the set of unknown epochs. */
gs_authenticity gs_opening_open(gs_opening *opening, uint8_t *datagram, uint32_t port);

/* Make the set of accepted keys; one that was accepted before keeps its windows. NULL: there is no
 * such backend. It has fewer keys than `count` if there was no memory for all. */
gs_key_set *gs_key_set_make(gs_seal_backend backend, const gs_key_spec *specs, uint32_t count,
                            gs_key_set *before);

/* Put a set in place and return the one before, which goes to `gs_key_set_release` when the
 * receiving thread holds it no more. */
gs_key_set *gs_opening_swap(gs_opening *opening, gs_key_set *fresh);
void gs_key_set_release(void *set);         /* With its dropped keys; NULL is no error. */
void gs_opening_close(gs_opening *opening); /* Releases all; no thread may use it any more. */

/* Return the epoch of the last authentic datagram since the last call, and 1; 0: none has come. */
uint64_t gs_opening_take_epoch(gs_opening *opening);

/* Move the epochs for which there was no key into `taken`. */
void gs_opening_take_unknown(gs_opening *opening, uint64_t taken[GS_EPOCH_WORDS]);

#endif
