#include "laws.h"

#include <string.h>

#include "copies.h"
#include "duplicates.h"
#include "platform.h"

#define LOOKED_BACK_MAX 64U

typedef struct gs_shared_law {
    gs_law law; /* First: users hold a pointer to it. */
    uint32_t users;
} gs_shared_law;

gs_law gs_law_make(uint32_t seconds, uint32_t per_seconds, uint64_t phase_ns, uint32_t every,
                   uint64_t deadline_ns)
{
    gs_law law = {.divisor = gs_divisor_make(1), .deadline_ns = deadline_ns};
    if (seconds != 0) {
        law.is_periodic = true;
        law.period = gs_period_make(seconds, per_seconds, phase_ns);
        law.divisor = gs_divisor_make(every);
        law.copied = gs_divisor_make(gs_copies_every(&law.period, every));
        law.window_slots = gs_window_slots_of(&law.period);
    }
    return law;
}

bool gs_law_has_same_slots(const gs_law *one, const gs_law *other)
{
    return one->is_periodic == other->is_periodic &&
           memcmp(&one->period, &other->period, sizeof one->period) == 0;
}

static bool is_same(const gs_law *one, const gs_law *other)
{
    return gs_law_has_same_slots(one, other) && one->divisor.every == other->divisor.every &&
           one->deadline_ns == other->deadline_ns;
}

bool gs_laws_open(gs_laws *laws, uint32_t laws_max)
{
    *laws = (gs_laws){.laws_max = laws_max};
    laws->shared = gs_lazy_allocate(laws_max * sizeof *laws->shared);
    laws->free = gs_lazy_allocate(laws_max * sizeof *laws->free);
    return laws->shared != NULL && laws->free != NULL;
}

void gs_laws_close(gs_laws *laws)
{
    gs_lazy_release(laws->shared, laws->laws_max * sizeof *laws->shared);
    gs_lazy_release(laws->free, laws->laws_max * sizeof *laws->free);
}

const gs_law *gs_laws_share(gs_laws *laws, const gs_law *law)
{
    uint32_t looked_back = 0;
    for (uint32_t i = laws->count; i-- > 0 && looked_back < LOOKED_BACK_MAX; looked_back++) {
        gs_shared_law *known = &laws->shared[i];
        if (known->users != 0 && is_same(&known->law, law)) {
            known->users++;
            return &known->law;
        }
    }
    uint32_t place = laws->free_count != 0 ? laws->free[--laws->free_count] : laws->count++;
    laws->shared[place] = (gs_shared_law){.law = *law, .users = 1};
    return &laws->shared[place].law;
}

void gs_laws_drop(gs_laws *laws, const gs_law *law)
{
    gs_shared_law *shared = (gs_shared_law *)(uintptr_t)law;
    if (--shared->users == 0)
        laws->free[laws->free_count++] = (uint32_t)(shared - laws->shared);
}
