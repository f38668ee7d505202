/* Memory of the core: taken at start and by the writer of tables, never on an event's way. */
#ifndef GS_MEMORY_H
#define GS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed and aligned to a cache line; ends the process when there is none, as nothing can go on. */
void *gs_allocate(size_t bytes);
void gs_release(void *memory);

/* Whether the system would give so much now; asked before what cannot be undone halfway. */
bool gs_has_memory(size_t bytes);

/* How often memory was taken since the process began; flat while events flow. */
uint64_t gs_allocations(void);

/* How many pieces are held now. */
uint64_t gs_held(void);

#endif
