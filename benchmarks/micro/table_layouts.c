/* Three layouts of one variable's routes, behind one small interface for ctypes.
 *
 *   close   S0 A9 (close_table.h): by channel, then interval.
 *   sparse  S0 A10 (sparse_table.h): by interval, then channel, with marks.
 *   ours    the core's own row (forwarding_table.c): each distinct term once, with a bitmap.
 *
 * All work on divisors and slots. Close and sparse divide, as S0 does; the inverses of ours are
 * part of its row. Paths are put in and taken out as S0 says; that may be slow, routing may not.
 * Our row is made from the asked paths at the first event after a change, as a router's coalesced
 * commits do. The loops over a row repeat those of forwarder.c, without its channels.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "asked_paths.h"
#include "close_table.h"
#include "forwarding_table.h"
#include "memory.h"
#include "sparse_table.h"

enum { CLASS = 3, BASELINE = 1 };

/* ---- ours ---- */

typedef struct {
    uint32_t channel;
    asked_list paths;
} row_channel;

typedef struct {
    gs_row *row; /* NULL after a change. */
    row_channel *channels;
    uint32_t count;
} row_table;

static row_channel *row_find(const row_table *table, uint32_t channel)
{
    for (uint32_t i = 0; i < table->count; i++)
        if (table->channels[i].channel == channel)
            return &table->channels[i];
    return NULL;
}

static void row_change(row_table *table)
{
    gs_release(table->row);
    table->row = NULL;
}

static void row_insert(row_table *table, uint32_t channel, uint32_t every)
{
    if (row_find(table, channel) == NULL) {
        GROW(table->channels, table->count);
        table->channels[table->count++] = (row_channel){.channel = channel};
    }
    add_paths(&row_find(table, channel)->paths, every, 1);
    row_change(table);
}

static bool row_remove(row_table *table, uint32_t channel, uint32_t every)
{
    row_channel *found = row_find(table, channel);
    if (found == NULL || !take_path(&found->paths, every))
        return false;
    if (found->paths.count == 0) {
        free(found->paths.at);
        REMOVE(table->channels, (size_t)(found - table->channels), table->count);
        table->count--;
    }
    row_change(table);
    return true;
}

/* The divisors that no smaller one serves, as gridstat/router/forwarding_table.py hands over. */
static uint32_t write_terms(const asked_list *paths, gs_term *terms)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < paths->count; i++) {
        uint32_t every = paths->at[i].every, at = 0;
        while (at < count && every % terms[at].every != 0)
            at++;
        if (at == count)
            terms[count++] = (gs_term){.modes = BASELINE, .every = every};
    }
    return count;
}

/* False when the variable has more divisors than a row can hold. */
static bool row_settle(row_table *table)
{
    if (table->row != NULL)
        return true;
    size_t terms_max = 1, term_count = 0;
    for (uint32_t i = 0; i < table->count; i++)
        terms_max += table->channels[i].paths.count;
    gs_term *terms = enlarged(NULL, sizeof *terms * terms_max);
    gs_route *routes = enlarged(NULL, sizeof *routes * ((size_t)table->count + 1));
    for (uint32_t i = 0; i < table->count; i++) {
        uint32_t count = write_terms(&table->channels[i].paths, terms + term_count);
        routes[i] = (gs_route){.channel_index = table->channels[i].channel,
                               .event_class = CLASS,
                               .term_first = (uint32_t)term_count,
                               .term_count = count};
        term_count += count;
    }
    gs_row_spec words = {.flags = GS_ROW_PERIODIC,
                         .seconds = 1,
                         .per_seconds = 1,
                         .route_count = table->count,
                         .routes = routes,
                         .terms = terms};
    table->row = gs_row_make(&words, 0);
    free(terms);
    free(routes);
    return table->row != NULL;
}

INLINE uint32_t send_due(uint64_t due, const uint32_t *ways, uint32_t *out)
{
    uint32_t copies = 0;
    for (; due != 0; due &= due - 1)
        out[copies++] = ways[__builtin_ctzll(due)] >> 4;
    return copies;
}

static __attribute__((noinline)) uint32_t wide_due(const gs_row *row, int64_t slot, uint32_t *out)
{
    uint64_t due[GS_MAP_WORDS_MAX];
    uint32_t copies = 0;
    for (uint32_t first = 0; first < gs_row_map_words(row); first += GS_MAP_WORDS_MAX) {
        uint32_t left = gs_row_map_words(row) - first;
        uint32_t count = left < GS_MAP_WORDS_MAX ? left : GS_MAP_WORDS_MAX;
        gs_row_due_wide(row, BASELINE, slot, first, count, due);
        for (uint32_t i = 0; i < count; i++)
            copies += send_due(due[i], gs_row_outputs(row) + 64UL * (first + i), out + copies);
    }
    return copies;
}

INLINE uint32_t row_due(const gs_row *row, int64_t slot, uint32_t *out)
{
    if (row->flags & GS_ROW_PLAIN) {
        out[0] = (uint32_t)row->program[GS_PLAIN_OUTPUT] >> 4;
        return gs_term_is_due(row->program, BASELINE, gs_slot_magnitude(slot));
    }
    if (row->output_count > 64)
        return wide_due(row, slot, out);
    return send_due(gs_row_due(row, BASELINE, slot), gs_row_outputs(row), out);
}

/* Terms tested, and words of bitmaps joined and looked through. A short row stops early; that it
 * may is left out here. */
static uint32_t row_tests(const gs_row *row, int64_t slot)
{
    uint32_t map_words = gs_row_map_words(row), tests = map_words;
    for (uint32_t at = 0; at < row->outputs_at; at += GS_TERM_WORDS + map_words)
        tests += gs_term_is_due(row->program + at, BASELINE, gs_slot_magnitude(slot))
                     ? 1 + map_words
                     : 1;
    return tests;
}

static uint32_t row_terms(const gs_row *row)
{
    return row->outputs_at / (GS_TERM_WORDS + gs_row_map_words(row));
}

static void row_forget(row_table *table)
{
    row_change(table);
    for (uint32_t i = 0; i < table->count; i++)
        free(table->channels[i].paths.at);
    free(table->channels);
}

/* ---- what ctypes sees ---- */

typedef enum { LAYOUT_CLOSE, LAYOUT_SPARSE, LAYOUT_OURS } layout_kind;

typedef struct {
    layout_kind kind;
    union {
        close_table close;
        sparse_table sparse;
        row_table ours;
    };
} layout;

layout *layout_new(uint32_t kind)
{
    layout *table = gs_allocate(sizeof *table);
    table->kind = (layout_kind)kind;
    return table;
}

void layout_free(layout *table)
{
    switch (table->kind) {
    case LAYOUT_CLOSE:
        for (uint32_t i = 0; i < table->close.count; i++)
            close_forget(&table->close.channels[i]);
        free(table->close.channels);
        break;
    case LAYOUT_SPARSE:
        sparse_forget(&table->sparse);
        break;
    case LAYOUT_OURS:
        row_forget(&table->ours);
        break;
    }
    gs_release(table);
}

void layout_insert(layout *table, uint32_t channel, uint32_t every)
{
    switch (table->kind) {
    case LAYOUT_CLOSE:
        close_insert(&table->close, channel, every);
        break;
    case LAYOUT_SPARSE:
        sparse_insert(&table->sparse, channel, every);
        break;
    case LAYOUT_OURS:
        row_insert(&table->ours, channel, every);
        break;
    }
}

/* False when no such path is there. */
bool layout_remove(layout *table, uint32_t channel, uint32_t every)
{
    switch (table->kind) {
    case LAYOUT_CLOSE:
        return close_remove(&table->close, channel, every);
    case LAYOUT_SPARSE:
        return sparse_remove(&table->sparse, channel, every);
    case LAYOUT_OURS:
        break;
    }
    return row_remove(&table->ours, channel, every);
}

INLINE int64_t decide(layout *table, int64_t slot, uint32_t *out, uint32_t *tests)
{
    switch (table->kind) {
    case LAYOUT_CLOSE:
        return close_due(&table->close, slot, out, tests);
    case LAYOUT_SPARSE:
        return sparse_due(&table->sparse, slot, out, tests);
    case LAYOUT_OURS:
        break;
    }
    if (!row_settle(&table->ours))
        return -1;
    if (tests != NULL)
        *tests = row_tests(table->ours.row, slot);
    return row_due(table->ours.row, slot, out);
}

/* The channels that get the event of this slot, one copy each; -1 when a row cannot hold it all. */
int64_t layout_due(layout *table, int64_t slot, uint32_t *out)
{
    return decide(table, slot, out, NULL);
}

/* How many tests the decision takes: of intervals, of channels or groups, of marks. */
int64_t layout_tests(layout *table, int64_t slot, uint32_t *out)
{
    uint32_t tests = 0;
    return decide(table, slot, out, &tests) < 0 ? -1 : (int64_t)tests;
}

/* The thread's own time: what other processes of the machine take does not count. */
static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* One loop per layout, so that none pays for the choice. `SINK` keeps results from vanishing. */
#define SINK(out) __asm__ volatile("" : : "r"(out) : "memory")
#define EACH(decision)                                                             \
    do {                                                                           \
        for (uint32_t repetition = 0; repetition < run->repetitions; repetition++) \
            for (uint32_t s = 0; s < run->slot_count; s++)                         \
                for (uint32_t t = 0; t < run->table_count; t++) {                  \
                    layout *table = run->tables[t];                                \
                    int64_t slot = run->slots[s];                                  \
                    decision;                                                      \
                    SINK(out);                                                     \
                }                                                                  \
    } while (0)

/* Every slot at every table, all of one layout. */
typedef struct {
    layout *const *tables;
    const int64_t *slots;
    uint32_t *out;
    uint32_t table_count, slot_count, repetitions;
} layout_run;

uint64_t layout_bench(const layout_run *run)
{
    uint32_t *out = run->out;
    for (uint32_t t = 0; t < run->table_count; t++)
        decide(run->tables[t], 0, out, NULL); /* Settles it, and warms up. */
    uint64_t start_ns = now_ns();
    switch (run->tables[0]->kind) {
    case LAYOUT_CLOSE:
        EACH(close_due(&table->close, slot, out, NULL));
        break;
    case LAYOUT_SPARSE:
        EACH(sparse_due(&table->sparse, slot, out, NULL));
        break;
    case LAYOUT_OURS:
        EACH(row_due(table->ours.row, slot, out));
        break;
    }
    return now_ns() - start_ns;
}

/* ---- what is inside, in words ---- */

typedef struct {
    char *at;
    size_t room;
} text;

__attribute__((format(printf, 2, 3))) static void say(text *into, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    int length = vsnprintf(into->at, into->room, format, values);
    va_end(values);
    size_t used = (size_t)length < into->room ? (size_t)length : into->room;
    into->at += used;
    into->room -= used;
}

static void describe_close(const close_table *table, text *into)
{
    for (uint32_t i = 0; i < table->count; i++) {
        const close_channel *channel = &table->channels[i];
        say(into, "channel %" PRIu32 ":", channel->channel);
        for (uint32_t j = 0; j < channel->count; j++)
            say(into, " %" PRIu32 " same %" PRIu32 " sub %" PRIu32, channel->elements[j],
                channel->references[j].same, path_count(&channel->references[j].sub));
        say(into, "\n");
    }
}

static void describe_sparse(const sparse_table *table, text *into)
{
    for (uint32_t h = 0; h < table->holder_count; h++) {
        const sparse_holder *holder = &table->holders[h];
        say(into, "interval %" PRIu32 ":", holder->ways[0].every);
        for (uint32_t i = 0; i < holder->count; i++)
            say(into, " channel %" PRIu32 " at %" PRIu32 " paths %" PRIu32,
                table->outs[holder->ways[i].out].channel, holder->ways[i].every,
                path_count(&holder->paths[i]));
        say(into, "\n");
    }
    say(into, "outs:");
    for (uint32_t i = 0; i < table->out_count; i++)
        say(into, " %" PRIu32, table->outs[i].channel);
    say(into, "\n");
}

static void describe_row(row_table *table, text *into)
{
    if (row_settle(table))
        say(into, "terms %" PRIu32 " map words %" PRIu32 "\n", row_terms(table->row),
            gs_row_map_words(table->row));
}

/* Cut off where the buffer ends. */
void layout_describe(layout *table, char *buffer, size_t buffer_bytes)
{
    text into = {.at = buffer, .room = buffer_bytes};
    say(&into, "%s", "");
    switch (table->kind) {
    case LAYOUT_CLOSE:
        describe_close(&table->close, &into);
        break;
    case LAYOUT_SPARSE:
        describe_sparse(&table->sparse, &into);
        break;
    case LAYOUT_OURS:
        describe_row(&table->ours, &into);
        break;
    }
}
