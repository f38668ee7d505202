/* The inside of a receiver, for its two halves: the thread, and what others ask of it. */
#ifndef GS_RECEIVER_STATE_H
#define GS_RECEIVER_STATE_H

#include <pthread.h>
#include <sys/socket.h>

#include "channel.h"
#include "expected.h"
#include "loop.h"
#include "platform.h"
#include "receiver.h"
#include "sources.h"

/* An incoming channel of which the receiver knows more than its datagrams. */
typedef struct {
    uint32_t channel_id; /* Atomic; 0: none. */
    gs_source_state state;
    uint64_t host[2]; /* Whom the thread hears on it; another one only after a silence. */
    uint64_t host_heard_ns;
} gs_known_source;

struct gs_receiver {
    gs_keep keep;
    bool accepts_unknown, only_sources, is_posix;
    bool is_running; /* Atomic; changed under `running`. */
    int sockets[GS_PORTS];
    gs_wake stop, wake; /* For the thread, and for the reader. */
    uint32_t fork_generation;
    pthread_mutex_t running; /* For those who start and stop; never taken by the thread. */
    pthread_t thread;
    uint64_t cpu_ns_before; /* Of threads that have ended. */
    bool must_stop;         /* Atomic. */
    uint64_t *page;
    gs_attention attention;
    uint64_t looked_ns; /* The steady clock when the thread last read it. */
    gs_known_source sources[GS_RECEIVER_SOURCES];
    uint32_t source_count; /* Atomic: places that were ever taken. */
    uint32_t source;       /* Of the datagram in hand; beyond all: unknown. */
    uint64_t sender[2];    /* The host of the message in hand. */
    gs_now now; /* The wall clock's for stamps and latencies, the steady one for verdicts. */
    uint64_t arrived_ns; /* When the kernel had the message in hand, by the steady clock. */
    uint64_t batch[GS_RECEIVED_COUNTERS]; /* Of this receive call; added up once. */
    gs_counter counters[GS_RECEIVED_COUNTERS];
    gs_histogram latency;
    gs_expected expected;
    gs_sample_ring ring;
    uint8_t *buffers;
    gs_message messages[GS_RECEIVE_BUFFERS];
    struct iovec parts[GS_RECEIVE_BUFFERS];
    struct sockaddr_storage senders[GS_RECEIVE_BUFFERS];
    char controls[GS_RECEIVE_BUFFERS][GS_CONTROL_BYTES] __attribute__((aligned(16)));
};

/* Of the running thread. */
uint64_t gs_receiver_thread_cpu_ns(const gs_receiver *receiver);

#endif
