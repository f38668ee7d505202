#include "expected.h"

#include <string.h>
#include <time.h>

#include "memory.h"

#define ASLEEP           UINT64_MAX
#define SETTLE_SPINS_MAX 200U
#define SETTLE_NAP_NS    20000

/* --- Opening and closing ----------------------------------------------------------------- */

static gs_variable_index *index_make(uint32_t lines_max)
{
    gs_variable_index *index = gs_allocate(sizeof *index);
    if (gs_variable_index_open(index, lines_max))
        return index;
    gs_variable_index_close(index);
    gs_release(index);
    return NULL;
}

static void index_release(gs_variable_index *index)
{
    if (index != NULL)
        gs_variable_index_close(index);
    gs_release(index);
}

static bool open_table(gs_variable_table *table, uint32_t places_max, uint32_t lines_max)
{
    table->places_max = places_max;
    table->variables = gs_lazy_allocate(places_max * sizeof *table->variables);
    table->index = index_make(lines_max);
    return table->variables != NULL && table->index != NULL;
}

/* The thread adopts variables on the event path, which must not meet untouched pages. */
static void touch_table(gs_variable_table *table)
{
    memset(table->variables, 0, table->places_max * sizeof *table->variables);
    gs_variable_index_widen(table->index);
}

static void close_variable(gs_expected_variable *variable)
{
    gs_release(variable->ring);
    variable->ring = NULL;
    gs_window_close(&variable->window);
}

static void close_table(gs_variable_table *table)
{
    for (uint32_t i = 0; i < table->count; i++)
        close_variable(&table->variables[i]);
    gs_lazy_release(table->variables, table->places_max * sizeof *table->variables);
    index_release(table->index);
}

/* Half as many lines more than needed, so that changing identifiers cause few rebuilds. */
static uint32_t lines_max(const gs_expected *expected)
{
    return expected->variables_max + expected->variables_max / 2 + 16;
}

/* One place and one law more than variables: a change takes the new one before it frees the old. */
bool gs_expected_open(gs_expected *expected, const gs_expected_options *options)
{
    uint32_t places = options->variables_max + 1;
    *expected = (gs_expected){
        .variables_max = options->variables_max,
        .ring_expiry_ns = options->ring_expiry_ns,
        .seen = ASLEEP,
    };
    pthread_mutex_init(&expected->adding, NULL);
    bool is_open = open_table(&expected->announced, places, lines_max(expected));
    is_open &= gs_laws_open(&expected->laws, places);
    expected->identifiers = gs_lazy_allocate(places * sizeof(uint32_t));
    expected->free_places = gs_lazy_allocate(places * sizeof(uint32_t));
    is_open &= expected->identifiers != NULL && expected->free_places != NULL;
    if (options->has_ledgers) {
        expected->ledgers = gs_lazy_allocate(places * sizeof *expected->ledgers);
        is_open &= expected->ledgers != NULL;
    }
    if (!is_open || options->adopted_max == 0)
        return is_open;
    if (!open_table(&expected->adopted, options->adopted_max, options->adopted_max))
        return false;
    touch_table(&expected->adopted);
    return true;
}

void gs_expected_close(gs_expected *expected)
{
    size_t places = expected->announced.places_max;
    gs_laws_close(&expected->laws);
    gs_lazy_release(expected->identifiers, places * sizeof(uint32_t));
    gs_lazy_release(expected->free_places, places * sizeof(uint32_t));
    gs_lazy_release(expected->ledgers, places * sizeof *expected->ledgers);
    close_table(&expected->announced);
    close_table(&expected->adopted);
    pthread_mutex_destroy(&expected->adding);
}

/* --- Quiet points ------------------------------------------------------------------------ */

void gs_expected_enter(gs_expected *expected)
{
    uint64_t epoch = __atomic_load_n(&expected->epoch, __ATOMIC_SEQ_CST);
    __atomic_store_n(&expected->seen, epoch, __ATOMIC_SEQ_CST);
}

void gs_expected_leave(gs_expected *expected)
{
    __atomic_store_n(&expected->seen, ASLEEP, __ATOMIC_SEQ_CST);
}

void gs_expected_settle(gs_expected *expected)
{
    uint64_t epoch = __atomic_add_fetch(&expected->epoch, 1, __ATOMIC_SEQ_CST);
    uint32_t tries = 0;
    while (__atomic_load_n(&expected->seen, __ATOMIC_SEQ_CST) < epoch)
        if (++tries > SETTLE_SPINS_MAX)
            nanosleep(&(struct timespec){.tv_nsec = SETTLE_NAP_NS}, NULL);
}

/* --- Places ------------------------------------------------------------------------------ */

/* Return a free place, cleared but not yet in the index. */
static uint32_t take_place(gs_expected *expected, uint32_t variable_id)
{
    uint32_t place = expected->free_place_count != 0
                         ? expected->free_places[--expected->free_place_count]
                         : expected->announced.count++;
    memset(&expected->announced.variables[place], 0, sizeof(gs_expected_variable));
    if (expected->ledgers != NULL)
        memset(&expected->ledgers[place], 0, sizeof(gs_ledger));
    expected->identifiers[place] = variable_id;
    return place;
}

/* Called after the thread has released the place. */
static void give_place_back(gs_expected *expected, uint32_t place)
{
    gs_expected_variable *variable = &expected->announced.variables[place];
    gs_laws_drop(&expected->laws, variable->law);
    close_variable(variable);
    expected->free_places[expected->free_place_count++] = place;
}

/* Copy the index without the lines of identifiers that were all removed. */
static bool rebuild_index(gs_expected *expected)
{
    gs_variable_table *table = &expected->announced;
    gs_variable_index *worn = table->index, *fresh = index_make(lines_max(expected));
    if (fresh == NULL)
        return false;
    for (uint32_t place = 0; place < table->count; place++)
        if (gs_variable_index_find(worn, expected->identifiers[place]) == place)
            gs_variable_index_put(fresh, expected->identifiers[place], place);
    __atomic_store_n(&table->index, fresh, __ATOMIC_RELEASE);
    gs_expected_settle(expected);
    index_release(worn);
    return true;
}

static bool has_line(gs_expected *expected, uint32_t variable_id)
{
    return gs_variable_index_has_line(expected->announced.index, variable_id) ||
           rebuild_index(expected);
}

/* --- Announcing and forgetting ----------------------------------------------------------- */

/* Change the terms of a variable whose slots stay the same: the window stays. The counts restart
 * only when no event uses the old terms any more, because their divisor may differ. */
static bool renew(gs_expected *expected, gs_expected_variable *variable, const gs_law *law)
{
    const gs_law *old = variable->law, *fresh = gs_laws_share(&expected->laws, law);
    if (fresh != old) {
        __atomic_store_n(&variable->law, fresh, __ATOMIC_RELEASE);
        gs_expected_settle(expected);
        if (expected->ledgers != NULL)
            gs_ledger_renew(gs_expected_ledger(expected, variable));
    }
    gs_laws_drop(&expected->laws, old);
    return true;
}

/* A variable with other slots takes a new place: the receiving thread may be reading the old
 * one. */
static bool add(gs_expected *expected, uint32_t variable_id, const gs_law *law)
{
    gs_variable_table *table = &expected->announced;
    gs_expected_variable *known = gs_variable_table_find(table, variable_id);
    if (known != NULL && gs_law_has_same_slots(known->law, law))
        return renew(expected, known, law);
    if (known == NULL && expected->variable_count == expected->variables_max)
        return false;
    if (!has_line(expected, variable_id))
        return false;
    uint32_t place = take_place(expected, variable_id);
    gs_expected_variable *variable = &table->variables[place];
    variable->law = gs_laws_share(&expected->laws, law);
    if (law->is_periodic)
        gs_window_open(&variable->window, &law->period);
    else
        variable->ring = gs_allocate(sizeof *variable->ring);
    gs_variable_index_put(table->index, variable_id, place);
    expected->variable_count += known == NULL;
    if (known != NULL) {
        gs_expected_settle(expected);
        give_place_back(expected, (uint32_t)(known - table->variables));
    }
    return true;
}

bool gs_expected_add(gs_expected *expected, uint32_t variable_id, const gs_law *law)
{
    pthread_mutex_lock(&expected->adding);
    bool has_room = add(expected, variable_id, law);
    pthread_mutex_unlock(&expected->adding);
    return has_room;
}

bool gs_expected_forget(gs_expected *expected, uint32_t variable_id)
{
    gs_variable_table *table = &expected->announced;
    pthread_mutex_lock(&expected->adding);
    gs_expected_variable *known = gs_variable_table_find(table, variable_id);
    if (known != NULL) {
        gs_variable_index_remove(table->index, variable_id);
        gs_expected_settle(expected);
        give_place_back(expected, (uint32_t)(known - table->variables));
        expected->variable_count--;
    }
    pthread_mutex_unlock(&expected->adding);
    return known != NULL;
}

gs_expected_variable *gs_expected_adopt(gs_expected *expected, uint32_t variable_id)
{
    gs_variable_table *table = &expected->adopted;
    gs_expected_variable *variable = gs_expected_find(expected, variable_id);
    if (variable == NULL && table->count != table->places_max) {
        variable = &table->variables[table->count];
        gs_variable_index_put(table->index, variable_id, table->count++);
    }
    return variable;
}

bool gs_expected_read_ledger(gs_expected *expected, uint32_t variable_id, gs_ledger_facts *facts)
{
    if (expected->ledgers == NULL)
        return false;
    pthread_mutex_lock(&expected->adding);
    gs_expected_variable *known = gs_variable_table_find(&expected->announced, variable_id);
    if (known != NULL)
        *facts = gs_ledger_read(gs_expected_ledger(expected, known), known->law);
    pthread_mutex_unlock(&expected->adding);
    return known != NULL;
}

/* --- Values ------------------------------------------------------------------------------ */

/* Each word is stored with release and loaded with acquire: a reader that loads a new word also
 * sees the odd version, and tries again. Fences would do the same, but TSan cannot see them. */
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

static bool read_newest(const gs_expected_variable *variable, gs_sample *sample)
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

bool gs_expected_newest(gs_expected *expected, uint32_t variable_id, gs_sample *sample)
{
    pthread_mutex_lock(&expected->adding);
    const gs_expected_variable *variable = gs_expected_find(expected, variable_id);
    bool has_come = variable != NULL && read_newest(variable, sample);
    pthread_mutex_unlock(&expected->adding);
    return has_come;
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

gs_verdict gs_expected_follow(gs_expected_variable *variable, const gs_law *law,
                              const gs_sample *sample, int64_t slot, uint64_t now_ns,
                              gs_verdict verdict)
{
    if (sample->flags & GS_REPLAYED) {
        gs_period period = gs_period_replayed(law->period);
        if (verdict == GS_POLICED_JUMP && law->deadline_ns == 0)
            verdict = gs_window_accept_rare(&variable->window, &period, slot, false, now_ns);
    } else if (gs_window_follow_clock(&variable->window, &law->period, slot, false, now_ns,
                                      sample->received_ns)) {
        return GS_ACCEPTED;
    }
    return verdict;
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
