/* A reader of copy windows meets no half-written one, while a thread notes copies and moves on. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "copies.h"

#define SLOTS 400000ULL
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

/* Way 0 brings all, way 1 all but every tenth, a little later. */
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

int main(void)
{
    gs_period period = gs_period_make(1, 60, 0);
    gs_copy_facts before = {0};
    pthread_t writer;
    check(pthread_create(&writer, NULL, bring, NULL) == 0, "a thread starts");
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        gs_copy_facts told = gs_copies_tell(&window, &period, 1);
        check(told.passed >= before.passed && told.came[1] >= before.came[1], "no count falls");
        check(told.came[0] == told.passed, "way 0 has missed nothing");
        uint64_t missed = told.passed - told.came[1];
        check(missed >= told.passed / 10 && missed <= told.passed / 10 + 1, "way 1 every tenth");
        before = told;
    }
    pthread_join(writer, NULL);
    gs_copies_begin(&window);
    check(gs_copies_tell(&window, &period, 1).passed == 0, "a new count begins with nothing");
    return 0;
}
