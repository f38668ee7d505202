/* Counters: one writer (the thread that owns the core), any reader.
 *
 * A relaxed load, an add and a relaxed store compile to a plain increment, yet stay defined
 * when another thread reads the counter, so that no lock is needed and TSan has nothing to say.
 */
#ifndef GS_COUNTERS_H
#define GS_COUNTERS_H

#include <stdint.h>

typedef uint64_t gs_counter;

static inline void gs_add(gs_counter *counter, uint64_t amount)
{
    uint64_t value = __atomic_load_n(counter, __ATOMIC_RELAXED);
    __atomic_store_n(counter, value + amount, __ATOMIC_RELAXED);
}

static inline void gs_subtract(gs_counter *counter, uint64_t amount)
{
    uint64_t value = __atomic_load_n(counter, __ATOMIC_RELAXED);
    __atomic_store_n(counter, value - amount, __ATOMIC_RELAXED);
}

static inline void gs_set(gs_counter *counter, uint64_t value)
{
    __atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

static inline uint64_t gs_read(const gs_counter *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/* Latencies in log-linear buckets: eight to an octave, from 0 to about 146 hours. */
#define GS_HISTOGRAM_OCTAVES 46
#define GS_HISTOGRAM_BUCKETS (8 * GS_HISTOGRAM_OCTAVES)

typedef struct {
    gs_counter buckets[GS_HISTOGRAM_BUCKETS];
} gs_histogram;

static inline uint32_t gs_bucket_of(uint64_t latency_ns)
{
    if (latency_ns < 8)
        return (uint32_t)latency_ns;
    uint32_t exponent = 63U - (uint32_t)__builtin_clzll(latency_ns);
    uint32_t bucket = (exponent - 2) * 8 + (uint32_t)((latency_ns >> (exponent - 3)) & 7);
    return bucket < GS_HISTOGRAM_BUCKETS ? bucket : GS_HISTOGRAM_BUCKETS - 1;
}

/* The first latency that no longer belongs to the bucket. */
static inline uint64_t gs_bucket_upper_ns(uint32_t bucket)
{
    if (bucket < 8)
        return bucket + 1;
    uint32_t exponent = bucket / 8 + 2;
    return (uint64_t)(8 + bucket % 8 + 1) << (exponent - 3);
}

static inline void gs_histogram_add(gs_histogram *histogram, uint64_t latency_ns, uint64_t count)
{
    gs_add(&histogram->buckets[gs_bucket_of(latency_ns)], count);
}

#endif
