/* S0's close table (A9): per channel its minimal intervals, ascending, with the paths behind them.
 *
 * Routing scans a channel's intervals until one is due. It only reads, and pays the whole scan for
 * each channel that gets nothing.
 */
#ifndef CLOSE_TABLE_H
#define CLOSE_TABLE_H

#include "asked_paths.h"
#include "rate_law.h"

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
            if (plain_is_due(slot, channel->elements[j])) {
                out[copies++] = channel->channel;
                break;
            }
        }
    }
    return copies;
}

#endif
