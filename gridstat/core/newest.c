#include "newest.h"

#include <sched.h>

#include "duplicates.h"
#include "memory.h"

gs_newest *gs_newest_make(uint32_t options_max)
{
    uint32_t bytes = GS_EVENT_BYTES + GS_OPTION_BYTES * options_max;
    gs_newest *newest = gs_allocate(sizeof *newest + bytes);
    newest->bytes_max = bytes;
    return newest;
}

static bool is_newer(const gs_newest *newest, uint64_t created_ns, uint64_t now_ns)
{
    uint64_t kept_created_ns = __builtin_bswap64(newest->words[0]);
    return newest->version == 0 || created_ns >= kept_created_ns ||
           (now_ns > newest->kept_ns && now_ns - newest->kept_ns >= GS_QUIET_NS);
}

/* As in `expected.c`: words are stored with release and loaded with acquire, which TSan can see. */
bool gs_newest_keep(gs_newest *newest, const uint8_t *event, uint64_t now_ns)
{
    uint64_t bytes = gs_event_bytes(event), version = newest->version;
    if (!is_newer(newest, gs_event_created_ns(event), now_ns))
        return true;
    if (bytes > newest->bytes_max)
        return false;
    newest->kept_ns = now_ns;
    __atomic_store_n(&newest->version, version + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&newest->bytes, bytes, __ATOMIC_RELEASE);
    for (uint64_t i = 0; i < bytes / 8; i++) {
        uint64_t word;
        memcpy(&word, event + 8 * i, sizeof word);
        __atomic_store_n(&newest->words[i], word, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&newest->version, version + 2, __ATOMIC_RELEASE);
    return true;
}

uint32_t gs_newest_read(const gs_newest *newest, uint8_t *to)
{
    for (;; sched_yield()) {
        uint64_t version = __atomic_load_n(&newest->version, __ATOMIC_ACQUIRE);
        uint64_t bytes = __atomic_load_n(&newest->bytes, __ATOMIC_ACQUIRE);
        for (uint64_t i = 0; i < bytes / 8; i++) {
            uint64_t word = __atomic_load_n(&newest->words[i], __ATOMIC_ACQUIRE);
            memcpy(to + 8 * i, &word, sizeof word);
        }
        if (version % 2 == 0 && __atomic_load_n(&newest->version, __ATOMIC_RELAXED) == version)
            return version == 0 ? 0 : (uint32_t)bytes;
    }
}
