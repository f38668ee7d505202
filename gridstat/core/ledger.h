/* Counts of one variable's events at a receiver, by contract and by source.
 *
 * The receiving thread counts, any thread reads. A change of terms requests a restart of the
 * counts; the receiving thread restarts them with the next event, so that it alone ever writes a
 * counter.
 */
#ifndef GS_LEDGER_H
#define GS_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "copies.h"
#include "counters.h"
#include "duplicates.h"
#include "laws.h"
#include "sample_ring.h"

#define GS_COPY_SOURCES 8U
#define GS_TIME_QUALITY 3U /* Mask of the flags. */
#define GS_REPLAYED 16U    /* Flag set by the sender; the registration decides whether it counts. */
#define GS_UNTIMELY (GS_TIME_QUALITY | GS_REPLAYED) /* 0: a stamp of the present, and good. */

typedef struct {
    uint64_t renewals_wanted; /* Atomic: number of changes of the terms. */
    uint64_t renewals;        /* Atomic: the change that these counters belong to. */
    gs_counter delivered, last_slot, missing, duplicate, late, unknown;
    gs_counter copies[GS_COPY_SOURCES];
    gs_counter extra, ring_full, first_slot;
    gs_counter late_by[GS_COPY_PATHS]; /* By source, once there are several; `window` too. */
    gs_counter too_old, too_old_by[GS_COPY_PATHS]; /* Copies whose slot had left the window. */
    gs_copy_window window;
} __attribute__((aligned(64))) gs_ledger;

typedef struct {
    uint64_t delivered, duplicate, late, unknown, missing, extra, ring_full;
    int64_t first_slot, last_slot;
    uint64_t copies[GS_COPY_SOURCES];
    uint64_t passed, came[GS_COPY_PATHS], first[GS_COPY_PATHS]; /* As in `gs_copy_facts`. */
    uint64_t late_by[GS_COPY_PATHS];
    uint64_t too_old, too_old_by[GS_COPY_PATHS];
} gs_ledger_facts;

void gs_ledger_renew(gs_ledger *ledger);
gs_ledger_facts gs_ledger_read(const gs_ledger *ledger, const gs_law *law);

/* The functions below are for the receiving thread. */

/* Restart the counts after a change of the terms. */
void gs_ledger_begin(gs_ledger *ledger, uint64_t renewals);

/* Note a due slot that is not the next one. */
void gs_ledger_place_rare(gs_ledger *ledger, int64_t slot, const gs_law *law);

/* Note the first late copy of a due slot from a source; called before the copy itself is noted. */
void gs_ledger_late_by(gs_ledger *ledger, uint32_t source, uint64_t due);

/* Note one copy of an event, whatever its verdict; `source` from 0, or GS_COPY_SOURCES and more:
 * unknown. */
static inline void gs_ledger_copy(gs_ledger *ledger, uint32_t source)
{
    uint64_t wanted = __atomic_load_n(&ledger->renewals_wanted, __ATOMIC_ACQUIRE);
    if (__builtin_expect(wanted != ledger->renewals, 0))
        gs_ledger_begin(ledger, wanted);
    if (source < GS_COPY_SOURCES)
        gs_add(&ledger->copies[source], 1);
}

/* True if the event has no meaningful latency. No latency is promised for variables registered as
 * replayed; where one is promised, an event that claims to be replayed is as late as any other. */
static inline bool gs_ledger_is_untimely(const gs_law *law, const gs_sample *sample)
{
    return (sample->flags & GS_UNTIMELY) != 0 &&
           ((sample->flags & GS_TIME_QUALITY) != 0 || law->deadline_ns == 0);
}

/* True if the event is late by its stamp, whatever the quality of the stamp. */
static inline bool gs_ledger_is_late(const gs_law *law, const gs_sample *sample)
{
    return law->deadline_ns != 0 && sample->received_ns > sample->created_ns &&
           sample->received_ns - sample->created_ns > law->deadline_ns;
}

/* Note a copy whose slot had left the window: it can fill no gap any more. */
static inline void gs_ledger_too_old(gs_ledger *ledger, uint32_t source)
{
    gs_add(&ledger->too_old, 1);
    if (source < GS_COPY_PATHS)
        gs_add(&ledger->too_old_by[source], 1);
}

typedef struct {
    int64_t slot;
    bool is_first;
} gs_copy_of;

/* Note, by source, a copy that was accepted or is a duplicate, where there are several sources. */
static inline void gs_ledger_copy_by(gs_ledger *ledger, const gs_law *law, const gs_sample *sample,
                                     uint32_t source, gs_copy_of copy)
{
    uint64_t due;
    if (!law->is_periodic || source >= GS_COPY_PATHS ||
        !gs_copies_due(copy.slot, &law->copied, &due))
        return;
    if (__builtin_expect((sample->flags & GS_TIME_QUALITY) == 0 && gs_ledger_is_late(law, sample),
                         0))
        gs_ledger_late_by(ledger, source, due);
    gs_copies_note(&ledger->window, source, due, copy.is_first);
}

static inline bool gs_ledger_is_empty(const gs_ledger *ledger)
{
    return gs_read(&ledger->delivered) + gs_read(&ledger->ring_full) == 0;
}

static inline void gs_ledger_place(gs_ledger *ledger, int64_t slot, const gs_law *law)
{
    bool is_next = (uint64_t)slot == gs_read(&ledger->last_slot) + law->divisor.every;
    if (__builtin_expect(is_next && !gs_ledger_is_empty(ledger), 1))
        gs_set(&ledger->last_slot, (uint64_t)slot);
    else
        gs_ledger_place_rare(ledger, slot, law);
}

/* Note the first copy of an event; `has_room`: the reader will get it. */
static inline void gs_ledger_first(gs_ledger *ledger, const gs_law *law, const gs_sample *sample,
                                   int64_t slot, bool has_room)
{
    if (law->is_periodic && !gs_slot_is_due(slot, &law->divisor)) {
        gs_add(&ledger->extra, 1);
        return;
    }
    if (law->is_periodic)
        gs_ledger_place(ledger, slot, law);
    gs_add(has_room ? &ledger->delivered : &ledger->ring_full, 1);
    if (gs_ledger_is_untimely(law, sample))
        gs_add(&ledger->unknown, 1);
    else if (gs_ledger_is_late(law, sample))
        gs_add(&ledger->late, 1);
}

#endif
