#include "expected.h"

#include <string.h>

#include "memory.h"

#define PERIODS_LOOKED_BACK 64U

bool gs_expected_open(gs_expected *expected, uint32_t variables_max, uint64_t ring_expiry_ns)
{
    *expected = (gs_expected){.variables_max = variables_max, .ring_expiry_ns = ring_expiry_ns};
    pthread_mutex_init(&expected->adding, NULL);
    expected->variables = gs_lazy_allocate(variables_max * sizeof *expected->variables);
    expected->periods = gs_lazy_allocate(variables_max * sizeof *expected->periods);
    bool has_index = gs_variable_index_open(&expected->index, variables_max);
    return expected->variables != NULL && expected->periods != NULL && has_index;
}

void gs_expected_close(gs_expected *expected)
{
    for (uint32_t i = 0; i < expected->count; i++)
        gs_release(expected->variables[i].ring);
    gs_lazy_release(expected->variables, expected->variables_max * sizeof *expected->variables);
    gs_lazy_release(expected->periods, expected->variables_max * sizeof *expected->periods);
    gs_variable_index_close(&expected->index);
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

/* A law that changes takes a fresh place: the receiving thread may be reading the old one. */
static gs_expected_variable *add_place(gs_expected *expected, uint32_t variable_id,
                                       const gs_period *period, bool has_ring)
{
    uint32_t place = expected->count;
    if (place == expected->variables_max)
        return NULL;
    gs_expected_variable *variable = &expected->variables[place];
    variable->version = 0; /* Touches the page, so that no event has to. */
    if (period != NULL)
        variable->period = shared_period(expected, period);
    else if (has_ring)
        variable->ring = gs_allocate(sizeof *variable->ring);
    __atomic_store_n(&expected->count, place + 1, __ATOMIC_RELAXED);
    gs_variable_index_put(&expected->index, variable_id, place);
    return variable;
}

bool gs_expected_add(gs_expected *expected, uint32_t variable_id, const gs_period *period)
{
    pthread_mutex_lock(&expected->adding);
    gs_expected_variable *variable = gs_expected_find(expected, variable_id);
    bool is_done = variable != NULL && has_law(variable, period);
    if (!is_done)
        is_done = add_place(expected, variable_id, period, true) != NULL;
    pthread_mutex_unlock(&expected->adding);
    return is_done;
}

gs_expected_variable *gs_expected_adopt(gs_expected *expected, uint32_t variable_id)
{
    if (__atomic_load_n(&expected->count, __ATOMIC_RELAXED) == expected->variables_max)
        return NULL;
    pthread_mutex_lock(&expected->adding);
    gs_expected_variable *variable = gs_expected_find(expected, variable_id);
    if (variable == NULL)
        variable = add_place(expected, variable_id, NULL, false);
    pthread_mutex_unlock(&expected->adding);
    return variable;
}

/* Each word is stored with release and loaded with acquire: a reader that meets a new word meets
 * the odd version as well, and tries again. Fences would do the same, but TSan cannot see them. */
void gs_expected_store_newest(gs_expected_variable *variable, const gs_sample *sample)
{
    uint64_t words[GS_SAMPLE_WORDS];
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
static bool is_newest(const gs_expected_variable *variable, const gs_sample *sample)
{
    gs_sample newest;
    memcpy(&newest, variable->newest, sizeof newest);
    return variable->version == 0 || sample->created_ns >= newest.created_ns ||
           sample->received_ns >= newest.received_ns + GS_QUIET_NS;
}

gs_verdict gs_expected_accept_aperiodic(gs_expected *expected, gs_expected_variable *variable,
                                        const gs_sample *sample)
{
    if (variable->ring != NULL) {
        gs_occurrence event = {
            .created_ns = sample->created_ns,
            .now_ns = sample->received_ns,
            .expiry_ns = expected->ring_expiry_ns,
            .sequence = sample->sequence,
        };
        gs_verdict verdict = gs_ring_accept(variable->ring, &event);
        if (verdict != GS_ACCEPTED)
            return verdict;
    }
    if (is_newest(variable, sample))
        gs_expected_store_newest(variable, sample);
    return GS_ACCEPTED;
}
