#include "frames.h"

#include <assert.h>
#include <stdlib.h>

bool relay_frames_open(relay_frames *frames)
{
    *frames = (relay_frames){.idle_count = RELAY_FRAMES_MAX};
    frames->all = calloc(RELAY_FRAMES_MAX, sizeof *frames->all);
    frames->idle = calloc(RELAY_FRAMES_MAX, sizeof(relay_frame *));
    frames->heap = calloc(RELAY_FRAMES_MAX, sizeof(relay_frame *));
    if (frames->all == NULL || frames->idle == NULL || frames->heap == NULL)
        return false;
    for (uint32_t at = 0; at < RELAY_FRAMES_MAX; at++)
        frames->idle[at] = &frames->all[at];
    return true;
}

void relay_frames_close(relay_frames *frames)
{
    free(frames->all);
    free(frames->idle);
    free(frames->heap);
}

relay_frame *relay_frame_take(relay_frames *frames)
{
    return frames->idle_count == 0 ? NULL : frames->idle[--frames->idle_count];
}

void relay_frame_return(relay_frames *frames, relay_frame *frame)
{
    assert(frames->idle_count < RELAY_FRAMES_MAX);
    frames->idle[frames->idle_count++] = frame;
}

static bool is_before(const relay_frame *one, const relay_frame *other)
{
    return one->due_ns != other->due_ns ? one->due_ns < other->due_ns : one->order < other->order;
}

static void place(relay_frames *frames, relay_frame *frame, uint32_t position)
{
    frames->heap[position] = frame;
    frame->position = position;
}

static void climb(relay_frames *frames, relay_frame *frame)
{
    uint32_t at = frame->position;
    while (at > 0 && is_before(frame, frames->heap[(at - 1) / 2])) {
        place(frames, frames->heap[(at - 1) / 2], at);
        at = (at - 1) / 2;
    }
    place(frames, frame, at);
}

static void sink(relay_frames *frames, relay_frame *frame)
{
    uint32_t at = frame->position;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= frames->waiting_count)
            break;
        if (child + 1 < frames->waiting_count &&
            is_before(frames->heap[child + 1], frames->heap[child]))
            child++;
        if (!is_before(frames->heap[child], frame))
            break;
        place(frames, frames->heap[child], at);
        at = child;
    }
    place(frames, frame, at);
}

void relay_frame_wait(relay_frames *frames, relay_frame *frame, uint64_t due_ns)
{
    assert(frames->waiting_count < RELAY_FRAMES_MAX);
    frame->due_ns = due_ns;
    frame->order = frames->next_order++;
    frame->position = frames->waiting_count++;
    climb(frames, frame);
}

void relay_frame_move(relay_frames *frames, relay_frame *frame, uint64_t due_ns)
{
    assert(frames->heap[frame->position] == frame);
    frame->due_ns = due_ns;
    frame->order = frames->next_order++;
    climb(frames, frame);
    sink(frames, frame);
}

relay_frame *relay_frame_due(relay_frames *frames, uint64_t now_ns)
{
    if (relay_frames_next_ns(frames) > now_ns)
        return NULL;
    relay_frame *first = frames->heap[0];
    relay_frame *last = frames->heap[--frames->waiting_count];
    if (last != first) {
        last->position = 0;
        sink(frames, last);
    }
    return first;
}

uint64_t relay_frames_next_ns(const relay_frames *frames)
{
    return frames->waiting_count == 0 ? UINT64_MAX : frames->heap[0]->due_ns;
}
