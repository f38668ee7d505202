/* Copies of a variable's events by the path that brought them, due slot by due slot.
 *
 * A due slot has passed if some path brought a copy of it; a path that brought none has missed it.
 * A slot is judged when it leaves the window, or by the reader once later slots worth one second
 * have come: the paths differ in length, and a copy in transit is not missed.
 * `gridstat/model/copy_window.py` is the law, this its fast version. One writer, any reader, no
 * lock: a reader that loads a new word also sees the odd version before it, and tries again.
 */
#ifndef GS_COPIES_H
#define GS_COPIES_H

#include <stdbool.h>
#include <stdint.h>

#include "counters.h"
#include "rate_law.h"

#define GS_COPY_PATHS 4U
#define GS_COPY_SLOTS 256U
#define GS_COPY_WORDS (GS_COPY_SLOTS / 64)

typedef struct {
    gs_counter came,
        first; /* Due slots that it brought, and those it brought before all other paths. */
    uint64_t seen
        [GS_COPY_WORDS]; /* Bit n modulo GS_COPY_SLOTS: it brought due slot n, of the last ones. */
} gs_copy_path;

typedef struct {
    uint64_t version; /* Odd while it is being written. */
    uint64_t newest;  /* Due slot furthest ahead, as the number of due slots before it. */
    gs_counter passed;
    uint64_t path_count; /* Paths that brought any copy have lower indices. */
    gs_copy_path paths[GS_COPY_PATHS];
} gs_copy_window;

typedef struct {
    uint64_t passed, path_count;
    uint64_t came[GS_COPY_PATHS], first[GS_COPY_PATHS];
} gs_copy_facts;

/* Counts of all slots except the newest few, whose copies may be in transit. All zero, as at the
 * start, if the writer is stopped within a write for long. */
gs_copy_facts gs_copies_read(const gs_copy_window *window, const gs_period *period, uint32_t every);
void gs_copies_begin(gs_copy_window *window);

/* Divisor of the slots that are counted of every n-th: a fast variable has a longer window for
 * duplicates than this one, in which the same time must have room. */
uint32_t gs_copies_every(const gs_period *period, uint32_t every);

/* The functions below are for the one thread that writes. */

/* Make another due slot the newest; slots that leave the window are judged, 64 at a time. */
void gs_copies_move(gs_copy_window *window, uint64_t due);

/* True if the path has brought no copy within the whole window. */
bool gs_copies_is_idle(const gs_copy_path *path);

/* Writes between these two are read as a whole: as in `expected.c` each word is stored with release
 * and loaded with acquire. */
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

/* Add to a counter of the window. x86 shows stores in their order anyway, and compilers move no
 * atomic store before another: there a plain increment suffices, two instructions shorter. */
static inline void gs_copies_add(gs_counter *counter, uint64_t amount)
{
#ifdef __x86_64__
    gs_add(counter, amount);
#else
    __atomic_store_n(counter, gs_read(counter) + amount, __ATOMIC_RELEASE);
#endif
}

/* Reset the counts of a path. */
void gs_copies_begin_path(gs_copy_window *window, uint32_t path);

/* Compute the number of a due slot among the due ones; false if it is not due, or before the
 * phase. */
static inline bool gs_copies_due(int64_t slot, const gs_divisor *divisor, uint64_t *due)
{
    uint64_t product = (uint64_t)slot * divisor->inverse;
    *due = product >> divisor->shift | product << (-divisor->shift & 63);
    return *due <= divisor->limit &&
           slot >= 0; /* As in `gs_is_multiple`: then the quotient is exact. */
}

static inline bool gs_copies_remembers(const gs_copy_window *window, uint64_t due)
{
    return window->newest / 64 - due / 64 < GS_COPY_WORDS;
}

/* True if the path has brought this due slot before, or the slot has left the window. */
static inline bool gs_copies_knows(const gs_copy_window *window, uint32_t path, uint64_t due)
{
    if (due > window->newest)
        return false;
    return !gs_copies_remembers(window, due) ||
           (window->paths[path].seen[due / 64 % GS_COPY_WORDS] >> due % 64 & 1) != 0;
}

/* Note one copy of a due slot by a path below GS_COPY_PATHS; `is_first`: the first of all paths. */
static inline void gs_copies_note(gs_copy_window *window, uint32_t path, uint64_t due,
                                  bool is_first)
{
    uint64_t version = gs_copies_open(window);
    if (__builtin_expect(path >= window->path_count, 0))
        __atomic_store_n(&window->path_count, path + 1ULL, __ATOMIC_RELEASE);
    if (due / 64 == window->newest / 64) {
        if (due > window->newest)
            __atomic_store_n(&window->newest, due, __ATOMIC_RELEASE);
    } else if (due > window->newest || (is_first && !gs_copies_remembers(window, due))) {
        gs_copies_move(window, due);
    }
    if (gs_copies_remembers(window, due)) {
        gs_copy_path *by = &window->paths[path];
        uint64_t *word = &by->seen[due / 64 % GS_COPY_WORDS];
        __atomic_store_n(word, *word | 1ULL << due % 64, __ATOMIC_RELEASE);
        gs_copies_add(&by->first, is_first);
    }
    gs_copies_close(window, version);
}

#endif
