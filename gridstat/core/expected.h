/* The variables that a receiver expects: the first copy of each event, and the newest value.
 *
 * Which copy is the first is the law of `duplicates.h`, the same as in every router. The receiving
 * thread owns windows and values; others announce variables under a lock and read values without
 * one. The thread takes no lock: variables that nobody announced have a table of their own, which
 * it alone adds to, so that no flood of identifiers can take the places of the announced ones.
 *
 * All `now_ns` here are of the steady clock: a wall clock that is set must not silence a variable.
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
    uint64_t newest_at_ns; /* When it came; for the thread. */
} __attribute__((aligned(64))) gs_expected_variable;

typedef struct {
    gs_variable_index index;
    gs_expected_variable *variables; /* NULL: there is no such table. */
    uint32_t variables_max;
    uint32_t count;
} gs_variable_table;

typedef struct {
    gs_variable_table announced; /* Added to under the lock. */
    gs_variable_table adopted;   /* Added to by the receiving thread. */
    gs_period *periods;          /* Variables of one period and phase share an entry. */
    uint32_t period_count;
    uint64_t ring_expiry_ns;
    pthread_mutex_t adding;
} gs_expected;

/* At most `variables_max` announced variables, and `adopted_max` others. */
bool gs_expected_open(gs_expected *expected, uint32_t variables_max, uint32_t adopted_max,
                      uint64_t ring_expiry_ns);
void gs_expected_close(gs_expected *expected);

/* `period` NULL: aperiodic. A known variable keeps its window unless the law changes. False when
 * there is no room. */
bool gs_expected_add(gs_expected *expected, uint32_t variable_id, const gs_period *period);

/* For a variable nobody announced: its newest value is kept, its copies are not told apart. Only
 * the receiving thread may ask; NULL when there is no room. */
gs_expected_variable *gs_expected_adopt(gs_expected *expected, uint32_t variable_id);

static inline gs_expected_variable *gs_variable_table_find(const gs_variable_table *table,
                                                           uint32_t variable_id)
{
    uint32_t place = gs_variable_index_find(&table->index, variable_id);
    return place == GS_NO_PLACE ? NULL : &table->variables[place];
}

static inline gs_expected_variable *gs_expected_find(const gs_expected *expected,
                                                     uint32_t variable_id)
{
    gs_expected_variable *found = gs_variable_table_find(&expected->announced, variable_id);
    if (found == NULL && expected->adopted.variables != NULL)
        found = gs_variable_table_find(&expected->adopted, variable_id);
    return found;
}

/* Any thread; false while no event has come. */
bool gs_expected_newest(const gs_expected_variable *variable, gs_sample *sample);

void gs_expected_store_newest(gs_expected_variable *variable, const gs_sample *sample,
                              uint64_t now_ns);
gs_verdict gs_expected_accept_aperiodic(const gs_expected *expected, gs_expected_variable *variable,
                                        const gs_sample *sample, uint64_t now_ns);

/* The verdict on one event; an accepted one that is the newest becomes the variable's value. */
static inline gs_verdict gs_expected_accept(const gs_expected *expected,
                                            gs_expected_variable *variable, const gs_sample *sample,
                                            uint64_t now_ns, bool keeps_newest)
{
    if (__builtin_expect(variable->period == NULL, 0))
        return gs_expected_accept_aperiodic(expected, variable, sample, now_ns);
    int64_t slot = gs_slot_of(sample->created_ns, variable->period);
    gs_verdict verdict = gs_window_accept(&variable->window, slot, false, now_ns);
    if (keeps_newest && verdict == GS_ACCEPTED && variable->window.newest == slot)
        gs_expected_store_newest(variable, sample, now_ns);
    return verdict;
}

#endif
