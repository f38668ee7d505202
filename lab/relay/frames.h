/* Frames on their way: a fixed pool, and a heap of those that wait for their time. */
#ifndef RELAY_FRAMES_H
#define RELAY_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RELAY_FRAME_BYTES 2048U
#define RELAY_FRAMES_MAX  16384U

typedef struct relay_frame relay_frame;

struct relay_frame {
    uint64_t due_ns;
    uint64_t order;    /* Among frames due at the same time. */
    uint64_t number;   /* Of its arrival, in its direction. */
    uint32_t position; /* In the heap. */
    uint32_t bytes;
    uint32_t direction;
    uint8_t content[RELAY_FRAME_BYTES];
};

typedef struct {
    relay_frame *all;
    relay_frame **idle;
    relay_frame **heap;
    uint32_t idle_count, waiting_count;
    uint64_t next_order;
} relay_frames;

/* False if there is no memory for the pool. */
bool relay_frames_open(relay_frames *frames);
void relay_frames_close(relay_frames *frames);

/* NULL if all are on their way. */
relay_frame *relay_frame_take(relay_frames *frames);
void relay_frame_return(relay_frames *frames, relay_frame *frame);

void relay_frame_wait(relay_frames *frames, relay_frame *frame, uint64_t due_ns);

/* Another time for a frame that waits; it goes behind all that are due at the same one. */
void relay_frame_move(relay_frames *frames, relay_frame *frame, uint64_t due_ns);

/* The next frame that is due by now, out of the heap; else NULL. */
relay_frame *relay_frame_due(relay_frames *frames, uint64_t now_ns);

/* When the next one is due; UINT64_MAX if none waits. */
uint64_t relay_frames_next_ns(const relay_frames *frames);

#endif
