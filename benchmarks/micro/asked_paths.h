/* How many paths ask for which interval: what all layouts are made from, and small arrays for it.
 *
 * Part of table_layouts.c, as the two layouts are, so that the compiler sees each loop whole.
 */
#ifndef ASKED_PATHS_H
#define ASKED_PATHS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Adds to a count that a caller may not want; without one nothing is left of it. */
#define COUNT(tests)         \
    do {                     \
        if ((tests) != NULL) \
            (*(tests))++;    \
    } while (0)

/* Makes room for one more element of any array; `count` must be raised by the caller. */
#define GROW(array, count)                                                                         \
    do {                                                                                           \
        if (((count) & ((count) - 1)) == 0)                                                        \
            (array) = enlarged(array, sizeof *(array) * ((count) == 0 ? 1 : 2 * (size_t)(count))); \
    } while (0)

#define INSERT(array, at, count) \
    memmove(&(array)[(at) + 1], &(array)[at], sizeof *(array) * ((count) - (at)))

#define REMOVE(array, at, count) \
    memmove(&(array)[at], &(array)[(at) + 1], sizeof *(array) * ((count) - (at) - 1))

static void *enlarged(void *array, size_t bytes)
{
    void *memory = realloc(array, bytes);
    if (memory == NULL)
        abort();
    return memory;
}

typedef struct {
    uint32_t every, paths;
} asked;

/* Ascending by interval. */
typedef struct {
    asked *at;
    uint32_t count;
} asked_list;

static uint32_t place_in(const asked_list *list, uint32_t every)
{
    uint32_t at = 0;
    while (at < list->count && list->at[at].every < every)
        at++;
    return at;
}

static void add_paths(asked_list *list, uint32_t every, uint32_t paths)
{
    uint32_t at = place_in(list, every);
    if (at == list->count || list->at[at].every != every) {
        GROW(list->at, list->count);
        INSERT(list->at, at, list->count);
        list->at[at] = (asked){.every = every};
        list->count++;
    }
    list->at[at].paths += paths;
}

static bool take_path(asked_list *list, uint32_t every)
{
    uint32_t at = place_in(list, every);
    if (at == list->count || list->at[at].every != every)
        return false;
    if (--list->at[at].paths == 0) {
        REMOVE(list->at, at, list->count);
        list->count--;
    }
    return true;
}

static void pour(asked_list *into, asked_list *from)
{
    for (uint32_t i = 0; i < from->count; i++)
        add_paths(into, from->at[i].every, from->at[i].paths);
    free(from->at);
    *from = (asked_list){0};
}

static uint32_t path_count(const asked_list *list)
{
    uint32_t paths = 0;
    for (uint32_t i = 0; i < list->count; i++)
        paths += list->at[i].paths;
    return paths;
}

/* The plain test of the sources' tables: a division. */
static inline bool plain_is_due(int64_t slot, uint32_t every)
{
    return every == 1 || slot % (int64_t)every == 0;
}

#endif
