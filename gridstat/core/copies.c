#include "copies.h"

#include <time.h>

#define NS_PER_S  1000000000ULL
#define SPINS_MAX 2000U /* Far longer than a copy is noted. */
#define TRIES_MAX (SPINS_MAX + 10000U)
#define NAP_NS    50000

void gs_copies_begin(gs_copy_window *window)
{
    uint64_t *words = (uint64_t *)(void *)window, version = gs_copies_open(window);
    for (uint32_t i = 1; i < sizeof *window / sizeof *words; i++)
        __atomic_store_n(&words[i], 0, __ATOMIC_RELEASE);
    gs_copies_close(window, version);
}

void gs_copies_begin_way(gs_copy_window *window, uint32_t way)
{
    uint64_t version = gs_copies_open(window);
    __atomic_store_n(&window->ways[way].came, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&window->ways[way].first, 0, __ATOMIC_RELEASE);
    gs_copies_close(window, version);
}

static void judge_word(gs_copy_window *window, uint64_t word)
{
    uint64_t any = 0;
    for (uint64_t i = 0; i < window->way_count; i++) {
        gs_copy_way *way = &window->ways[i];
        gs_copies_add(&way->came, (uint64_t)__builtin_popcountll(way->seen[word]));
        any |= way->seen[word];
        __atomic_store_n(&way->seen[word], 0, __ATOMIC_RELEASE);
    }
    gs_copies_add(&window->passed, (uint64_t)__builtin_popcountll(any));
}

void gs_copies_move(gs_copy_window *window, uint64_t due)
{
    uint64_t words = due / 64 - window->newest / 64; /* Back, it is more than there are. */
    for (uint64_t i = 0; i < words && i < GS_COPY_WORDS; i++)
        judge_word(window, (window->newest / 64 + 1 + i) % GS_COPY_WORDS);
    __atomic_store_n(&window->newest, due, __ATOMIC_RELEASE);
}

bool gs_copies_is_idle(const gs_copy_way *way)
{
    uint64_t any = 0;
    for (uint32_t i = 0; i < GS_COPY_WORDS; i++)
        any |= way->seen[i];
    return any == 0;
}

/* False if the writer was stopped in the middle, and did not go on for about half a second. */
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

/* How many of the newest due slots may have copies under way. */
static uint64_t open_slots(const gs_period *period, uint32_t every)
{
    unsigned __int128 per_s = (unsigned __int128)period->multiplier * NS_PER_S / period->divisor;
    unsigned __int128 open = per_s / every + 2;
    return open < GS_COPY_SLOTS ? (uint64_t)open : GS_COPY_SLOTS;
}

gs_copy_facts gs_copies_tell(const gs_copy_window *window, const gs_period *period, uint32_t every)
{
    gs_copy_window copy = {0};
    gs_copy_facts facts = {0};
    uint64_t open[GS_COPY_WORDS] = {0};
    if (!snapshot(window, &copy))
        return facts;
    for (uint64_t left = open_slots(period, every), due = copy.newest; left-- > 0; due--)
        open[due / 64 % GS_COPY_WORDS] |= 1ULL << due % 64;
    facts.passed = copy.passed;
    facts.way_count = copy.way_count;
    for (uint32_t word = 0; word < GS_COPY_WORDS; word++) {
        uint64_t any = 0;
        for (uint32_t i = 0; i < GS_COPY_WAYS; i++) {
            uint64_t closed = copy.ways[i].seen[word] & ~open[word];
            facts.came[i] += (uint64_t)__builtin_popcountll(closed);
            any |= closed;
        }
        facts.passed += (uint64_t)__builtin_popcountll(any);
    }
    for (uint32_t i = 0; i < GS_COPY_WAYS; i++) {
        facts.came[i] += copy.ways[i].came;
        facts.first[i] = copy.ways[i].first;
    }
    return facts;
}
