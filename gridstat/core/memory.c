#include "memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "platform.h"

#define CACHE_LINE   64
#define SECRETS_MORE 64U /* Pieces that are taken from the system at once. */

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

/* Free pieces of secret memory; the first word of each points to the next. In a forked child these
 * words are zeros, so the list ends there, which is right: it holds no piece twice. */
static struct {
    pthread_mutex_t lock;
    void *first;
} secrets = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void add_secrets(void)
{
    uint8_t *pieces = gs_secret_map((size_t)SECRETS_MORE * GS_SECRET_BYTES_MAX);
    if (pieces == NULL) {
        fprintf(stderr, "gridstat core: out of memory for keys\n");
        abort();
    }
    for (uint32_t i = 0; i < SECRETS_MORE; i++) {
        void *piece = pieces + (size_t)i * GS_SECRET_BYTES_MAX;
        memcpy(piece, &secrets.first, sizeof(void *));
        secrets.first = piece;
    }
}

void *gs_secret_allocate(void)
{
    pthread_mutex_lock(&secrets.lock);
    if (secrets.first == NULL)
        add_secrets();
    void *piece = secrets.first;
    memcpy(&secrets.first, piece, sizeof(void *));
    pthread_mutex_unlock(&secrets.lock);
    memset(piece, 0, sizeof(void *));
    __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
    return piece;
}

void gs_secret_release(void *memory)
{
    pthread_mutex_lock(&secrets.lock);
    memcpy(memory, &secrets.first, sizeof(void *));
    secrets.first = memory;
    pthread_mutex_unlock(&secrets.lock);
    __atomic_fetch_add(&releases, 1, __ATOMIC_RELAXED);
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
