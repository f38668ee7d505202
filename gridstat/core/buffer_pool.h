/* Buffers for queued events, counted by reference: one buffer however many channels wait with it.
 *
 * All buffers are taken at start; an empty pool is a counted drop. Only the core's thread touches
 * the pool, so there is no lock; the free counts are readable by others.
 */
#ifndef GS_BUFFER_POOL_H
#define GS_BUFFER_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "counters.h"

#define GS_SMALL_BYTES 256U

typedef struct gs_buffer {
    uint32_t references;
    uint16_t bytes;
    uint8_t port;
    uint8_t is_large;
    uint64_t arrived_ns; /* By the steady clock. */
    uint8_t event[];
} gs_buffer;

typedef struct {
    uint8_t *memory;
    gs_buffer **stack;
    gs_counter free;
    uint32_t half;
} gs_buffer_stack;

typedef struct {
    gs_buffer_stack small;
    gs_buffer_stack large;
} gs_buffer_pool;

void gs_pool_open(gs_buffer_pool *pool, uint32_t small_count, uint32_t large_count);
void gs_pool_close(gs_buffer_pool *pool);

/* A copy of the event with no reference yet, or NULL when the pool is empty. */
gs_buffer *gs_pool_take(gs_buffer_pool *pool, const uint8_t *event, uint32_t bytes, uint8_t port);

/* True if more than half of the pool is free; replay, which would fill any pool, gets no more than
 * that. */
static inline bool gs_pool_has_plenty(const gs_buffer_pool *pool, uint32_t bytes)
{
    const gs_buffer_stack *stack = bytes <= GS_SMALL_BYTES ? &pool->small : &pool->large;
    return gs_read(&stack->free) > stack->half;
}

/* Drop one reference; the last one returns the buffer to the pool. */
void gs_pool_drop(gs_buffer_pool *pool, gs_buffer *buffer);

#endif
