/* Named cases in C with clocks of their own: what `loop_cases.c` and `end_cases.c` share. */
#ifndef GS_CASES_H
#define GS_CASES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000ULL

/* What the clocks show, from now on. */
static uint64_t wall_ns = 1700000000ULL * SECOND_NS;
static uint64_t steady_ns = 1000 * SECOND_NS;

/* Called before each reading of the wall clock, if there is one. */
static void (*before_wall_read)(void);

/* Stands in front of the library's. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, clock, time);
    if (clock == CLOCK_REALTIME && before_wall_read)
        before_wall_read();
    uint64_t *now = clock == CLOCK_REALTIME ? &wall_ns : &steady_ns;
    uint64_t ns = __atomic_load_n(now, __ATOMIC_ACQUIRE);
    time->tv_sec = (time_t)(ns / SECOND_NS);
    time->tv_nsec = (long)(ns % SECOND_NS);
    return 0;
}

static void check(bool is_true, const char *what)
{
    if (is_true)
        return;
    fprintf(stderr, "not so: %s\n", what);
    exit(1);
}

typedef struct {
    const char *name;
    void (*run)(void);
} gs_case;

#define CASE(name) {#name, name}

/* Runs the case of this name, or all where there is none. */
static void run_cases(const gs_case *cases, size_t count, const char *name)
{
    uint32_t ran = 0;
    for (size_t i = 0; i < count; i++) {
        if (name && strcmp(name, cases[i].name) != 0)
            continue;
        cases[i].run();
        printf("%s\n", cases[i].name);
        ran++;
    }
    check(ran != 0, "there is such a case");
}

#endif
