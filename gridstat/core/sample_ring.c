#include "sample_ring.h"

#include "memory.h"

static uint64_t power_of_two(uint64_t at_least)
{
    uint64_t size = 1;
    while (size < at_least)
        size *= 2;
    return size;
}

void gs_sample_ring_open(gs_sample_ring *ring, uint32_t samples, uint32_t option_bytes)
{
    *ring = (gs_sample_ring){.samples_mask = power_of_two(samples) - 1};
    ring->samples = gs_allocate((ring->samples_mask + 1) * sizeof *ring->samples);
    if (option_bytes != 0) {
        ring->options_mask = power_of_two(option_bytes) - 1;
        ring->options = gs_allocate(ring->options_mask + 1);
    }
}

void gs_sample_ring_close(gs_sample_ring *ring)
{
    gs_release(ring->samples);
    gs_release(ring->options);
    ring->samples = NULL;
    ring->options = NULL;
}

bool gs_sample_ring_add_options(gs_sample_ring *ring, const uint8_t *options, uint32_t bytes)
{
    if (ring->options == NULL)
        return true;
    uint64_t size = ring->options_mask + 1;
    if (ring->options_written + bytes - ring->options_taken_seen > size) {
        ring->options_taken_seen = __atomic_load_n(&ring->options_taken, __ATOMIC_ACQUIRE);
        if (ring->options_written + bytes - ring->options_taken_seen > size)
            return false;
    }
    uint64_t at = ring->options_written & ring->options_mask;
    uint64_t before_wrap = size - at < bytes ? size - at : bytes;
    memcpy(ring->options + at, options, before_wrap);
    memcpy(ring->options, options + before_wrap, bytes - before_wrap);
    ring->options_written += bytes;
    return true;
}

/* The store and the load must keep their order on both sides, or writer and reader could each miss
 * the other's: the reader would sleep although samples are ready. */
bool gs_sample_ring_show(gs_sample_ring *ring)
{
    uint64_t shown = ring->visible;
    if (ring->written == shown)
        return false;
    __atomic_store_n(&ring->visible, ring->written, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&ring->taken, __ATOMIC_SEQ_CST) == shown;
}

uint64_t gs_sample_ring_ready(const gs_sample_ring *ring)
{
    uint64_t visible = __atomic_load_n(&ring->visible, __ATOMIC_SEQ_CST);
    return visible - __atomic_load_n(&ring->taken, __ATOMIC_RELAXED);
}

uint64_t gs_sample_ring_option_bytes(const gs_sample_ring *ring, uint64_t samples)
{
    if (ring->options == NULL)
        return 0;
    uint64_t options = 0;
    for (uint64_t i = 0; i < samples; i++)
        options += ring->samples[(ring->taken + i) & ring->samples_mask].option_count;
    return options * GS_OPTION_BYTES;
}

static void copy_wrapped(uint8_t *to, const uint8_t *ring, uint64_t at, uint64_t bytes,
                         uint64_t size)
{
    uint64_t before_wrap = size - at < bytes ? size - at : bytes;
    memcpy(to, ring + at, before_wrap);
    memcpy(to + before_wrap, ring, bytes - before_wrap);
}

void gs_sample_ring_take(gs_sample_ring *ring, gs_sample *to, uint64_t samples, uint8_t *options)
{
    uint64_t option_bytes = gs_sample_ring_option_bytes(ring, samples);
    if (options != NULL && option_bytes != 0)
        copy_wrapped(options, ring->options, ring->options_taken & ring->options_mask, option_bytes,
                     ring->options_mask + 1);
    copy_wrapped((uint8_t *)to, (const uint8_t *)ring->samples,
                 (ring->taken & ring->samples_mask) * sizeof *to, samples * sizeof *to,
                 (ring->samples_mask + 1) * sizeof *to);
    __atomic_store_n(&ring->options_taken, ring->options_taken + option_bytes, __ATOMIC_RELEASE);
    __atomic_store_n(&ring->taken, ring->taken + samples, __ATOMIC_SEQ_CST);
}
