/* The variables that a receiver expects: the first copy of each event, and the newest value.
 *
 * Which copy is the first is the law of `duplicates.h`, the same as in every router. The receiving
 * thread owns windows and values; others add variables under a lock and read values without one.
 */
#ifndef GS_EXPECTED_H
#define GS_EXPECTED_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "duplicates.h"
#include "event.h"
#include "rate_law.h"
#include "sample_ring.h"
#include "variable_index.h"

#define GS_SAMPLE_WORDS (sizeof(gs_sample) / sizeof(uint64_t))

typedef struct {
    gs_window window;
    const gs_period *period; /* NULL: aperiodic if there is a ring, else every copy counts. */
    gs_ring *ring;
    uint64_t version; /* Odd while `newest` is being written; 0: no event yet. */
    uint64_t newest[GS_SAMPLE_WORDS];
} __attribute__((aligned(64))) gs_expected_variable;

typedef struct {
    gs_variable_index index;
    gs_expected_variable *variables;
    gs_period *periods; /* Variables of one period and phase share an entry. */
    uint32_t variables_max;
    uint32_t count;
    uint32_t period_count;
    uint64_t ring_expiry_ns;
    pthread_mutex_t adding;
} gs_expected;

bool gs_expected_open(gs_expected *expected, uint32_t variables_max, uint64_t ring_expiry_ns);
void gs_expected_close(gs_expected *expected);

/* `period` NULL: aperiodic. A known variable keeps its window unless the law changes. False when
 * there is no room. */
bool gs_expected_add(gs_expected *expected, uint32_t variable_id, const gs_period *period);

/* For a variable nobody announced: its newest value is kept, its copies are not told apart. */
gs_expected_variable *gs_expected_adopt(gs_expected *expected, uint32_t variable_id);

static inline gs_expected_variable *gs_expected_find(const gs_expected *expected,
                                                     uint32_t variable_id)
{
    uint32_t place = gs_variable_index_find(&expected->index, variable_id);
    return place == GS_NO_PLACE ? NULL : &expected->variables[place];
}

/* Any thread; false while no event has come. */
bool gs_expected_newest(const gs_expected_variable *variable, gs_sample *sample);

void gs_expected_store_newest(gs_expected_variable *variable, const gs_sample *sample);
gs_verdict gs_expected_accept_aperiodic(gs_expected *expected, gs_expected_variable *variable,
                                        const gs_sample *sample);

/* The verdict on one event; an accepted one that is the newest becomes the variable's value. */
static inline gs_verdict gs_expected_accept(gs_expected *expected, gs_expected_variable *variable,
                                            const gs_sample *sample, bool keeps_newest)
{
    if (__builtin_expect(variable->period == NULL, 0))
        return gs_expected_accept_aperiodic(expected, variable, sample);
    int64_t slot = gs_slot_of(sample->created_ns, variable->period);
    gs_verdict verdict = gs_window_accept(&variable->window, slot, false, sample->received_ns);
    if (keeps_newest && verdict == GS_ACCEPTED && variable->window.newest == slot)
        gs_expected_store_newest(variable, sample);
    return verdict;
}

#endif
