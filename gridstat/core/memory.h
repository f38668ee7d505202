/* Memory of the core: allocated at start and by the writer of tables, never on the event path. */
#ifndef GS_MEMORY_H
#define GS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Allocate zeroed memory, aligned to a cache line; ends the process when there is none. */
void *gs_allocate(size_t bytes);
void gs_release(void *memory);

/* Allocate GS_SECRET_BYTES_MAX of zeroed memory for a key. Core dumps leave it out and a forked
 * child finds zeros in it, where the system can do that. The caller wipes it before the release. */
#define GS_SECRET_BYTES_MAX 4096U
void *gs_secret_allocate(void);
void gs_secret_release(void *memory);

/* True if the system would allocate so much now; checked before changes that cannot be undone. */
bool gs_has_memory(size_t bytes);

/* Number of allocations since the process began; constant while events flow. */
uint64_t gs_allocations(void);

/* Number of allocations not yet freed. */
uint64_t gs_held(void);

#endif
