/* Thread of a core: receive a batch, forward it, flush; urgent events first in every round.
 *
 * A data port that receives nothing but rejected datagrams, call after call, is flooded. To sleep
 * and to wake up for each of them takes longer than to reject it, and delays the events among them.
 * So the thread polls the port until nothing was rejected for GS_POLL_NS, but for no more than
 * GS_POLLED_NS in each GS_POLL_WINDOW_NS, and not on a single processor: the others need it too.
 * Where it may not poll it leaves the empty port alone for GS_REST_NS, and takes together what has
 * come meanwhile. A call that came back full is no reason for a rest. The urgent port never
 * rests. */
#ifndef GS_LOOP_H
#define GS_LOOP_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "forwarder.h"

#define GS_RECEIVE_BUFFERS 16
#define GS_RECEIVE_BYTES   65536
#define GS_LOOK_NS         10000000ULL /* Longest sleep, so that silence is detected in time. */
#define GS_REST_NS         50000ULL  /* By so much a flood may delay an event; POSIX waits 1 ms. */
#define GS_FLOOD_NS        200000ULL /* Two rejected calls that are closer are a flood. */
#define GS_POLL_NS         20000ULL  /* The thread sleeps again after so long without a reject. */
#define GS_POLLED_NS       6000000ULL
#define GS_POLL_WINDOW_NS  10000000ULL

typedef struct {
    gs_core *core;
    int sockets[GS_PORTS]; /* -1: not listening. */
    int wake[2];           /* Pipe by which the writer wakes the thread. */
    bool is_running;
    bool must_stop;     /* Atomic. */
    bool has_ended;     /* Atomic: the thread processes no more events. */
    gs_channel *forget; /* Atomic: channel that the thread is requested to release. */
    pthread_t thread;
    pid_t process;        /* Process that started the thread; a forked child has no such thread. */
    int cpu;              /* -1: any. */
    int fifo_priority;    /* 0: ordinary scheduling. */
    int scheduling_error; /* errno of the refused scheduling, 0 when granted. */
    uint64_t thread_cpu_ns;
    uint32_t kernel_dropped[GS_PORTS];
    uint8_t *buffers;
    uint64_t looked_ns;          /* The steady clock when the thread last read it. */
    uint32_t next_call;          /* Most messages that the next receive call may return. */
    uint64_t rejected, believed; /* Counts after the last data call that forwarded nothing. */
    uint64_t rejected_ns;        /* When that call was, if all of it was rejected. */
    bool is_flooded;             /* The data port is polled, or rests before the next look. */
    bool may_poll;               /* There are other processors. */
    uint64_t polled_ns;          /* Time of polling since `poll_window_ns`, */
    uint64_t poll_window_ns;     /* when the present window began. */
    gs_counter polls;            /* Looks at the flooded port without sleeping. */
    gs_counter rests;            /* Times that the flooded port was left alone. */
} gs_loop;

gs_loop *gs_loop_open(gs_core *core);
void gs_loop_close(gs_loop *loop);

/* Bind both ports or none; the chosen addresses are written back. Returns 0, or an errno, with the
 * index of the failed port. */
int gs_loop_listen(gs_loop *loop, struct sockaddr_storage addresses[GS_PORTS], socklen_t bytes,
                   uint32_t *failed);

int gs_loop_start(gs_loop *loop);
void gs_loop_stop(gs_loop *loop);

/* Processor time of the thread, running or ended. */
uint64_t gs_loop_cpu_ns(const gs_loop *loop);

/* The time by which silence is judged: the steady clock, or without a thread the last call's
 * time. */
uint64_t gs_loop_now_ns(const gs_loop *loop);

/* Notify the thread that a channel was opened, held or released, which may need probes. */
void gs_loop_notify(const gs_loop *loop);

/* Release a channel; returns when the thread no longer holds it. One caller at a time: the Cython
 * code holds its lock across this call, and across start, stop and close. */
void gs_loop_forget(gs_loop *loop, gs_channel *channel);

/* Open, bind and widen one receiving socket; shared with the receiver of an end-point. */
int gs_receiving_socket(struct sockaddr *address, socklen_t *bytes, bool is_posix, int *opened);

/* The first UDP address of a host (a name, or an address of either family); false: none. */
bool gs_resolve(const char *host, uint16_t port, struct sockaddr_storage *address,
                socklen_t *bytes);
uint16_t gs_port_of(const struct sockaddr_storage *address);

/* Time, by the steady clock, before which every message of the socket has been taken, given when
 * the last message of a full call came. 0: unknown. */
uint64_t gs_taken_until(uint64_t arrived_ns, gs_now now);

gs_now gs_now_read(void);
uint64_t gs_clock_ns(clockid_t clock); /* 0: the clock does not exist any more. */

#endif
