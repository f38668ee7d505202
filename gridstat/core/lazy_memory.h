/* Zeroed memory whose pages cost nothing until they are touched.
 *
 * The tables of an end are sized for the most variables it may ever carry; fifty subscribers of ten
 * variables each in one process must not pay for that. Whoever adds a variable touches its page, so
 * an event's way never meets an untouched one.
 */
#ifndef GS_LAZY_MEMORY_H
#define GS_LAZY_MEMORY_H

#include <stddef.h>
#include <sys/mman.h>

/* Aligned to a page; NULL when the system refuses. */
static inline void *gs_lazy_allocate(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static inline void gs_lazy_release(void *memory, size_t bytes)
{
    if (memory != NULL)
        munmap(memory, bytes);
}

#endif
