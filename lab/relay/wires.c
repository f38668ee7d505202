#include "wires.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ethernet.h"

#define FRAMES_A_TURN  64
#define NS_PER_S       1000000000U
#define HELD_NS_MAX    20000000U /* A held frame that nobody overtakes goes on after 20 ms. */
#define LATE_FIRST_NS  1000U
#define STEPS_A_DOUBLE 4U

static const char *const counter_names[RELAY_COUNTERS] = {
    "in",         "out",       "lost",      "cut", "full", "unsent", "kernel_dropped",
    "duplicated", "corrupted", "reordered",
};

const char *relay_counter_name(enum relay_counter counter)
{
    return counter_names[counter];
}

int relay_wire_find(const relay_wires *wires, const char *name)
{
    for (uint32_t at = 0; at < wires->wire_count; at++)
        if (strcmp(wires->wires[at].name, name) == 0)
            return (int)at;
    return -1;
}

bool relay_wire_add(relay_wires *wires, const char *name, const char *near, const char *far)
{
    uint32_t at = wires->wire_count;
    if (at == RELAY_WIRES_MAX || strlen(name) >= RELAY_NAME_BYTES) {
        errno = ENOSPC;
        return false;
    }
    int near_device = relay_device_open(near);
    if (near_device < 0)
        return false;
    int far_device = relay_device_open(far);
    if (far_device < 0) {
        int why = errno;
        close(near_device);
        errno = why;
        return false;
    }
    snprintf(wires->wires[at].name, RELAY_NAME_BYTES, "%s", name);
    relay_faults none = relay_no_faults();
    for (uint32_t side = 0; side < 2; side++) {
        relay_direction *direction = &wires->directions[2 * at + side];
        *direction = (relay_direction){.in = side == 0 ? near_device : far_device,
                                       .out = side == 0 ? far_device : near_device};
        relay_law_begin(&direction->law, &none, side);
    }
    wires->wire_count++;
    return true;
}

void relay_wires_close(relay_wires *wires)
{
    for (uint32_t at = 0; at < 2 * wires->wire_count; at++)
        close(wires->directions[at].in);
    relay_frames_close(&wires->frames);
}

/* --- In ---------------------------------------------------------------------------------- */

/* When a frame has passed a wire of bounded rate; false if too much waits there already. */
static bool pass_rate(relay_direction *direction, uint32_t bytes, uint64_t *at_ns)
{
    const relay_faults *faults = &direction->law.faults;
    if (faults->rate_bytes_per_s == 0)
        return true;
    uint64_t start_ns = direction->free_at_ns > *at_ns ? direction->free_at_ns : *at_ns;
    double waiting_bytes =
        (double)(start_ns - *at_ns) * (double)faults->rate_bytes_per_s / (double)NS_PER_S;
    if (waiting_bytes + bytes > (double)faults->queue_bytes)
        return false;
    *at_ns = start_ns + (uint64_t)bytes * NS_PER_S / faults->rate_bytes_per_s;
    direction->free_at_ns = *at_ns;
    return true;
}

static void wait_for(relay_wires *wires, relay_frame *frame, uint64_t due_ns)
{
    relay_direction *direction = &wires->directions[frame->direction];
    relay_frame_wait(&wires->frames, frame, due_ns);
    direction->waiting++;
    if (direction->held == NULL)
        return;
    uint64_t held_ns = direction->held_due_ns > due_ns ? direction->held_due_ns : due_ns;
    relay_frame_move(&wires->frames, direction->held, held_ns);
    direction->held = NULL;
}

static void duplicate(relay_wires *wires, const relay_frame *frame, uint64_t due_ns)
{
    relay_frame *copy = relay_frame_take(&wires->frames);
    if (copy == NULL)
        return;
    copy->bytes = frame->bytes;
    copy->number = frame->number;
    copy->direction = frame->direction;
    memcpy(copy->content, frame->content, frame->bytes);
    wires->directions[frame->direction].counters[RELAY_DUPLICATED]++;
    wait_for(wires, copy, due_ns);
}

/* Gives the frame its fate; false if it goes no further, with the reason counted. */
static bool meet_fate(relay_wires *wires, relay_frame *frame, uint64_t arrived_ns)
{
    relay_direction *direction = &wires->directions[frame->direction];
    uint64_t *counters = direction->counters;
    counters[RELAY_IN]++;
    frame->number = ++direction->arrivals;
    if (direction->is_cut) {
        counters[RELAY_CUT]++;
        return false;
    }
    if (frame->bytes > RELAY_FRAME_BYTES) {
        counters[RELAY_FULL]++;
        return false;
    }
    /* Whoever looks for an address on the wire is not part of the experiment. */
    if (!relay_is_ip(frame)) {
        wait_for(wires, frame, arrived_ns);
        return true;
    }
    relay_fate fate = relay_law_next(&direction->law);
    if (fate.is_lost || !pass_rate(direction, frame->bytes, &arrived_ns)) {
        counters[fate.is_lost ? RELAY_LOST : RELAY_FULL]++;
        return false;
    }
    if (fate.is_corrupted && relay_flip_bit(frame, fate.flip))
        counters[RELAY_CORRUPTED]++;
    bool is_held = fate.is_held && direction->held == NULL;
    wait_for(wires, frame, arrived_ns + fate.delay_ns + (is_held ? HELD_NS_MAX : 0));
    if (fate.is_duplicated)
        duplicate(wires, frame, arrived_ns + fate.copy_delay_ns);
    if (is_held) {
        direction->held = frame;
        direction->held_due_ns = arrived_ns + fate.delay_ns;
    }
    return true;
}

void relay_take_in(relay_wires *wires, uint32_t direction)
{
    for (int turn = 0; turn < FRAMES_A_TURN; turn++) {
        relay_frame *frame = relay_frame_take(&wires->frames);
        relay_frame spare; /* Read all the same, or the loop would turn on the spot. */
        relay_frame *target = frame != NULL ? frame : &spare;
        uint64_t arrived_ns;
        if (!relay_device_read(wires->directions[direction].in, target, &arrived_ns)) {
            if (frame != NULL)
                relay_frame_return(&wires->frames, frame);
            return;
        }
        if (frame == NULL) {
            wires->directions[direction].counters[RELAY_IN]++;
            wires->directions[direction].counters[RELAY_FULL]++;
            continue;
        }
        /* Two clocks are read for a time, with a pause between them now and then. */
        uint64_t *newest_ns = &wires->directions[direction].arrived_ns;
        *newest_ns = arrived_ns > *newest_ns ? arrived_ns : *newest_ns;
        frame->direction = direction;
        if (!meet_fate(wires, frame, *newest_ns))
            relay_frame_return(&wires->frames, frame);
    }
}

/* --- Out --------------------------------------------------------------------------------- */

/* Steps of a quarter of a doubling, from a microsecond up. */
static uint32_t late_step(uint64_t late_ns)
{
    uint32_t step = 0;
    uint64_t bound_ns = LATE_FIRST_NS;
    while (step + STEPS_A_DOUBLE < RELAY_LATE_STEPS && late_ns >= 2 * bound_ns) {
        bound_ns *= 2;
        step += STEPS_A_DOUBLE;
    }
    if (late_ns > bound_ns)
        step += (uint32_t)((late_ns - bound_ns) * STEPS_A_DOUBLE / bound_ns);
    return step < RELAY_LATE_STEPS ? step : RELAY_LATE_STEPS - 1;
}

double relay_late_us(const relay_direction *direction, double percent)
{
    uint64_t all = 0, seen = 0;
    for (uint32_t step = 0; step < RELAY_LATE_STEPS; step++)
        all += direction->late[step];
    for (uint32_t step = 0; step < RELAY_LATE_STEPS; step++) {
        seen += direction->late[step];
        if (seen > 0 && (double)seen * 100 >= percent * (double)all) {
            double doubles = (double)(1ULL << (step / STEPS_A_DOUBLE));
            double part = 1 + (double)(step % STEPS_A_DOUBLE + 1) / STEPS_A_DOUBLE;
            return doubles * part * LATE_FIRST_NS / 1000;
        }
    }
    return 0;
}

static void send_now(relay_wires *wires, const relay_frame *frame, uint64_t now_ns)
{
    relay_direction *direction = &wires->directions[frame->direction];
    uint64_t *counters = direction->counters;
    direction->waiting--;
    if (direction->held == frame)
        direction->held = NULL;
    if (direction->is_cut) {
        counters[RELAY_CUT]++;
        return;
    }
    if (!relay_device_write(direction->out, frame)) {
        counters[RELAY_UNSENT]++;
        return;
    }
    counters[RELAY_OUT]++;
    direction->late[late_step(now_ns - frame->due_ns)]++;
    if (frame->number < direction->newest_sent)
        counters[RELAY_REORDERED]++;
    else
        direction->newest_sent = frame->number;
}

void relay_send_due(relay_wires *wires)
{
    relay_frame *frame;
    uint64_t now_ns = relay_now_ns();
    while ((frame = relay_frame_due(&wires->frames, now_ns)) != NULL) {
        send_now(wires, frame, now_ns);
        relay_frame_return(&wires->frames, frame);
        now_ns = relay_now_ns();
    }
}
