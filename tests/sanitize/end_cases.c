/* What Python cannot ask of the ends: clocks that are set, how far a search goes, who takes a lock.
 *
 * Argument: the name of one case; without it all of them run. Time is ours: see `cases.h`.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"
#include "expected.h"
#include "platform.h"
#include "receiver.h"
#include "sender.h"

#define PERIOD_NS  1000000ULL
#define START_NS   (1700000000ULL * SECOND_NS)
#define HOUR_NS    (3600ULL * SECOND_NS)
#define PERIODIC   1U
#define APERIODIC  2U
#define PASSED_MAX 64U

/* --- Clocks that are set ----------------------------------------------------------------- */

typedef struct {
    gs_receiver *receiver;
    gs_sender *sender;
    uint64_t sent;
} gs_line;

/* A new sender, which counts its sequences from 0. */
static void open_sender(gs_line *line)
{
    gs_sender_options peer = {
        .version = GS_VERSION_PLAIN,
        .host = "127.0.0.1",
        .ports = {gs_receiver_port(line->receiver, 0), gs_receiver_port(line->receiver, 1)},
        .mtu_bytes = 1232,
        .variables_max = 16,
    };
    if (line->sender != NULL)
        gs_sender_close(line->sender);
    check(gs_sender_open(&peer, &line->sender) == GS_END_OK, "a sender opens");
}

static gs_line open_line(void)
{
    gs_line line = {0};
    gs_receiver_options own = {.host = "127.0.0.1",
                               .ring_events = 1024,
                               .variables_max = 16,
                               .ring_expiry_ns = 60 * SECOND_NS};
    check(gs_receiver_open(&own, &line.receiver) == GS_END_OK, "a receiver opens");
    gs_law periodic = gs_law_make(1, 1000, 0, 1, 0), aperiodic = gs_law_make(0, 0, 0, 1, 0);
    gs_receiver_expect(line.receiver, PERIODIC, &periodic);
    gs_receiver_expect(line.receiver, APERIODIC, &aperiodic);
    gs_receiver_start(line.receiver);
    open_sender(&line);
    return line;
}

static void close_line(gs_line *line)
{
    gs_sender_close(line->sender);
    gs_receiver_close(line->receiver);
}

/* Sends one event, and returns when the receiver has counted it. */
static void tell(gs_line *line, uint32_t variable_id, uint64_t created_ns)
{
    uint8_t value[8] = {0};
    gs_outgoing event = {.variable_id = variable_id,
                         .created_ns = created_ns,
                         .record = value,
                         .record_bytes = sizeof value};
    check(gs_sender_send(line->sender, &event) == GS_SEND_DONE, "an event leaves");
    line->sent++;
    while (gs_receiver_count(line->receiver, GS_RECEIVED_IN) < line->sent)
        usleep(100);
}

static void set_clocks_back(uint64_t passed_ns)
{
    __atomic_fetch_sub(&wall_ns, HOUR_NS, __ATOMIC_ACQ_REL);
    __atomic_fetch_add(&steady_ns, passed_ns, __ATOMIC_ACQ_REL);
}

static uint64_t delivered(const gs_line *line)
{
    return gs_receiver_count(line->receiver, GS_RECEIVED_DELIVERED);
}

/* Publisher and receiver take their time from one server, which sets both back. */
static void a_periodic_variable_is_heard_after_the_clock_is_set_back(void)
{
    gs_line line = open_line();
    for (uint64_t slot = 0; slot < 10; slot++)
        tell(&line, PERIODIC, wall_ns + slot * PERIOD_NS);
    check(delivered(&line) == 10, "all come before the step");
    set_clocks_back(2 * SECOND_NS);
    for (uint64_t slot = 0; slot < 10; slot++)
        tell(&line, PERIODIC, wall_ns + slot * PERIOD_NS);
    check(delivered(&line) == 20, "all come after the step");
    close_line(&line);
}

/* A publisher that begins again repeats its sequence, and here its stamp as well. */
static void an_aperiodic_variable_forgets_by_the_steady_clock(void)
{
    gs_line line = open_line();
    uint64_t created_ns = wall_ns;
    tell(&line, APERIODIC, created_ns);
    set_clocks_back(59 * SECOND_NS);
    open_sender(&line);
    tell(&line, APERIODIC, created_ns);
    check(delivered(&line) == 1, "within the expiry it is a copy");
    set_clocks_back(2 * SECOND_NS);
    open_sender(&line);
    tell(&line, APERIODIC, created_ns);
    check(delivered(&line) == 2, "beyond the expiry it is none");
    close_line(&line);
}

/* As the kernel's stamps have it. */
static void set_wall_clock_right(void)
{
    struct timespec now;
    check(syscall(SYS_clock_gettime, CLOCK_REALTIME, &now) == 0, "there is a clock");
    wall_ns = (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* Three hundred slots apart, and both waiting when the receiver comes to its senses. */
static void a_stall_costs_no_event_of_a_sparse_stream(void)
{
    gs_line line = open_line();
    set_wall_clock_right();
    tell(&line, PERIODIC, wall_ns);
    gs_receiver_stop(line.receiver);
    usleep(200000);
    uint8_t value[8] = {0};
    gs_outgoing event = {.variable_id = PERIODIC,
                         .created_ns = wall_ns + 200 * PERIOD_NS,
                         .record = value,
                         .record_bytes = sizeof value};
    for (int i = 0; i < 2; i++, event.created_ns += 300 * PERIOD_NS) {
        check(gs_sender_send(line.sender, &event) == GS_SEND_DONE, "an event leaves");
        usleep(300000);
    }
    set_wall_clock_right();
    steady_ns += 800 * PERIOD_NS;
    gs_receiver_start(line.receiver);
    while (gs_receiver_count(line.receiver, GS_RECEIVED_IN) < 3)
        usleep(100);
    check(delivered(&line) == 3, "all of them count");
    close_line(&line);
}

static void the_newest_value_follows_a_clock_that_is_set_back(void)
{
    gs_line line = open_line();
    gs_sample newest = {0};
    tell(&line, APERIODIC, wall_ns);
    set_clocks_back(2 * SECOND_NS);
    tell(&line, APERIODIC, wall_ns);
    check(gs_receiver_newest(line.receiver, APERIODIC, &newest), "there is a value");
    check(newest.created_ns == wall_ns, "it is the last one");
    check(newest.received_ns == wall_ns, "its stamp of arrival is of the wall clock");
    close_line(&line);
}

/* --- How far a search goes --------------------------------------------------------------- */

typedef uint32_t gs_numbering(uint32_t at);

static uint32_t consecutive(uint32_t at)
{
    return at;
}

static uint32_t in_blocks(uint32_t at)
{
    return at % 16384 + at / 16384 * 65536;
}

static uint32_t one_per_block(uint32_t at)
{
    return at * 65536 + at / 65536;
}

static uint32_t even(uint32_t at)
{
    return 2 * at;
}

/* The stride that one multiplication by the golden ratio cannot spread. */
static uint32_t fibonacci(uint32_t at)
{
    return at * 196418;
}

static uint32_t scattered(uint32_t at)
{
    at = (at ^ at >> 16) * 0x7FEB352DU;
    at = (at ^ at >> 15) * 0x846CA68BU;
    return at ^ at >> 16;
}

static void check_searches(const gs_variable_index *index, uint32_t count, gs_numbering *number,
                           uint32_t mean_max)
{
    uint64_t passed = 0;
    for (uint32_t at = 0; at < count; at++) {
        uint32_t own = gs_variable_index_search(index, number(at)).passed;
        check(own <= PASSED_MAX, "no search is long");
        passed += own;
    }
    check(passed <= (uint64_t)mean_max * count, "most searches are short");
}

static void check_index(uint32_t count, gs_numbering *number)
{
    gs_variable_index index;
    check(gs_variable_index_open(&index, count), "an index opens");
    for (uint32_t at = 0; at < count; at++)
        gs_variable_index_put(&index, number(at), at);
    for (uint32_t at = 0; at < count; at++)
        check(gs_variable_index_find(&index, number(at)) == at, "each is found");
    check_searches(&index, count, number, 1);
    check_searches(&index, count, scattered, 2);
    gs_variable_index_close(&index);
}

static void a_search_is_short_however_identifiers_are_leased(void)
{
    static gs_numbering *const numberings[] = {consecutive, in_blocks, one_per_block,
                                               even,        fibonacci, scattered};
    for (uint32_t i = 0; i < sizeof numberings / sizeof *numberings; i++) {
        check_index(131072, numberings[i]);
        check_index(100000, numberings[i]);
        check_index(1000, numberings[i]);
        check_index(1, numberings[i]);
    }
}

/* --- Who takes a lock -------------------------------------------------------------------- */

/* A lock that is taken already would hold us for ever; the alarm ends that. */
static void an_unknown_variable_is_adopted_without_a_lock(void)
{
    gs_expected expected;
    gs_expected_options few = {.variables_max = 2, .adopted_max = 2, .ring_expiry_ns = SECOND_NS};
    gs_law law = gs_law_make(0, 0, 0, 1, 0);
    check(gs_expected_open(&expected, &few), "the tables open");
    alarm(20);
    pthread_mutex_lock(&expected.adding);
    check(gs_expected_adopt(&expected, 7) != NULL, "one is adopted");
    check(gs_expected_adopt(&expected, 7) == gs_expected_find(&expected, 7), "and only once");
    check(gs_expected_adopt(&expected, 8) != NULL, "a second one is adopted");
    check(gs_expected_adopt(&expected, 9) == NULL, "a third one finds no room");
    pthread_mutex_unlock(&expected.adding);
    alarm(0);
    check(gs_expected_add(&expected, 7, &law), "those who announce have places of their own");
    check(gs_expected_add(&expected, 10, &law), "all of them");
    check(!gs_expected_add(&expected, 11, &law), "and no more");
    check(gs_expected_find(&expected, 7)->ring != NULL, "the announced one is found first");
    gs_expected_close(&expected);
}

/* --- Ledgers ----------------------------------------------------------------------------- */

/* An event that goes by the old terms, every slot, begins the count of the new ones. */
static void a_count_begun_by_other_terms_misses_nothing_below_one_step(void)
{
    gs_ledger ledger = {0};
    gs_ledger_renew(&ledger);
    gs_ledger_copy(&ledger, 0);
    const gs_law every = gs_law_make(1, 10, 0, 1, 0), sixth = gs_law_make(1, 10, 0, 6, 0);
    gs_ledger_place(&ledger, 100, &every);
    gs_add(&ledger.delivered, 1);
    gs_ledger_place(&ledger, 102, &sixth);
    gs_add(&ledger.delivered, 1);
    gs_ledger_place(&ledger, 96, &sixth);
    const gs_law law = gs_law_make(0, 0, 0, 1, 0);
    check(gs_ledger_read(&ledger, &law).missing == 0, "nothing is missing");
}

int main(int count, char **words)
{
    static const gs_case cases[] = {
        CASE(a_periodic_variable_is_heard_after_the_clock_is_set_back),
        CASE(an_aperiodic_variable_forgets_by_the_steady_clock),
#if GS_LINUX /* Only the kernel knows what arrived when, and POSIX does not let it say so. */
        CASE(a_stall_costs_no_event_of_a_sparse_stream),
#endif
        CASE(the_newest_value_follows_a_clock_that_is_set_back),
        CASE(a_search_is_short_however_identifiers_are_leased),
        CASE(an_unknown_variable_is_adopted_without_a_lock),
        CASE(a_count_begun_by_other_terms_misses_nothing_below_one_step),
    };
    run_cases(cases, sizeof cases / sizeof *cases, count > 1 ? words[1] : NULL);
    return 0;
}
