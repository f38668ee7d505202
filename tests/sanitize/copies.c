/* A reader of copy windows meets no half-written one, while a thread notes copies and moves on,
 * channels come and go, and waits for no writer that is stopped. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "forwarding_table.h"

#define SLOTS 400000ULL
#define JOINS 300000U
#define LAST  (GS_COPY_PATHS - 1)
#define FIRST 1000000ULL

static gs_copy_window window;
static bool is_over; /* Atomic. */

static void check(bool is_true, const char *what)
{
    if (is_true)
        return;
    fprintf(stderr, "not so: %s\n", what);
    exit(1);
}

/* Path 0 brings all, path 1 all but every tenth, a little later. */
static void *bring(void *argument)
{
    (void)argument;
    for (uint64_t due = FIRST; due < FIRST + SLOTS; due++) {
        gs_copies_note(&window, 0, due, true);
        if (due >= FIRST + 5 && (due - 5) % 10 != 0)
            gs_copies_note(&window, 1, due - 5, false);
    }
    __atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
    return NULL;
}

static void pause_a_little(void)
{
    for (volatile uint32_t i = 0; i < 100; i++)
        ;
}

static gs_row_copies copies;

/* The last path goes from channel to channel, each of which brings one slot and no other. */
static void *come_and_go(void *argument)
{
    (void)argument;
    for (uint32_t channel_id = 1; channel_id <= JOINS; channel_id++) {
        uint64_t due = FIRST + 2ULL * GS_COPY_SLOTS * channel_id;
        for (uint32_t path = 0; path < LAST; path++)
            gs_copies_note(&copies.window, path, due, path == 0);
        pause_a_little();
        check(gs_row_copies_join(&copies, channel_id) == LAST, "the idle path is given away");
        pause_a_little();
        gs_copies_note(&copies.window, LAST, due, true);
        pause_a_little();
    }
    __atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
    return NULL;
}

/* What one channel brought is never read of another: the counts of none ever fall. */
static void check_joins(const gs_period *period)
{
    gs_row_copy_facts before = {0}, read;
    pthread_t writer;
    copies.divisor = gs_divisor_make(1);
    __atomic_store_n(&is_over, false, __ATOMIC_RELEASE);
    check(pthread_create(&writer, NULL, come_and_go, NULL) == 0, "a thread starts");
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        if (!gs_row_copies_read(&copies, period, &read))
            continue;
        bool is_same = read.channel_ids[LAST] == before.channel_ids[LAST];
        check(!is_same || read.first[LAST] >= before.first[LAST], "a channel keeps its counts");
        before = read;
    }
    pthread_join(writer, NULL);
}

/* The thread was stopped for good in the middle of a copy. */
static void check_stopped(const gs_period *period)
{
    __atomic_store_n(&window.version, window.version + 1, __ATOMIC_RELEASE);
    gs_copy_facts read = gs_copies_read(&window, period, 1);
    check(read.passed == 0 && read.path_count == 0, "nothing is read of a window half written");
}

int main(void)
{
    gs_period period = gs_period_make(1, 60, 0);
    gs_copy_facts before = {0};
    pthread_t writer;
    check(pthread_create(&writer, NULL, bring, NULL) == 0, "a thread starts");
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        gs_copy_facts read = gs_copies_read(&window, &period, 1);
        check(read.passed >= before.passed && read.came[1] >= before.came[1], "no count falls");
        check(read.came[0] == read.passed, "path 0 has missed nothing");
        uint64_t missed = read.passed - read.came[1];
        check(missed >= read.passed / 10 && missed <= read.passed / 10 + 1, "path 1 every tenth");
        before = read;
    }
    pthread_join(writer, NULL);
    gs_copies_begin(&window);
    check(gs_copies_read(&window, &period, 1).passed == 0, "a new count begins with nothing");
    check_joins(&period);
    check_stopped(&period);
    return 0;
}
