#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_LINE 64

static uint64_t allocations;
static uint64_t releases;

void *gs_allocate(size_t bytes)
{
    size_t rounded = (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    void *memory = aligned_alloc(CACHE_LINE, rounded);
    if (memory == NULL) {
        fprintf(stderr, "gridstat core: out of memory (%zu bytes)\n", bytes);
        abort();
    }
    memset(memory, 0, rounded);
    __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
    return memory;
}

void gs_release(void *memory)
{
    if (memory != NULL)
        __atomic_fetch_add(&releases, 1, __ATOMIC_RELAXED);
    free(memory);
}

bool gs_has_memory(size_t bytes)
{
    void *probe = malloc(bytes);
    free(probe);
    return probe != NULL;
}

uint64_t gs_held(void)
{
    return gs_allocations() - __atomic_load_n(&releases, __ATOMIC_RELAXED);
}

uint64_t gs_allocations(void)
{
    return __atomic_load_n(&allocations, __ATOMIC_RELAXED);
}
