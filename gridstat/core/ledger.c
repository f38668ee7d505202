#include "ledger.h"

#include <string.h>

void gs_ledger_renew(gs_ledger *ledger)
{
    __atomic_store_n(&ledger->renewals_wanted, ledger->renewals_wanted + 1, __ATOMIC_RELEASE);
}

void gs_ledger_begin(gs_ledger *ledger, uint64_t renewals)
{
    gs_counter *const single[] = {
        &ledger->delivered,  &ledger->last_slot, &ledger->missing, &ledger->duplicate,
        &ledger->late,       &ledger->unknown,   &ledger->extra,   &ledger->ring_full,
        &ledger->first_slot, &ledger->too_old,
    };
    for (uint32_t i = 0; i < sizeof single / sizeof single[0]; i++)
        gs_set(single[i], 0);
    for (uint32_t i = 0; i < GS_COPY_SOURCES; i++)
        gs_set(&ledger->copies[i], 0);
    for (uint32_t i = 0; i < GS_COPY_PATHS; i++)
        gs_set(&ledger->late_by[i], 0), gs_set(&ledger->too_old_by[i], 0);
    gs_copies_begin(&ledger->window);
    __atomic_store_n(&ledger->renewals, renewals, __ATOMIC_RELEASE);
}

static void restart(gs_ledger *ledger, int64_t slot)
{
    gs_set(&ledger->first_slot, (uint64_t)slot);
    gs_set(&ledger->last_slot, (uint64_t)slot);
}

/* Number of due slots between two; slots of an older divisor may be nearer than one step. */
static uint64_t between(uint64_t distance, uint64_t every)
{
    return distance < every ? 0 : distance / every - 1;
}

void gs_ledger_place_rare(gs_ledger *ledger, int64_t slot, const gs_law *law)
{
    uint64_t every = law->divisor.every;
    int64_t first = (int64_t)gs_read(&ledger->first_slot);
    int64_t last = (int64_t)gs_read(&ledger->last_slot);
    if (gs_ledger_is_empty(ledger)) {
        restart(ledger, slot);
    } else if (slot > last && (uint64_t)slot - (uint64_t)last >= law->window_slots * every) {
        restart(ledger, slot); /* Beyond the window: a clock was set, or the stream paused. */
    } else if (slot > last) {
        gs_add(&ledger->missing, between((uint64_t)slot - (uint64_t)last, every));
        gs_set(&ledger->last_slot, (uint64_t)slot);
    } else if ((uint64_t)last - (uint64_t)slot >= law->window_slots) {
        restart(ledger, slot); /* The window has followed a clock that was set back. */
    } else if (slot < first) {
        gs_add(&ledger->missing, between((uint64_t)(first - slot), every));
        gs_set(&ledger->first_slot, (uint64_t)slot);
    } else if (gs_read(&ledger->missing) != 0) {
        gs_subtract(&ledger->missing, 1); /* Counted as missing before. */
    }
}

/* Count a late slot once, however often the source brings it. */
void gs_ledger_late_by(gs_ledger *ledger, uint32_t source, uint64_t due)
{
    if (!gs_copies_knows(&ledger->window, source, due))
        gs_add(&ledger->late_by[source], 1);
}

gs_ledger_facts gs_ledger_read(const gs_ledger *ledger, const gs_law *law)
{
    gs_ledger_facts facts = {0};
    uint64_t renewals = __atomic_load_n(&ledger->renewals, __ATOMIC_ACQUIRE);
    if (renewals != __atomic_load_n(&ledger->renewals_wanted, __ATOMIC_RELAXED))
        return facts; /* No event has come since. */
    facts.delivered = gs_read(&ledger->delivered);
    facts.duplicate = gs_read(&ledger->duplicate);
    facts.late = gs_read(&ledger->late);
    facts.unknown = gs_read(&ledger->unknown);
    facts.missing = gs_read(&ledger->missing);
    facts.extra = gs_read(&ledger->extra);
    facts.ring_full = gs_read(&ledger->ring_full);
    facts.first_slot = (int64_t)gs_read(&ledger->first_slot);
    facts.last_slot = (int64_t)gs_read(&ledger->last_slot);
    for (uint32_t i = 0; i < GS_COPY_SOURCES; i++)
        facts.copies[i] = gs_read(&ledger->copies[i]);
    if (law->is_periodic) {
        gs_copy_facts found = gs_copies_read(&ledger->window, &law->period, law->copied.every);
        facts.passed = found.passed;
        memcpy(facts.came, found.came, sizeof facts.came);
        memcpy(facts.first, found.first, sizeof facts.first);
    }
    for (uint32_t i = 0; i < GS_COPY_PATHS; i++)
        facts.late_by[i] = gs_read(&ledger->late_by[i]);
    facts.too_old = gs_read(&ledger->too_old);
    for (uint32_t i = 0; i < GS_COPY_PATHS; i++)
        facts.too_old_by[i] = gs_read(&ledger->too_old_by[i]);
    return facts;
}
