#include "copies.h"

#include <time.h>

#include "duplicates.h"

#define NS_PER_S  1000000000ULL
#define SPINS_MAX 2000U /* Far longer than noting a copy takes. */
#define TRIES_MAX (SPINS_MAX + 10000U)
#define NAP_NS    50000

void gs_copies_begin(gs_copy_window *window)
{
    uint64_t *words = (uint64_t *)(void *)window, version = gs_copies_open(window);
    for (uint32_t i = 1; i < sizeof *window / sizeof *words; i++)
        __atomic_store_n(&words[i], 0, __ATOMIC_RELEASE);
    gs_copies_close(window, version);
}

uint32_t gs_copies_every(const gs_period *period, uint32_t every)
{
    uint32_t slots = gs_window_slots_of(period);
    while (every != 0 && slots != GS_WINDOW_SLOTS && (GS_COPY_SLOTS - 64) * (uint64_t)every < slots)
        every *= 2;
    return every;
}

void gs_copies_begin_path(gs_copy_window *window, uint32_t path)
{
    uint64_t version = gs_copies_open(window);
    __atomic_store_n(&window->paths[path].came, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&window->paths[path].first, 0, __ATOMIC_RELEASE);
    gs_copies_close(window, version);
}

static void judge_word(gs_copy_window *window, uint64_t word)
{
    uint64_t any = 0;
    for (uint64_t i = 0; i < window->path_count; i++) {
        gs_copy_path *path = &window->paths[i];
        gs_copies_add(&path->came, (uint64_t)__builtin_popcountll(path->seen[word]));
        any |= path->seen[word];
        __atomic_store_n(&path->seen[word], 0, __ATOMIC_RELEASE);
    }
    gs_copies_add(&window->passed, (uint64_t)__builtin_popcountll(any));
}

void gs_copies_move(gs_copy_window *window, uint64_t due)
{
    uint64_t words =
        due / 64 - window->newest / 64; /* A step back wraps to more than GS_COPY_WORDS. */
    for (uint64_t i = 0; i < words && i < GS_COPY_WORDS; i++)
        judge_word(window, (window->newest / 64 + 1 + i) % GS_COPY_WORDS);
    __atomic_store_n(&window->newest, due, __ATOMIC_RELEASE);
}

bool gs_copies_is_idle(const gs_copy_path *path)
{
    uint64_t any = 0;
    for (uint32_t i = 0; i < GS_COPY_WORDS; i++)
        any |= path->seen[i];
    return any == 0;
}

/* False if the writer was stopped within a write and did not go on for about half a second. */
static bool snapshot(const gs_copy_window *window, gs_copy_window *copy)
{
    const uint64_t *from = (const uint64_t *)(const void *)window;
    uint64_t *to = (uint64_t *)(void *)copy;
    for (uint32_t tries = 0; tries < TRIES_MAX; tries++) {
        if (tries > SPINS_MAX)
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        uint64_t version = __atomic_load_n(&from[0], __ATOMIC_ACQUIRE);
        for (uint32_t i = 1; i < sizeof *copy / sizeof *to; i++)
            to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
        if (version % 2 == 0 && __atomic_load_n(&from[0], __ATOMIC_RELAXED) == version)
            return true;
    }
    return false;
}

/* Return how many of the newest due slots may have copies in transit. */
static uint64_t open_slots(const gs_period *period, uint32_t every)
{
    unsigned __int128 per_s = (unsigned __int128)period->multiplier * NS_PER_S / period->divisor;
    unsigned __int128 open = per_s / every + 2;
    return open < GS_COPY_SLOTS ? (uint64_t)open : GS_COPY_SLOTS;
}

gs_copy_facts gs_copies_read(const gs_copy_window *window, const gs_period *period, uint32_t every)
{
    gs_copy_window copy = {0};
    gs_copy_facts facts = {0};
    uint64_t open[GS_COPY_WORDS] = {0};
    if (!snapshot(window, &copy))
        return facts;
    for (uint64_t left = open_slots(period, every), due = copy.newest; left-- > 0; due--)
        open[due / 64 % GS_COPY_WORDS] |= 1ULL << due % 64;
    facts.passed = copy.passed;
    facts.path_count = copy.path_count;
    for (uint32_t word = 0; word < GS_COPY_WORDS; word++) {
        uint64_t any = 0;
        for (uint32_t i = 0; i < GS_COPY_PATHS; i++) {
            uint64_t closed = copy.paths[i].seen[word] & ~open[word];
            facts.came[i] += (uint64_t)__builtin_popcountll(closed);
            any |= closed;
        }
        facts.passed += (uint64_t)__builtin_popcountll(any);
    }
    for (uint32_t i = 0; i < GS_COPY_PATHS; i++) {
        facts.came[i] += copy.paths[i].came;
        facts.first[i] = copy.paths[i].first;
    }
    return facts;
}
