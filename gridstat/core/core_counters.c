/* All counters of a core, of one moment between two calls. */
#include <time.h>

#include "forwarder.h"

#define COUNTER_SPINS_MAX 2000U /* About a tenth of a millisecond, several calls long. */
#define COUNTER_TRIES_MAX (COUNTER_SPINS_MAX + 10000U)
#define COUNTER_NAP_NS    50000

gs_core_counters gs_core_counters_read(const gs_core *core)
{
    gs_core_counters copy;
    const gs_counter *from = (const gs_counter *)&core->counters;
    gs_counter *to = (gs_counter *)&copy;
    uint64_t before, after;
    uint32_t tries = 0;
    do {
        if (tries > COUNTER_SPINS_MAX) /* The thread was interrupted in the middle of a call. */
            nanosleep(&(struct timespec){.tv_nsec = COUNTER_NAP_NS}, NULL);
        before = __atomic_load_n(&core->version, __ATOMIC_ACQUIRE);
        for (size_t i = 0; i < sizeof copy / sizeof(gs_counter); i++)
            to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
        after = __atomic_load_n(&core->version, __ATOMIC_RELAXED);
    } while ((before != after || (before & 1) != 0) && ++tries < COUNTER_TRIES_MAX);
    return copy;
}
