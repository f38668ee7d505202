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
    gs_set(&accepted->is_opener, 1);
    return GS_SEAL_AUTHENTIC;
}

static void let_go(gs_accepted_key *accepted)
{
    if (--accepted->holders != 0)
        return;
    gs_seal_key_close(accepted->key);
    gs_release(accepted);
}

static bool holds(const gs_key_set *keys, const gs_accepted_key *wanted)
{
    for (uint32_t i = 0; keys != NULL && i < keys->count; i++)
        if (keys->keys[i] == wanted)
            return true;
    return false;
}

static bool is_key(const gs_accepted_key *accepted, const gs_key_spec *spec)
{
    return accepted->epoch == spec->epoch && gs_seal_key_is(accepted->key, spec->key, spec->salt);
}

/* A key that is accepted, or was and is still kept. */
static gs_accepted_key *find_known(const gs_opening *opening, const gs_key_spec *spec)
{
    const gs_key_set *keys = opening->keys;
    for (uint32_t i = 0; keys != NULL && i < keys->count; i++)
        if (is_key(keys->keys[i], spec))
            return keys->keys[i];
    gs_accepted_key *dropped = opening->dropped;
    while (dropped != NULL && !is_key(dropped, spec))
        dropped = dropped->next;
    return dropped;
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
                            gs_opening *opening)
{
    if (backend == GS_SEAL_BEST)
        backend = gs_seal_best();
    if (count != 0 && *gs_seal_backend_name(backend) == 0)
        return NULL;
    gs_key_set *set = gs_allocate(sizeof *set);
    for (uint32_t i = 0; i < count; i++) {
        gs_accepted_key *key = find_known(opening, &specs[i]);
        if (key == NULL)
            key = accept(backend, &specs[i]);
        if (key == NULL)
            continue;
        key->holders++;
        set->keys[set->count++] = key;
    }
    return set;
}

void gs_key_set_release(void *released)
{
    gs_key_set *set = released;
    for (uint32_t i = 0; set != NULL && i < set->count; i++)
        let_go(set->keys[i]);
    gs_release(set);
}

/* --- Dropped keys ------------------------------------------------------------------------ */

/* No set holds it, so the thread can open nothing with it any more. */
static bool is_quiet(const gs_accepted_key *dropped)
{
    return dropped->holders == 1;
}

static bool has_opened(const gs_accepted_key *quiet)
{
    uint64_t newest = 0;
    for (uint32_t port = 0; port < GS_KEY_PORTS; port++)
        newest |= quiet->windows[port].newest;
    return newest != 0;
}

static void unlink_dropped(gs_accepted_key **at)
{
    gs_accepted_key *left = *at;
    *at = left->next;
    let_go(left);
}

/* Keep those that are accepted no more, and leave out those that are accepted again. */
static void note_dropped(gs_opening *opening, const gs_key_set *before, const gs_key_set *fresh)
{
    for (gs_accepted_key **at = &opening->dropped; *at != NULL;)
        if (holds(fresh, *at))
            unlink_dropped(at);
        else
            at = &(*at)->next;
    for (uint32_t i = 0; before != NULL && i < before->count; i++) {
        gs_accepted_key *key = before->keys[i];
        if (holds(fresh, key))
            continue;
        key->is_told = false;
        key->holders++;
        key->next = opening->dropped;
        opening->dropped = key;
    }
}

/* Wipe those that never opened anything, and the oldest of too many. */
static void forget_idle(gs_opening *opening)
{
    uint32_t kept = 0;
    for (gs_accepted_key **at = &opening->dropped; *at != NULL;)
        if (is_quiet(*at) && (!has_opened(*at) || ++kept > GS_DROPPED_KEYS_MAX))
            unlink_dropped(at);
        else
            at = &(*at)->next;
}

gs_key_set *gs_opening_swap(gs_opening *opening, gs_key_set *fresh)
{
    note_dropped(opening, opening->keys, fresh);
    forget_idle(opening);
    return __atomic_exchange_n(&opening->keys, fresh, __ATOMIC_SEQ_CST);
}

void gs_opening_close(gs_opening *opening)
{
    gs_key_set_release(__atomic_exchange_n(&opening->keys, NULL, __ATOMIC_SEQ_CST));
    while (opening->dropped != NULL)
        unlink_dropped(&opening->dropped);
}

/* --- What was seen ----------------------------------------------------------------------- */

static void take_opener(gs_accepted_key *accepted, uint64_t epochs[GS_EPOCH_WORDS])
{
    if (gs_read(&accepted->is_opener) == 0)
        return;
    __atomic_store_n(&accepted->is_opener, 0, __ATOMIC_RELAXED);
    epochs[accepted->epoch / 64] |= 1ULL << accepted->epoch % 64;
}

void gs_opening_take(gs_opening *opening, gs_epochs_seen *seen)
{
    *seen = (gs_epochs_seen){0};
    const gs_key_set *keys = opening->keys;
    for (uint32_t i = 0; keys != NULL && i < keys->count; i++)
        take_opener(keys->keys[i], seen->opened);
    for (gs_accepted_key **at = &opening->dropped; *at != NULL;) {
        if ((*at)->is_told) {
            unlink_dropped(at);
            continue;
        }
        (*at)->is_told = is_quiet(*at);
        take_opener(*at, seen->dropped);
        at = &(*at)->next;
    }
    for (uint32_t i = 0; i < GS_EPOCH_WORDS; i++)
        seen->unknown[i] = __atomic_exchange_n(&opening->unknown[i], 0, __ATOMIC_RELAXED);
}
