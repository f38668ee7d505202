/* What becomes of the n-th frame of a faulty wire, from nothing but seed, n and settings.
 *
 * `lab/relay/law.py` is the law, this its fast copy. Every kind of fault draws from a stream of its
 * own, so that switching jitter on does not change which frames are lost.
 */
#ifndef RELAY_LAW_H
#define RELAY_LAW_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    double loss, duplicate, reorder, corrupt; /* Probabilities. */
    uint32_t burst_min, burst_max;
    uint64_t delay_ns, jitter_ns;
    uint64_t rate_bytes_per_s, queue_bytes; /* Rate 0: as fast as it comes. */
    uint64_t seed;
} relay_faults;

typedef struct {
    relay_faults faults;
    uint64_t key;
    uint64_t number; /* Of the next frame. */
    uint32_t burst_left;
} relay_law;

typedef struct {
    bool is_lost, is_corrupted, is_duplicated, is_held;
    uint64_t flip; /* Which bit: modulo the bits that there are. */
    uint64_t delay_ns, copy_delay_ns;
} relay_fate;

relay_faults relay_no_faults(void);

/* Begins at frame 0. Directions 0 and 1 of one wire have different fates under one seed. */
void relay_law_begin(relay_law *law, const relay_faults *faults, uint32_t direction);

relay_fate relay_law_next(relay_law *law);

/* Sets one setting by its name; false if there is no such name or the value is out of bounds. */
bool relay_faults_set(relay_faults *faults, const char *name, const char *value);

#endif
