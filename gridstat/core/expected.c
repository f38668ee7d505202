#include "expected.h"

#include <string.h>

#include "memory.h"

#define PERIODS_LOOKED_BACK 64U

static bool open_table(gs_variable_table *table, uint32_t variables_max)
{
    table->variables_max = variables_max;
    table->variables = gs_lazy_allocate(variables_max * sizeof *table->variables);
    bool has_index = gs_variable_index_open(&table->index, variables_max);
    return table->variables != NULL && has_index;
}

/* The thread adopts on an event's way, which must not meet untouched pages. */
static void touch_table(gs_variable_table *table)
{
    memset(table->variables, 0, table->variables_max * sizeof *table->variables);
    gs_variable_index_widen(&table->index);
}

static void close_table(gs_variable_table *table)
{
    for (uint32_t i = 0; i < table->count; i++)
        gs_release(table->variables[i].ring);
    gs_lazy_release(table->variables, table->variables_max * sizeof *table->variables);
    gs_variable_index_close(&table->index);
}

bool gs_expected_open(gs_expected *expected, uint32_t variables_max, uint32_t adopted_max,
                      uint64_t ring_expiry_ns)
{
    *expected = (gs_expected){.ring_expiry_ns = ring_expiry_ns};
    pthread_mutex_init(&expected->adding, NULL);
    expected->periods = gs_lazy_allocate(variables_max * sizeof *expected->periods);
    if (!open_table(&expected->announced, variables_max) || expected->periods == NULL)
        return false;
    if (adopted_max == 0)
        return true;
    if (!open_table(&expected->adopted, adopted_max))
        return false;
    touch_table(&expected->adopted);
    return true;
}

void gs_expected_close(gs_expected *expected)
{
    gs_lazy_release(expected->periods, expected->announced.variables_max * sizeof(gs_period));
    close_table(&expected->announced);
    close_table(&expected->adopted);
    pthread_mutex_destroy(&expected->adding);
}

static const gs_period *shared_period(gs_expected *expected, const gs_period *period)
{
    uint32_t looked_back = 0;
    for (uint32_t i = expected->period_count; i-- > 0 && looked_back < PERIODS_LOOKED_BACK;) {
        if (memcmp(&expected->periods[i], period, sizeof *period) == 0)
            return &expected->periods[i];
        looked_back++;
    }
    expected->periods[expected->period_count] = *period;
    return &expected->periods[expected->period_count++];
}

static bool has_law(const gs_expected_variable *variable, const gs_period *period)
{
    if (period == NULL)
        return variable->ring != NULL;
    return variable->period != NULL && memcmp(variable->period, period, sizeof *period) == 0;
}

/* The next free place, not yet in the index. */
static gs_expected_variable *free_place(gs_variable_table *table)
{
    return table->count == table->variables_max ? NULL : &table->variables[table->count];
}

static void take_place(gs_variable_table *table, uint32_t variable_id)
{
    gs_variable_index_put(&table->index, variable_id, table->count++);
}

/* A law that changes takes a fresh place: the receiving thread may be reading the old one. */
static bool add(gs_expected *expected, uint32_t variable_id, const gs_period *period)
{
    gs_expected_variable *known = gs_variable_table_find(&expected->announced, variable_id);
    if (known != NULL && has_law(known, period))
        return true;
    gs_expected_variable *variable = free_place(&expected->announced);
    if (variable == NULL)
        return false;
    variable->version = 0; /* Touches the page, so that no event has to. */
    if (period != NULL)
        variable->period = shared_period(expected, period);
    else
        variable->ring = gs_allocate(sizeof *variable->ring);
    take_place(&expected->announced, variable_id);
    return true;
}

bool gs_expected_add(gs_expected *expected, uint32_t variable_id, const gs_period *period)
{
    pthread_mutex_lock(&expected->adding);
    bool has_room = add(expected, variable_id, period);
    pthread_mutex_unlock(&expected->adding);
    return has_room;
}

gs_expected_variable *gs_expected_adopt(gs_expected *expected, uint32_t variable_id)
{
    gs_expected_variable *variable = gs_expected_find(expected, variable_id);
    if (variable == NULL && (variable = free_place(&expected->adopted)) != NULL)
        take_place(&expected->adopted, variable_id);
    return variable;
}

/* Each word is stored with release and loaded with acquire: a reader that meets a new word meets
 * the odd version as well, and tries again. Fences would do the same, but TSan cannot see them. */
void gs_expected_store_newest(gs_expected_variable *variable, const gs_sample *sample,
                              uint64_t now_ns)
{
    uint64_t words[GS_SAMPLE_WORDS];
    variable->newest_at_ns = now_ns;
    memcpy(words, sample, sizeof words);
    uint64_t version = variable->version;
    __atomic_store_n(&variable->version, version + 1, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < GS_SAMPLE_WORDS; i++)
        __atomic_store_n(&variable->newest[i], words[i], __ATOMIC_RELEASE);
    __atomic_store_n(&variable->version, version + 2, __ATOMIC_RELEASE);
}

bool gs_expected_newest(const gs_expected_variable *variable, gs_sample *sample)
{
    for (;;) {
        uint64_t words[GS_SAMPLE_WORDS];
        uint64_t version = __atomic_load_n(&variable->version, __ATOMIC_ACQUIRE);
        for (uint32_t i = 0; i < GS_SAMPLE_WORDS; i++)
            words[i] = __atomic_load_n(&variable->newest[i], __ATOMIC_ACQUIRE);
        if (version % 2 == 0 && __atomic_load_n(&variable->version, __ATOMIC_RELAXED) == version) {
            memcpy(sample, words, sizeof *sample);
            return version != 0;
        }
    }
}

/* Without slots the stamps decide, unless the value is so old that its clock may have been set. */
static bool is_newest(const gs_expected_variable *variable, const gs_sample *sample,
                      uint64_t now_ns)
{
    gs_sample newest;
    memcpy(&newest, variable->newest, sizeof newest);
    return variable->version == 0 || sample->created_ns >= newest.created_ns ||
           now_ns - variable->newest_at_ns >= GS_QUIET_NS;
}

gs_verdict gs_expected_accept_aperiodic(const gs_expected *expected, gs_expected_variable *variable,
                                        const gs_sample *sample, uint64_t now_ns)
{
    if (variable->ring != NULL) {
        gs_occurrence event = {
            .created_ns = sample->created_ns,
            .now_ns = now_ns,
            .expiry_ns = expected->ring_expiry_ns,
            .sequence = sample->sequence,
        };
        gs_verdict verdict = gs_ring_accept(variable->ring, &event);
        if (verdict != GS_ACCEPTED)
            return verdict;
    }
    if (is_newest(variable, sample, now_ns))
        gs_expected_store_newest(variable, sample, now_ns);
    return GS_ACCEPTED;
}
