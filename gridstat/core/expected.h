/* Variables that a receiver expects: the first copy of each event, and the newest value.
 *
 * The first copy is determined by the law of `duplicates.h`, as in every router. The receiving
 * thread owns windows, values and ledgers; other threads announce and forget variables and read
 * values under a lock. The receiving thread takes no lock: a thread that unlinks an object waits
 * until the receiving thread has passed a quiet point, or sleeps, before it reuses the memory.
 * Variables that were not announced have a table of their own, which the receiving thread alone
 * adds to, so that no flood of identifiers can use up the places of the announced ones.
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
#include "laws.h"
#include "ledger.h"
#include "sample_ring.h"
#include "variable_index.h"

#define GS_SAMPLE_WORDS (sizeof(gs_sample) / sizeof(uint64_t))
#define GS_AHEAD_NS_MAX 10000000000ULL /* The bound by which routers let a stamp be ahead. */

typedef struct {
    gs_window window;
    const gs_law *law; /* Atomic. NULL: adopted, every copy is delivered. */
    gs_ring *ring;     /* Only for an aperiodic variable. */
    uint64_t version;  /* Odd while `newest` is being written; 0: no event yet. */
    uint64_t newest[GS_SAMPLE_WORDS];
    uint64_t newest_at_ns; /* When the newest event came; used by the thread. */
} __attribute__((aligned(64))) gs_expected_variable;

typedef struct {
    gs_variable_index *index;        /* Atomic: rebuilt and replaced once it has no free lines. */
    gs_expected_variable *variables; /* NULL: there is no such table. */
    uint32_t places_max;
    uint32_t count; /* One more than the highest place ever used. */
} gs_variable_table;

typedef struct {
    gs_variable_table announced; /* Changed under the lock. */
    gs_variable_table adopted;   /* Changed by the receiving thread only. */
    gs_ledger *ledgers;          /* By place of the announced variable; NULL: none are kept. */
    uint32_t variables_max, variable_count;
    uint32_t *identifiers; /* Variable identifier by place. */
    uint32_t *free_places, free_place_count;
    gs_laws laws;
    uint64_t ring_expiry_ns;
    uint64_t epoch; /* Atomic: grows when an object was unlinked. */
    uint64_t seen;  /* Atomic: epoch at which the thread entered. */
    pthread_mutex_t adding;
} gs_expected;

typedef struct {
    uint32_t variables_max; /* Announced ones. */
    uint32_t adopted_max;   /* Others. */
    uint64_t ring_expiry_ns;
    bool has_ledgers;
} gs_expected_options;

bool gs_expected_open(gs_expected *expected, const gs_expected_options *options);
void gs_expected_close(gs_expected *expected);

/* Announce a variable, or change its terms. A known variable keeps its window unless its period or
 * phase changes, and restarts its counts if any of its terms change. False: no place is free. */
bool gs_expected_add(gs_expected *expected, uint32_t variable_id, const gs_law *law);

/* Forget a variable: its events are unknown from now on, and its place is free. False: it was not
 * announced. */
bool gs_expected_forget(gs_expected *expected, uint32_t variable_id);

/* Read the newest value; any thread but the receiving one. False while no event has come. */
bool gs_expected_newest(gs_expected *expected, uint32_t variable_id, gs_sample *sample);

/* False when the variable was not announced, or no ledgers are kept. */
bool gs_expected_read_ledger(gs_expected *expected, uint32_t variable_id, gs_ledger_facts *facts);

/* Wait until the receiving thread holds nothing that was unlinked before. */
void gs_expected_settle(gs_expected *expected);

/* The functions below are for the receiving thread. Between these two it may hold variables. */
void gs_expected_enter(gs_expected *expected);
void gs_expected_leave(gs_expected *expected);

/* Add a variable that was not announced: its newest value is kept, its copies are not
 * distinguished. NULL: no place is free. */
gs_expected_variable *gs_expected_adopt(gs_expected *expected, uint32_t variable_id);

static inline gs_expected_variable *gs_variable_table_find(const gs_variable_table *table,
                                                           uint32_t variable_id)
{
    const gs_variable_index *index = __atomic_load_n(&table->index, __ATOMIC_ACQUIRE);
    uint32_t place = gs_variable_index_find(index, variable_id);
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

/* Terms of a variable; NULL for an adopted one. */
static inline const gs_law *gs_expected_law(const gs_expected_variable *variable)
{
    return __atomic_load_n(&variable->law, __ATOMIC_ACQUIRE);
}

/* Ledger of an announced variable; NULL where none are kept. */
static inline gs_ledger *gs_expected_ledger(const gs_expected *expected,
                                            const gs_expected_variable *variable)
{
    if (expected->ledgers == NULL)
        return NULL;
    return &expected->ledgers[variable - expected->announced.variables];
}

void gs_expected_store_newest(gs_expected_variable *variable, const gs_sample *sample,
                              uint64_t now_ns);
gs_verdict gs_expected_accept_aperiodic(const gs_expected *expected, gs_expected_variable *variable,
                                        const gs_sample *sample, uint64_t now_ns);

/* True if the event would move a live stream to a stamp far ahead of the clock: routers let no such
 * event pass, so its sender is no router. */
static inline bool gs_expected_is_forged(const gs_window *window, const gs_sample *sample,
                                         int64_t slot, uint64_t now_ns)
{
    if (slot <= window->newest ||
        (uint64_t)slot - (uint64_t)window->newest < gs_window_slots(window))
        return false;
    uint64_t accepted_at_ns = gs_window_accepted_at_ns(window);
    return accepted_at_ns != 0 && now_ns < accepted_at_ns + GS_QUIET_NS &&
           sample->created_ns > sample->received_ns + GS_AHEAD_NS_MAX;
}

/* Return the final verdict on an event beyond the window. A jump of a replayed event is accepted,
 * unless a latency is promised; none is for replayed variables. Any other event is accepted if our
 * clock was set, and the event with it. */
gs_verdict gs_expected_follow(gs_expected_variable *variable, const gs_law *law,
                              const gs_sample *sample, int64_t slot, uint64_t now_ns,
                              gs_verdict verdict);

/* Return the verdict on an event in a slot; an accepted event that is the newest becomes the
 * value. */
static inline gs_verdict gs_expected_accept(gs_expected_variable *variable, const gs_law *law,
                                            const gs_sample *sample, int64_t slot, uint64_t now_ns,
                                            bool keeps_newest)
{
    if (__builtin_expect(gs_expected_is_forged(&variable->window, sample, slot, now_ns), 0))
        return GS_POLICED_JUMP;
    gs_verdict verdict = gs_window_accept(&variable->window, &law->period, slot, false, now_ns);
    if (__builtin_expect(verdict >= GS_POLICED_JUMP, 0))
        verdict = gs_expected_follow(variable, law, sample, slot, now_ns, verdict);
    if (keeps_newest && verdict == GS_ACCEPTED && variable->window.newest == slot)
        gs_expected_store_newest(variable, sample, now_ns);
    return verdict;
}

#endif
