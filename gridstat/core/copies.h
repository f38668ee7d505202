/* By which of several ways the copies of a variable's events came, due slot by due slot.
 *
 * A due slot of which some way brought a copy has passed; a way that brought none has missed it. A
 * slot is judged when it leaves the window, or by whoever reads once a second's worth of later ones
 * has come: the ways differ in length, and a copy that is under way is not missed.
 * `gridstat/model/copy_window.py` is the law, this its fast copy. One writer, any reader, no lock:
 * a reader that meets a new word meets the odd version before it as well, and tries again.
 */
#ifndef GS_COPIES_H
#define GS_COPIES_H

#include <stdbool.h>
#include <stdint.h>

#include "counters.h"
#include "rate_law.h"

#define GS_COPY_WAYS  4U
#define GS_COPY_SLOTS 256U
#define GS_COPY_WORDS (GS_COPY_SLOTS / 64)

typedef struct {
    gs_counter came, first;       /* Due slots that it brought; of these before all others. */
    uint64_t seen[GS_COPY_WORDS]; /* Bit n modulo all: it brought due slot n, of the last ones. */
} gs_copy_way;

typedef struct {
    uint64_t version; /* Odd while it is being written. */
    uint64_t newest;  /* The due slot furthest ahead, as the number of due slots before it. */
    gs_counter passed;
    uint64_t way_count; /* Those that brought anything are below it. */
    gs_copy_way ways[GS_COPY_WAYS];
} gs_copy_window;

typedef struct {
    uint64_t passed, way_count;
    uint64_t came[GS_COPY_WAYS], first[GS_COPY_WAYS];
} gs_copy_facts;

/* Of all slots but the newest few, whose copies may be under way; nothing, as of a count that has
 * just begun, if the writer is stopped in the middle for long. */
gs_copy_facts gs_copies_tell(const gs_copy_window *window, const gs_period *period, uint32_t every);
void gs_copies_begin(gs_copy_window *window);

/* The rest is for the one thread that writes. */

/* Make another due slot the newest: what leaves the window is judged, 64 slots at a time. */
void gs_copies_move(gs_copy_window *window, uint64_t due);

/* The way has brought nothing for the whole of the window. */
bool gs_copies_is_idle(const gs_copy_way *way);

/* What is written between these two is read as a whole: as in `expected.c` each word is stored with
 * release and loaded with acquire. */
static inline uint64_t gs_copies_open(gs_copy_window *window)
{
    uint64_t version = window->version;
    __atomic_store_n(&window->version, version + 1, __ATOMIC_RELAXED);
    return version + 2;
}

static inline void gs_copies_close(gs_copy_window *window, uint64_t version)
{
    __atomic_store_n(&window->version, version, __ATOMIC_RELEASE);
}

/* A counter of the window grows. x86 shows stores in their order anyway, and compilers move no
 * atomic one before another: there the plain increment does, two instructions shorter. */
static inline void gs_copies_add(gs_counter *counter, uint64_t amount)
{
#ifdef __x86_64__
    gs_add(counter, amount);
#else
    __atomic_store_n(counter, gs_read(counter) + amount, __ATOMIC_RELEASE);
#endif
}

/* A way begins with nothing. */
void gs_copies_begin_way(gs_copy_window *window, uint32_t way);

/* The number of a due slot among the due ones; false if it is not due, or before the phase. */
static inline bool gs_copies_due(int64_t slot, const gs_divisor *divisor, uint64_t *due)
{
    uint64_t product = (uint64_t)slot * divisor->inverse;
    *due = product >> divisor->shift | product << (-divisor->shift & 63);
    return *due <= divisor->limit && slot >= 0; /* As in `gs_is_multiple`: then it is exact. */
}

static inline bool gs_copies_remembers(const gs_copy_window *window, uint64_t due)
{
    return window->newest / 64 - due / 64 < GS_COPY_WORDS;
}

/* The way has brought this due slot before, or it is older than all that is remembered. */
static inline bool gs_copies_knows(const gs_copy_window *window, uint32_t way, uint64_t due)
{
    if (due > window->newest)
        return false;
    return !gs_copies_remembers(window, due) ||
           (window->ways[way].seen[due / 64 % GS_COPY_WORDS] >> due % 64 & 1) != 0;
}

/* One copy of a due slot, by a way below GS_COPY_WAYS; `is_first`: the first of all ways. */
static inline void gs_copies_note(gs_copy_window *window, uint32_t way, uint64_t due, bool is_first)
{
    uint64_t version = gs_copies_open(window);
    if (__builtin_expect(way >= window->way_count, 0))
        __atomic_store_n(&window->way_count, way + 1ULL, __ATOMIC_RELEASE);
    if (due / 64 == window->newest / 64) {
        if (due > window->newest)
            __atomic_store_n(&window->newest, due, __ATOMIC_RELEASE);
    } else if (due > window->newest || (is_first && !gs_copies_remembers(window, due))) {
        gs_copies_move(window, due);
    }
    if (gs_copies_remembers(window, due)) {
        gs_copy_way *by = &window->ways[way];
        uint64_t *word = &by->seen[due / 64 % GS_COPY_WORDS];
        __atomic_store_n(word, *word | 1ULL << due % 64, __ATOMIC_RELEASE);
        gs_copies_add(&by->first, is_first);
    }
    gs_copies_close(window, version);
}

#endif
