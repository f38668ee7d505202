/* Sealing of datagrams, hop by hop: AES-128-GCM, one key for each one-way channel and epoch.
 *
 *   datagram   0 header, 16 bytes, in the clear | 16 events, encrypted | tag, 16 bytes
 *   nonce      0 salt of the key, 4 bytes, its last one XOR the port | 4 the counter in the header
 *
 * The header is associated data: a changed byte of it breaks the tag. So does the other port: both
 * ports share the counter, and a datagram cannot be moved from one to the other. A counter must
 * never be used twice with one key; the sender's counter only grows, and every start of a process
 * has a new key.
 *
 * Both backends are loaded at run time: `libIPSec_MB`, which is faster, where the machine has it,
 * else OpenSSL's `libcrypto`. A backend that does not compute a known answer is not used. A key
 * belongs to one thread, and nothing here allocates once it is open.
 */
#ifndef GS_SEAL_H
#define GS_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "event.h"

#define GS_SEAL_KEY_BYTES  16U
#define GS_SEAL_SALT_BYTES 4U
#define GS_SEAL_TAG_BYTES  GS_TAG_BYTES

typedef enum {
    GS_SEAL_NONE = 0,
    GS_SEAL_EVP,
    GS_SEAL_IPSEC_MB,
    GS_SEAL_BEST, /* The fastest that this machine has. */
} gs_seal_backend;

typedef struct gs_seal_key gs_seal_key;

/* NULL if the backend is not there. Core dumps leave the key out, and a forked child finds zeros in
 * its place, where the system can do that; OpenSSL keeps a copy of its own. */
gs_seal_key *gs_seal_key_open(gs_seal_backend backend, const uint8_t key[GS_SEAL_KEY_BYTES],
                              const uint8_t salt[GS_SEAL_SALT_BYTES]);
void gs_seal_key_close(gs_seal_key *key); /* Wipes it. */
bool gs_seal_key_is(const gs_seal_key *opened, const uint8_t key[GS_SEAL_KEY_BYTES],
                    const uint8_t salt[GS_SEAL_SALT_BYTES]);

/* Overwrite memory that held a key. */
void gs_seal_wipe(void *memory, size_t bytes);

/* Seal a datagram in place: `bytes` of header and events, behind which the tag is written. */
void gs_seal(gs_seal_key *key, uint8_t *datagram, uint32_t bytes, uint32_t port);

/* Open a sealed datagram of `bytes`, the tag included, in place. False: it is forged or damaged,
 * and its bytes behind the header are of no use. */
bool gs_unseal(gs_seal_key *key, uint8_t *datagram, uint32_t bytes, uint32_t port);

/* The backend that GS_SEAL_BEST means here; GS_SEAL_NONE if the machine has neither. */
gs_seal_backend gs_seal_best(void);

/* What a backend is, with the instructions that it uses; empty if it is not there. */
const char *gs_seal_backend_name(gs_seal_backend backend);

/* --- Replayed datagrams ------------------------------------------------------------------ */

#define GS_REPLAY_DATAGRAMS 2048U
#define GS_REPLAY_WORDS     (GS_REPLAY_DATAGRAMS / 64U + 1U) /* A window may begin within a word. */

/* Counters that were accepted under one key on one port: the newest, and a bit for each of those
 * before it. The ports have a window each, because the urgent one is read first: a datagram there
 * would move a common window past thousands that wait at the data port.
 * A datagram is checked before it is opened and noted after: a forged counter moves nothing. */
typedef struct {
    uint64_t newest; /* 0: none. */
    uint64_t seen[GS_REPLAY_WORDS];
} gs_replay_window;

static inline bool gs_replay_is_new(const gs_replay_window *window, uint64_t counter)
{
    if (counter > window->newest)
        return true;
    if (counter == 0 || window->newest - counter >= GS_REPLAY_DATAGRAMS)
        return false;
    return (window->seen[counter / 64 % GS_REPLAY_WORDS] >> counter % 64 & 1) == 0;
}

/* Note a counter that is new and authentic. */
static inline void gs_replay_note(gs_replay_window *window, uint64_t counter)
{
    if (counter > window->newest) {
        uint64_t word = window->newest / 64, last = counter / 64;
        if (last - word >= GS_REPLAY_WORDS)
            word = last - GS_REPLAY_WORDS;
        while (word != last)
            window->seen[++word % GS_REPLAY_WORDS] = 0;
        window->newest = counter;
    }
    window->seen[counter / 64 % GS_REPLAY_WORDS] |= 1ULL << counter % 64;
}

#endif
