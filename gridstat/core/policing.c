#include "policing.h"

#include "sources.h"

static void take_place(gs_policed *place, uint64_t who)
{
    uint64_t life = gs_read(&place->life);
    gs_set(&place->life, life + 1);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    for (uint32_t i = 0; i < GS_POLICED_REASONS; i++)
        gs_set(&place->counts[i], 0);
    gs_set(&place->who, who);
    __atomic_store_n(&place->life, life + 2, __ATOMIC_RELEASE);
}

void gs_policed_note(gs_policed *places, uint32_t channel_id, uint32_t variable_id, uint32_t reason)
{
    uint64_t who = (uint64_t)channel_id << 32 | variable_id;
    uint32_t home = (uint32_t)(gs_hash(variable_id + channel_id) >> 32) % GS_POLICED_PLACES;
    gs_policed *place = NULL;
    for (uint32_t i = 0; i < GS_POLICED_PROBES && place == NULL; i++) {
        gs_policed *found = &places[(home + i) % GS_POLICED_PLACES];
        uint64_t known = gs_read(&found->who);
        if (known == who || known == 0)
            place = found;
    }
    if (place == NULL)
        place = &places[home];
    if (gs_read(&place->who) != who)
        take_place(place, who);
    gs_add(&place->counts[reason], 1);
}

bool gs_policed_read(const gs_policed *place, gs_policed *copy)
{
    uint64_t life = __atomic_load_n(&place->life, __ATOMIC_ACQUIRE);
    if (life == 0 || (life & 1) != 0)
        return false;
    copy->life = life;
    copy->who = gs_read(&place->who);
    for (uint32_t i = 0; i < GS_POLICED_REASONS; i++)
        copy->counts[i] = gs_read(&place->counts[i]);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return gs_read(&place->life) == life;
}
