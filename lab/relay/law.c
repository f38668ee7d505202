#include "law.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN           0x9E3779B97F4A7C15U
#define NS_PER_MS        1e6
#define DELAY_MS_MAX     60000.0
#define BURST_MAX        1000000U
#define RATE_MAX         10000000000U
#define QUEUE_BYTES      262144U
#define UNIT_PER_DRAW    0x1p-53
#define DRAW_BITS_UNUSED 11

/* The streams of random numbers, one a question. */
enum { LOSS, BURST, CORRUPT, FLIP, DUPLICATE, HOLD, JITTER, COPY_JITTER };

/* Steele, Lea and Flood 2014: the finisher of SplitMix64. */
static uint64_t mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
    return value ^ (value >> 31);
}

static uint64_t draw(const relay_law *law, uint32_t stream)
{
    return mix(mix(law->key + stream * GOLDEN) + (law->number + 1) * GOLDEN);
}

static bool happens(const relay_law *law, uint32_t stream, double probability)
{
    return (double)(draw(law, stream) >> DRAW_BITS_UNUSED) * UNIT_PER_DRAW < probability;
}

relay_faults relay_no_faults(void)
{
    return (relay_faults){.burst_min = 1, .burst_max = 1, .queue_bytes = QUEUE_BYTES};
}

void relay_law_begin(relay_law *law, const relay_faults *faults, uint32_t direction)
{
    *law = (relay_law){.faults = *faults, .key = mix(faults->seed * 2 + direction + GOLDEN)};
}

/* S1 section 6.1: a trigger loses so many frames in a row, and none triggers inside a burst. */
static bool is_lost(relay_law *law)
{
    const relay_faults *faults = &law->faults;
    if (law->burst_left > 0) {
        law->burst_left--;
        return true;
    }
    double burst_mean = ((double)faults->burst_min + (double)faults->burst_max) / 2;
    if (!happens(law, LOSS, faults->loss / burst_mean))
        return false;
    uint64_t lengths = (uint64_t)faults->burst_max - faults->burst_min + 1;
    law->burst_left = (uint32_t)(faults->burst_min + draw(law, BURST) % lengths - 1);
    return true;
}

static uint64_t delayed(const relay_law *law, uint32_t stream)
{
    return law->faults.delay_ns + draw(law, stream) % (law->faults.jitter_ns + 1);
}

relay_fate relay_law_next(relay_law *law)
{
    const relay_faults *faults = &law->faults;
    relay_fate fate = {
        .is_lost = is_lost(law),
        .is_corrupted = happens(law, CORRUPT, faults->corrupt),
        .is_duplicated = happens(law, DUPLICATE, faults->duplicate),
        .is_held = happens(law, HOLD, faults->reorder),
        .flip = draw(law, FLIP),
        .delay_ns = delayed(law, JITTER),
        .copy_delay_ns = delayed(law, COPY_JITTER),
    };
    law->number++;
    return fate;
}

static bool within(const char *text, double low, double high, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && *value >= low && *value <= high;
}

static bool whole(const char *text, uint64_t high, uint64_t *value)
{
    char *end;
    *value = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && *value <= high;
}

static bool set_probability(relay_faults *faults, const char *name, const char *text)
{
    double value;
    if (!within(text, 0, 1, &value))
        return false;
    if (strcmp(name, "loss") == 0)
        faults->loss = value;
    else if (strcmp(name, "duplicate") == 0)
        faults->duplicate = value;
    else if (strcmp(name, "reorder") == 0)
        faults->reorder = value;
    else if (strcmp(name, "corrupt") == 0)
        faults->corrupt = value;
    else
        return false;
    return true;
}

static bool set_delay(uint64_t *delay_ns, const char *text)
{
    double delay_ms;
    if (!within(text, 0, DELAY_MS_MAX, &delay_ms))
        return false;
    *delay_ns = (uint64_t)(delay_ms * NS_PER_MS + 0.5);
    return true;
}

static bool set_burst(uint32_t *length, const char *text)
{
    uint64_t value;
    if (!whole(text, BURST_MAX, &value) || value == 0)
        return false;
    *length = (uint32_t)value;
    return true;
}

bool relay_faults_set(relay_faults *faults, const char *name, const char *value)
{
    if (strcmp(name, "delay_ms") == 0)
        return set_delay(&faults->delay_ns, value);
    if (strcmp(name, "jitter_ms") == 0)
        return set_delay(&faults->jitter_ns, value);
    if (strcmp(name, "burst_min") == 0)
        return set_burst(&faults->burst_min, value);
    if (strcmp(name, "burst_max") == 0)
        return set_burst(&faults->burst_max, value);
    if (strcmp(name, "rate_bytes_per_s") == 0)
        return whole(value, RATE_MAX, &faults->rate_bytes_per_s);
    if (strcmp(name, "queue_bytes") == 0)
        return whole(value, UINT32_MAX, &faults->queue_bytes);
    if (strcmp(name, "seed") == 0)
        return whole(value, UINT64_MAX, &faults->seed);
    return set_probability(faults, name, value);
}
