#include "buffer_pool.h"

#include "event.h"
#include "memory.h"

static void open_stack(gs_buffer_stack *stack, uint32_t count, size_t event_bytes, uint8_t is_large)
{
    size_t stride = (sizeof(gs_buffer) + event_bytes + 63) / 64 * 64;
    stack->memory = gs_allocate(stride * count + 64);
    stack->stack = gs_allocate(sizeof(gs_buffer *) * (count + 1U));
    for (uint32_t i = 0; i < count; i++) {
        stack->stack[i] = (gs_buffer *)(void *)(stack->memory + stride * i);
        stack->stack[i]->is_large = is_large;
    }
    stack->half = count / 2;
    gs_set(&stack->free, count);
}

void gs_pool_open(gs_buffer_pool *pool, uint32_t small_count, uint32_t large_count)
{
    open_stack(&pool->small, small_count, GS_SMALL_BYTES, 0);
    open_stack(&pool->large, large_count, GS_EVENT_BYTES_MAX, 1);
}

void gs_pool_close(gs_buffer_pool *pool)
{
    gs_release(pool->small.memory);
    gs_release(pool->small.stack);
    gs_release(pool->large.memory);
    gs_release(pool->large.stack);
}

gs_buffer *gs_pool_take(gs_buffer_pool *pool, const uint8_t *event, uint32_t bytes, uint8_t port)
{
    gs_buffer_stack *stack = bytes <= GS_SMALL_BYTES ? &pool->small : &pool->large;
    uint64_t free = gs_read(&stack->free);
    if (free == 0)
        return NULL;
    gs_set(&stack->free, free - 1);
    gs_buffer *buffer = stack->stack[free - 1];
    buffer->references = 0;
    buffer->bytes = (uint16_t)bytes;
    buffer->port = port;
    gs_event_copy(buffer->event, event, bytes);
    return buffer;
}

void gs_pool_drop(gs_buffer_pool *pool, gs_buffer *buffer)
{
    if (--buffer->references != 0)
        return;
    gs_buffer_stack *stack = buffer->is_large ? &pool->large : &pool->small;
    uint64_t free = gs_read(&stack->free);
    stack->stack[free] = buffer;
    gs_set(&stack->free, free + 1);
}
