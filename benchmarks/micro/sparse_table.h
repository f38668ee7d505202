/* S0's sparse table (A10): per interval the channels that want it or a multiple of it.
 *
 * Routing tests the smallest interval of each holder, inside a due holder the channels not marked
 * yet, and then loops once over all channels to send and to clear the marks: it writes while it
 * routes. No holder's interval divides another's; that is as few tests as the layout can do.
 */
#ifndef SPARSE_TABLE_H
#define SPARSE_TABLE_H

#include "asked_paths.h"
#include "rate_law.h"

/* RoutingHolderSparse: one minimal interval of one channel. */
typedef struct {
    uint32_t every;
    uint32_t out;
} sparse_way;

/* IntervalHolder: ways ascending; the first has the smallest interval (m_currentIntervalPath). */
typedef struct {
    sparse_way *ways;
    asked_list *paths; /* Of each way: its interval and multiples of it. */
    uint32_t count;
} sparse_holder;

/* OutHolder. */
typedef struct {
    uint32_t channel;
    uint32_t ways;
    bool is_marked;
} sparse_out;

typedef struct {
    sparse_holder *holders;
    sparse_out *outs;
    uint32_t holder_count, out_count;
} sparse_table;

static bool sparse_is_of(const sparse_table *table, const sparse_way *way, uint32_t channel)
{
    return table->outs[way->out].channel == channel;
}

static uint32_t sparse_out_of(sparse_table *table, uint32_t channel)
{
    uint32_t at = 0;
    while (at < table->out_count && table->outs[at].channel != channel)
        at++;
    if (at == table->out_count) {
        GROW(table->outs, table->out_count);
        table->outs[table->out_count++] = (sparse_out){.channel = channel};
    }
    return at;
}

static void sparse_add_way(sparse_holder *holder, sparse_way way, asked_list paths)
{
    uint32_t at = 0;
    while (at < holder->count && holder->ways[at].every <= way.every)
        at++;
    GROW(holder->ways, holder->count);
    GROW(holder->paths, holder->count);
    INSERT(holder->ways, at, holder->count);
    INSERT(holder->paths, at, holder->count);
    holder->ways[at] = way;
    holder->paths[at] = paths;
    holder->count++;
}

static asked_list sparse_take_way(sparse_holder *holder, uint32_t at)
{
    asked_list paths = holder->paths[at];
    REMOVE(holder->ways, at, holder->count);
    REMOVE(holder->paths, at, holder->count);
    holder->count--;
    return paths;
}

/* The last channel takes the place of one that has no way left. */
static void sparse_leave_out(sparse_table *table, uint32_t out)
{
    if (--table->outs[out].ways != 0)
        return;
    uint32_t last = --table->out_count;
    table->outs[out] = table->outs[last];
    for (uint32_t h = 0; h < table->holder_count; h++)
        for (uint32_t i = 0; i < table->holders[h].count; i++)
            if (table->holders[h].ways[i].out == last)
                table->holders[h].ways[i].out = out;
}

static void sparse_drop_holder(sparse_table *table, uint32_t at)
{
    free(table->holders[at].ways);
    free(table->holders[at].paths);
    REMOVE(table->holders, at, table->holder_count);
    table->holder_count--;
}

/* The holder whose interval divides `every`; else a new one, which swallows its multiples. */
static sparse_holder *sparse_holder_for(sparse_table *table, uint32_t every)
{
    for (uint32_t h = 0; h < table->holder_count; h++)
        if (every % table->holders[h].ways[0].every == 0)
            return &table->holders[h];
    sparse_holder fresh = {0};
    for (uint32_t h = table->holder_count; h-- > 0;) {
        sparse_holder *other = &table->holders[h];
        if (other->ways[0].every % every != 0)
            continue;
        for (uint32_t i = 0; i < other->count; i++)
            sparse_add_way(&fresh, other->ways[i], other->paths[i]);
        sparse_drop_holder(table, h);
    }
    GROW(table->holders, table->holder_count);
    table->holders[table->holder_count] = fresh;
    return &table->holders[table->holder_count++];
}

/* The paths of a channel that a new interval of it now serves; their ways go. */
static asked_list sparse_absorb(sparse_table *table, uint32_t channel, uint32_t every)
{
    asked_list absorbed = {0};
    for (uint32_t h = 0; h < table->holder_count; h++) {
        sparse_holder *holder = &table->holders[h];
        for (uint32_t i = holder->count; i-- > 0;) {
            sparse_way way = holder->ways[i];
            if (!sparse_is_of(table, &way, channel) || way.every % every != 0)
                continue;
            asked_list paths = sparse_take_way(holder, i);
            pour(&absorbed, &paths);
            table->outs[way.out].ways--; /* Not left: the new way follows. */
        }
    }
    return absorbed;
}

static void sparse_place(sparse_table *table, uint32_t channel, uint32_t every, uint32_t paths)
{
    for (uint32_t h = 0; h < table->holder_count; h++) {
        sparse_holder *holder = &table->holders[h];
        for (uint32_t i = 0; i < holder->count; i++)
            if (sparse_is_of(table, &holder->ways[i], channel) &&
                every % holder->ways[i].every == 0) {
                add_paths(&holder->paths[i], every, paths);
                return;
            }
    }
    sparse_holder *holder = sparse_holder_for(table, every);
    /* Holders with a multiple as their smallest are inside this one by now, so none runs empty. */
    asked_list all = sparse_absorb(table, channel, every);
    add_paths(&all, every, paths);
    uint32_t out = sparse_out_of(table, channel);
    table->outs[out].ways++;
    sparse_add_way(holder, (sparse_way){.every = every, .out = out}, all);
}

/* A holder that lost its smallest interval is taken apart and its ways find their places anew. */
static void sparse_dissolve(sparse_table *table, uint32_t at)
{
    sparse_holder holder = table->holders[at];
    REMOVE(table->holders, at, table->holder_count);
    table->holder_count--;
    uint32_t *channels = enlarged(NULL, sizeof *channels * ((size_t)holder.count + 1));
    for (uint32_t i = 0; i < holder.count; i++)
        channels[i] = table->outs[holder.ways[i].out].channel;
    for (uint32_t i = 0; i < holder.count; i++) {
        sparse_leave_out(table, sparse_out_of(table, channels[i]));
        for (uint32_t j = 0; j < holder.paths[i].count; j++)
            sparse_place(table, channels[i], holder.paths[i].at[j].every,
                         holder.paths[i].at[j].paths);
        free(holder.paths[i].at);
    }
    free(channels);
    free(holder.ways);
    free(holder.paths);
}

/* The way's own interval is asked no more: what is left below it finds places of its own. */
static void sparse_retire(sparse_table *table, uint32_t h, uint32_t at)
{
    sparse_holder *holder = &table->holders[h];
    sparse_way way = holder->ways[at];
    uint32_t channel = table->outs[way.out].channel;
    asked_list left = sparse_take_way(holder, at);
    sparse_leave_out(table, way.out);
    if (at == 0 && (holder->count == 0 || holder->ways[0].every != way.every))
        sparse_dissolve(table, h);
    for (uint32_t i = 0; i < left.count; i++)
        sparse_place(table, channel, left.at[i].every, left.at[i].paths);
    free(left.at);
}

static void sparse_insert(sparse_table *table, uint32_t channel, uint32_t every)
{
    sparse_place(table, channel, every, 1);
}

static bool sparse_remove(sparse_table *table, uint32_t channel, uint32_t every)
{
    for (uint32_t h = 0; h < table->holder_count; h++) {
        sparse_holder *holder = &table->holders[h];
        for (uint32_t i = 0; i < holder->count; i++) {
            if (!sparse_is_of(table, &holder->ways[i], channel) ||
                !take_path(&holder->paths[i], every))
                continue;
            const asked_list *left = &holder->paths[i];
            if (left->count == 0 || left->at[0].every != holder->ways[i].every)
                sparse_retire(table, h, i);
            return true;
        }
    }
    return false;
}

/* S0 tests a way even where its interval is the holder's; that result is known, so we do not. */
INLINE uint32_t sparse_due(sparse_table *table, int64_t slot, uint32_t *out, uint32_t *tests)
{
    for (uint32_t h = 0; h < table->holder_count; h++) {
        const sparse_holder *holder = &table->holders[h];
        uint32_t smallest = holder->ways[0].every;
        COUNT(tests);
        if (!plain_is_due(slot, smallest))
            continue;
        for (uint32_t i = 0; i < holder->count; i++) {
            sparse_out *channel = &table->outs[holder->ways[i].out];
            uint32_t every = holder->ways[i].every;
            COUNT(tests);
            if (!channel->is_marked && (every == smallest || plain_is_due(slot, every)))
                channel->is_marked = true;
        }
    }
    uint32_t copies = 0;
    for (uint32_t i = 0; i < table->out_count; i++) {
        COUNT(tests);
        if (table->outs[i].is_marked) {
            out[copies++] = table->outs[i].channel;
            table->outs[i].is_marked = false;
        }
    }
    return copies;
}

static void sparse_forget(sparse_table *table)
{
    while (table->holder_count != 0) {
        sparse_holder *last = &table->holders[table->holder_count - 1];
        for (uint32_t i = 0; i < last->count; i++)
            free(last->paths[i].at);
        sparse_drop_holder(table, table->holder_count - 1);
    }
    free(table->holders);
    free(table->outs);
}

#endif
