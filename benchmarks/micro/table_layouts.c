/* Three layouts of one variable's routes, behind one small interface for ctypes.
 *
 *   close   S0 A9:  per channel its minimal intervals, ascending; scanned until one is due.
 *   sparse  S0 A10: per interval the channels that want it or a multiple; marks, then a second loop.
 *   ours    the row of gridstat/core (forwarding_row.c): distinct divisors once, channels grouped.
 *
 * All work on divisors and slots and share the core's test `slot mod every`, so that only the
 * layouts differ. Insertion and removal of paths follow S0; they may be slow, routing may not. Our
 * layout is built from the asked paths at the first event after a change, as the router's
 * coalesced commits do. The loops over a row repeat those of forwarder.c, without its channels.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "forwarding_table.h"
#include "memory.h"

#define INLINE static inline __attribute__((always_inline))

/* Adds to a count that a caller may not want; without one nothing is left of it. */
#define COUNT(tests)                                                                               \
    do {                                                                                           \
        if ((tests) != NULL)                                                                       \
            (*(tests))++;                                                                          \
    } while (0)

/* Makes room for one more element of any array; `count` must be raised by the caller. */
#define GROW(array, count)                                                                         \
    do {                                                                                           \
        if (((count) & ((count) - 1)) == 0)                                                        \
            (array) = enlarged(array, sizeof *(array) * ((count) == 0 ? 1 : 2 * (size_t)(count))); \
    } while (0)

#define INSERT(array, at, count)                                                                   \
    memmove(&(array)[(at) + 1], &(array)[at], sizeof *(array) * ((count) - (at)))

#define REMOVE(array, at, count)                                                                   \
    memmove(&(array)[at], &(array)[(at) + 1], sizeof *(array) * ((count) - (at) - 1))

static void *enlarged(void *array, size_t bytes)
{
    void *memory = realloc(array, bytes);
    if (memory == NULL)
        abort();
    return memory;
}

/* ---- paths: how many ask for which interval, ascending ---- */

typedef struct {
    uint32_t every, paths;
} asked;

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

/* ---- close ---- */

typedef struct {
    uint32_t same;  /* Paths with exactly this interval. */
    asked_list sub; /* Paths with a multiple of it. */
} references;

typedef struct {
    uint32_t channel;
    uint32_t count;
    uint32_t *elements; /* Minimal intervals, ascending: all that routing reads. */
    references *references;
} close_channel;

typedef struct {
    close_channel *channels;
    uint32_t count;
} close_table;

static close_channel *close_find(const close_table *table, uint32_t channel)
{
    for (uint32_t i = 0; i < table->count; i++)
        if (table->channels[i].channel == channel)
            return &table->channels[i];
    return NULL;
}

static references close_take(close_channel *channel, uint32_t at)
{
    references taken = channel->references[at];
    REMOVE(channel->elements, at, channel->count);
    REMOVE(channel->references, at, channel->count);
    channel->count--;
    return taken;
}

/* Equal: one reference more. A multiple: goes under it. Else a new element, which pulls in its own
 * multiples. */
static void close_place(close_channel *channel, uint32_t every, uint32_t paths)
{
    uint32_t at = 0;
    for (; at < channel->count && channel->elements[at] <= every; at++) {
        if (channel->elements[at] == every) {
            channel->references[at].same += paths;
            return;
        }
        if (every % channel->elements[at] == 0) {
            add_paths(&channel->references[at].sub, every, paths);
            return;
        }
    }
    references fresh = {.same = paths};
    for (uint32_t i = channel->count; i-- > at;)
        if (channel->elements[i] % every == 0) {
            uint32_t multiple = channel->elements[i];
            references pulled = close_take(channel, i);
            add_paths(&fresh.sub, multiple, pulled.same);
            pour(&fresh.sub, &pulled.sub);
        }
    GROW(channel->elements, channel->count);
    GROW(channel->references, channel->count);
    INSERT(channel->elements, at, channel->count);
    INSERT(channel->references, at, channel->count);
    channel->elements[at] = every;
    channel->references[at] = fresh;
    channel->count++;
}

static void close_insert(close_table *table, uint32_t channel, uint32_t every)
{
    if (close_find(table, channel) == NULL) {
        GROW(table->channels, table->count);
        table->channels[table->count++] = (close_channel){.channel = channel};
    }
    close_place(close_find(table, channel), every, 1);
}

/* The last path of an element is gone: the smallest below it is promoted, the others follow it or
 * find another element that serves them. */
static void close_promote(close_channel *channel, uint32_t at)
{
    references left = close_take(channel, at);
    for (uint32_t i = 0; i < left.sub.count; i++)
        close_place(channel, left.sub.at[i].every, left.sub.at[i].paths);
    free(left.sub.at);
}

static bool close_take_path(close_channel *channel, uint32_t every)
{
    for (uint32_t i = 0; i < channel->count; i++) {
        if (channel->elements[i] == every) {
            if (--channel->references[i].same == 0)
                close_promote(channel, i);
            return true;
        }
        if (take_path(&channel->references[i].sub, every))
            return true;
    }
    return false;
}

static void close_forget(close_channel *channel)
{
    for (uint32_t i = 0; i < channel->count; i++)
        free(channel->references[i].sub.at);
    free(channel->elements);
    free(channel->references);
}

static bool close_remove(close_table *table, uint32_t channel, uint32_t every)
{
    close_channel *found = close_find(table, channel);
    if (found == NULL || !close_take_path(found, every))
        return false;
    if (found->count == 0) {
        close_forget(found);
        REMOVE(table->channels, (size_t)(found - table->channels), table->count);
        table->count--;
    }
    return true;
}

INLINE uint32_t close_due(const close_table *table, int64_t slot, uint32_t *out, uint32_t *tests)
{
    uint32_t copies = 0;
    for (uint32_t i = 0; i < table->count; i++) {
        const close_channel *channel = &table->channels[i];
        for (uint32_t j = 0; j < channel->count; j++) {
            COUNT(tests);
            if (gs_slot_is_due(slot, channel->elements[j])) {
                out[copies++] = channel->channel;
                break;
            }
        }
    }
    return copies;
}
