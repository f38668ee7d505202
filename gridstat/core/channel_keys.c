#include "channel_keys.h"

#include "memory.h"

gs_sealing *gs_sealing_open(gs_seal_backend backend, const gs_key_spec *spec)
{
    gs_seal_key *key = gs_seal_key_open(backend, spec->key, spec->salt);
    if (key == NULL)
        return NULL;
    gs_sealing *sealing = gs_allocate(sizeof *sealing);
    sealing->key = key;
    sealing->epoch = spec->epoch;
    sealing->left = GS_SEALED_DATAGRAMS_MAX;
    return sealing;
}

void gs_sealing_close(void *sealing)
{
    if (sealing == NULL)
        return;
    gs_seal_key_close(((gs_sealing *)sealing)->key);
    gs_release(sealing);
}

/* --- Receiving --------------------------------------------------------------------------- */

static gs_accepted_key *key_of(const gs_key_set *keys, uint8_t epoch)
{
    for (uint32_t i = 0; keys != NULL && i < keys->count; i++)
        if (keys->keys[i]->epoch == epoch)
            return keys->keys[i];
    return NULL;
}

/* Anybody can send an epoch without a key: only the first one of each writes. */
static void note_unknown(gs_opening *opening, uint8_t epoch)
{
    uint64_t *word = &opening->unknown[epoch / 64], bit = 1ULL << epoch % 64;
    if ((__atomic_load_n(word, __ATOMIC_RELAXED) & bit) == 0)
        __atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
}

gs_authenticity gs_opening_open(gs_opening *opening, uint8_t *datagram, uint32_t port)
{
    const gs_key_set *keys = __atomic_load_n(&opening->keys, __ATOMIC_ACQUIRE);
    uint8_t epoch = datagram[1];
    gs_accepted_key *accepted = key_of(keys, epoch);
    if (accepted == NULL) {
        note_unknown(opening, epoch);
        return GS_SEAL_UNKNOWN_EPOCH;
    }
    gs_replay_window *window = &accepted->windows[port];
    uint64_t counter = gs_load_u64(datagram + 8);
    if (!gs_replay_is_new(window, counter))
        return GS_SEAL_REPLAYED;
    uint32_t bytes = (uint32_t)gs_load_u16(datagram + 2) + GS_TAG_BYTES;
    if (!gs_unseal(accepted->key, datagram, bytes, port))
        return GS_SEAL_FORGED;
    gs_replay_note(window, counter);
    gs_set(&opening->epoch, epoch + 1UL);
    return GS_SEAL_AUTHENTIC;
}

/* The key of the set before, if it is the same one; it is no longer dropped with that set. */
static gs_accepted_key *keep(gs_key_set *before, const gs_key_spec *spec)
{
    for (uint32_t i = 0; before != NULL && i < before->count; i++) {
        gs_accepted_key *known = before->keys[i];
        if (known->epoch != spec->epoch || !gs_seal_key_is(known->key, spec->key, spec->salt))
            continue;
        before->is_dropped[i] = false;
        return known;
    }
    return NULL;
}

static gs_accepted_key *accept(gs_seal_backend backend, const gs_key_spec *spec)
{
    gs_seal_key *key = gs_seal_key_open(backend, spec->key, spec->salt);
    if (key == NULL)
        return NULL;
    gs_accepted_key *accepted = gs_allocate(sizeof *accepted);
    accepted->key = key;
    accepted->epoch = spec->epoch;
    return accepted;
}

gs_key_set *gs_key_set_make(gs_seal_backend backend, const gs_key_spec *specs, uint32_t count,
                            gs_key_set *before)
{
    if (backend == GS_SEAL_BEST)
        backend = gs_seal_best();
    if (count != 0 && *gs_seal_backend_name(backend) == 0)
        return NULL;
    gs_key_set *set = gs_allocate(sizeof *set);
    for (uint32_t i = 0; before != NULL && i < before->count; i++)
        before->is_dropped[i] = true;
    for (uint32_t i = 0; i < count; i++) {
        gs_accepted_key *key = keep(before, &specs[i]);
        if (key == NULL)
            key = accept(backend, &specs[i]);
        if (key != NULL)
            set->keys[set->count++] = key;
    }
    return set;
}

gs_key_set *gs_opening_swap(gs_opening *opening, gs_key_set *fresh)
{
    return __atomic_exchange_n(&opening->keys, fresh, __ATOMIC_SEQ_CST);
}

void gs_key_set_release(void *released)
{
    gs_key_set *set = released;
    for (uint32_t i = 0; set != NULL && i < set->count; i++) {
        if (!set->is_dropped[i])
            continue;
        gs_seal_key_close(set->keys[i]->key);
        gs_release(set->keys[i]);
    }
    gs_release(set);
}

void gs_opening_close(gs_opening *opening)
{
    gs_key_set *set = gs_opening_swap(opening, NULL);
    for (uint32_t i = 0; set != NULL && i < set->count; i++)
        set->is_dropped[i] = true;
    gs_key_set_release(set);
}

uint64_t gs_opening_take_epoch(gs_opening *opening)
{
    return __atomic_exchange_n(&opening->epoch, 0, __ATOMIC_RELAXED);
}

void gs_opening_take_unknown(gs_opening *opening, uint64_t taken[GS_EPOCH_WORDS])
{
    for (uint32_t i = 0; i < GS_EPOCH_WORDS; i++)
        taken[i] = __atomic_exchange_n(&opening->unknown[i], 0, __ATOMIC_RELAXED);
}
