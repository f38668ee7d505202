/* A relay of frames between pairs of devices, with seeded faults; ends when its input ends.
 *
 *   relay                               obeys the orders of control.h, a line each
 *   relay plain DEVICE...               switches the devices' offloading off, and carries nothing
 *   relay fates COUNT DIRECTION [NAME VALUE]...    prints what the law says, and carries nothing
 *
 * It copies Ethernet frames, so both ends of a wire see each other's own addresses, whatever they
 * speak. One thread: frames and orders come by epoll, due times by a timer.
 */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "control.h"
#include "ethernet.h"
#include "law.h"
#include "wires.h"

#define LINE_BYTES_MAX 4096
#define EVENTS_A_TURN  64
#define NS_PER_S       1000000000U
#define TAG_CONTROL    UINT32_MAX
#define TAG_TIMER      (UINT32_MAX - 1)

typedef struct {
    relay_wires wires;
    int poll, timer;
    uint64_t armed_ns;
    size_t line_bytes;
    char line[LINE_BYTES_MAX];
} relay;

static bool watch(const relay *made, int descriptor, uint32_t tag)
{
    struct epoll_event wanted = {.events = EPOLLIN, .data = {.u32 = tag}};
    return epoll_ctl(made->poll, EPOLL_CTL_ADD, descriptor, &wanted) == 0;
}

static void watch_wire(relay *made, int wire)
{
    for (uint32_t at = 2 * (uint32_t)wire; at <= 2 * (uint32_t)wire + 1; at++)
        if (!watch(made, made->wires.directions[at].in, at))
            abort();
}

static void obey_line(relay *made)
{
    int wire = relay_obey(&made->wires, made->line);
    if (wire >= 0)
        watch_wire(made, wire);
    fflush(stdout);
    made->line_bytes = 0;
}

/* False at the end of the input, and at a line longer than any order. */
static bool read_orders(relay *made)
{
    char piece[LINE_BYTES_MAX];
    ssize_t bytes = read(STDIN_FILENO, piece, sizeof piece);
    for (ssize_t at = 0; at < bytes; at++) {
        if (piece[at] == '\n') {
            made->line[made->line_bytes] = '\0';
            obey_line(made);
        } else if (made->line_bytes + 1 < sizeof made->line) {
            made->line[made->line_bytes++] = piece[at];
        } else {
            return false;
        }
    }
    return bytes > 0 || (bytes < 0 && errno == EINTR);
}

static void arm(relay *made)
{
    uint64_t next_ns = relay_frames_next_ns(&made->wires.frames);
    if (next_ns == made->armed_ns || next_ns == UINT64_MAX)
        return;
    struct itimerspec wanted = {.it_value = {.tv_sec = (time_t)(next_ns / NS_PER_S),
                                             .tv_nsec = (long)(next_ns % NS_PER_S)}};
    timerfd_settime(made->timer, TFD_TIMER_ABSTIME, &wanted, NULL);
    made->armed_ns = next_ns;
}

static bool turn(relay *made)
{
    struct epoll_event events[EVENTS_A_TURN];
    int count = epoll_wait(made->poll, events, EVENTS_A_TURN, -1);
    bool goes_on = count >= 0 || errno == EINTR;
    for (int at = 0; at < count; at++) {
        uint64_t expirations;
        uint32_t tag = events[at].data.u32;
        if (tag == TAG_CONTROL)
            goes_on = read_orders(made);
        else if (tag != TAG_TIMER)
            relay_take_in(&made->wires, tag);
        else if (read(made->timer, &expirations, sizeof expirations) > 0)
            made->armed_ns = 0;
    }
    relay_send_due(&made->wires);
    arm(made);
    return goes_on;
}

static int carry(void)
{
    static relay made;
    made.poll = epoll_create1(EPOLL_CLOEXEC);
    made.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (made.poll < 0 || made.timer < 0 || !relay_frames_open(&made.wires.frames) ||
        !watch(&made, STDIN_FILENO, TAG_CONTROL) || !watch(&made, made.timer, TAG_TIMER)) {
        perror("relay");
        return 1;
    }
    /* A wire does not wait for the programs at its ends. Who may not ask for it is less exact. */
    struct sched_param first = {.sched_priority = 1};
    sched_setscheduler(0, SCHED_FIFO, &first);
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* Else every due time may be 50 µs late. */
    while (turn(&made)) {
    }
    relay_wires_close(&made.wires);
    close(made.timer);
    close(made.poll);
    return 0;
}

/* Columns: lost, corrupted, duplicated, held, bit to flip, delay, delay of the copy. */
static int print_fates(int count, char **words)
{
    relay_faults faults = relay_no_faults();
    for (int at = 2; at + 1 < count; at += 2) {
        if (!relay_faults_set(&faults, words[at], words[at + 1])) {
            fprintf(stderr, "%s cannot be %s\n", words[at], words[at + 1]);
            return 2;
        }
    }
    relay_law law;
    relay_law_begin(&law, &faults, (uint32_t)strtoul(words[1], NULL, 10));
    for (uint64_t left = strtoull(words[0], NULL, 10); left > 0; left--) {
        relay_fate fate = relay_law_next(&law);
        printf("%d %d %d %d %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", fate.is_lost, fate.is_corrupted,
               fate.is_duplicated, fate.is_held, fate.flip, fate.delay_ns, fate.copy_delay_ns);
    }
    return 0;
}

static int make_plain(int count, char **devices)
{
    for (int at = 0; at < count; at++) {
        if (!relay_device_make_plain(devices[at])) {
            perror(devices[at]);
            return 1;
        }
    }
    return 0;
}

int main(int count, char **words)
{
    if (count >= 4 && strcmp(words[1], "fates") == 0)
        return print_fates(count - 2, words + 2);
    if (count >= 2 && strcmp(words[1], "plain") == 0)
        return make_plain(count - 2, words + 2);
    return carry();
}
