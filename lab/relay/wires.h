/* Wires between pairs of devices: each direction has a law, a cut, and counters that reconcile:
 *
 *   in + duplicated = out + lost + cut + full + unsent + waiting
 */
#ifndef RELAY_WIRES_H
#define RELAY_WIRES_H

#include <stdbool.h>
#include <stdint.h>

#include "frames.h"
#include "law.h"

#define RELAY_WIRES_MAX  256U
#define RELAY_NAME_BYTES 64U
#define RELAY_LATE_STEPS 64U

enum relay_counter {
    RELAY_IN,
    RELAY_OUT,
    RELAY_LOST,
    RELAY_CUT,
    RELAY_FULL,           /* No room: in the pool, behind a slow wire, or for so long a frame. */
    RELAY_UNSENT,         /* The far device did not take it. */
    RELAY_KERNEL_DROPPED, /* Never seen by us; beside the sum. */
    RELAY_DUPLICATED,
    RELAY_CORRUPTED,
    RELAY_REORDERED, /* Sent after one that had arrived later. */
    RELAY_COUNTERS
};

typedef struct {
    relay_law law;
    bool is_cut;
    int in, out;
    uint64_t arrived_ns; /* The newest frame's time. */
    uint64_t free_at_ns; /* When a wire of bounded rate has sent what it took in. */
    uint64_t arrivals, newest_sent;
    uint64_t waiting;
    relay_frame *held;    /* Waits in the heap too; to be overtaken by the next. */
    uint64_t held_due_ns; /* When it would have been due. */
    uint64_t counters[RELAY_COUNTERS];
    uint64_t late[RELAY_LATE_STEPS]; /* How many frames left late, by quarters of doublings. */
} relay_direction;

typedef struct {
    char name[RELAY_NAME_BYTES];
} relay_wire;

typedef struct {
    relay_frames frames;
    uint32_t wire_count;
    relay_wire wires[RELAY_WIRES_MAX];
    relay_direction directions[2 * RELAY_WIRES_MAX]; /* Of wire w: 2w forward, 2w + 1 backward. */
} relay_wires;

/* False with errno if a device cannot be opened. */
bool relay_wire_add(relay_wires *wires, const char *name, const char *near, const char *far);
void relay_wires_close(relay_wires *wires);

/* -1 if there is none. */
int relay_wire_find(const relay_wires *wires, const char *name);

/* Takes in what has come to a direction's device, a bounded number of frames. */
void relay_take_in(relay_wires *wires, uint32_t direction);

/* Sends all that is due. */
void relay_send_due(relay_wires *wires);

const char *relay_counter_name(enum relay_counter counter);

/* How late, in microseconds, so many of a hundred sent frames were at most. */
double relay_late_us(const relay_direction *direction, double percent);

#endif
