/* What differs between Linux and any other POSIX system, in one place.
 *
 * Compiled with GS_PORTABLE, or elsewhere than on Linux, the core uses POSIX calls alone: one
 * datagram a call, no offload, no kernel time stamps, no pinning. Without time stamps an event
 * counts as arrived when it is read, so a reader that stalls may lose events of a sparse stream
 * that came meanwhile. A test builds the core so with two compilers and runs it; `posix` at run
 * time takes the same way on Linux.
 */
#ifndef GS_PLATFORM_H
#define GS_PLATFORM_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#if defined(__linux__) && !defined(GS_PORTABLE)
#define GS_LINUX 1
#else
#define GS_LINUX 0
#endif

/* One received message; on Linux the same bytes as the kernel's `struct mmsghdr`. */
typedef struct {
    struct msghdr header;
    unsigned bytes;
} gs_message;

/* What the kernel says beside a message. */
typedef struct {
    size_t segment_bytes; /* 0: not coalesced. */
    uint64_t arrived_ns;  /* 0: no time stamp. */
    uint32_t dropped;     /* Messages lost here so far, each up to 64 coalesced datagrams. */
} gs_remarks;

#define GS_CONTROL_BYTES 128

/* A reader that polls readable from a signal until it is cleared; -1: not open. */
typedef struct {
    int reader, writer; /* One and the same on Linux. */
} gs_wake;

/* Non-blocking and closed on exec; -1 with errno. */
int gs_udp_socket(int family);
int gs_pipe(int ends[2]);
int gs_wake_open(gs_wake *wake);

/* Any thread. */
void gs_wake_signal(const gs_wake *wake);
void gs_wake_clear(const gs_wake *wake);
void gs_wake_close(gs_wake *wake);

/* Ask for a buffer (SO_SNDBUF or SO_RCVBUF), beyond the system's bound where we may. */
void gs_widen(int socket_, int which, int bytes);

/* Ask for coalesced datagrams, time stamps and the count of losses; each may be missing. */
void gs_ask_remarks(int socket_);

/* Read once for every message received; makes room for those of the next one. */
gs_remarks gs_read_remarks(struct msghdr *message);

/* Datagrams lost on this socket so far, asked for at once; 0 where the system keeps no count. */
uint32_t gs_lost(int socket_);

/* Up to `count` messages without waiting; one call where the system can. At the first one each has
 * GS_CONTROL_BYTES of room for remarks. */
int gs_receive(int socket_, gs_message *messages, uint32_t count, bool is_posix);

/* Wait for events; `timeout_ns` UINT64_MAX: for ever. As poll(2). */
int gs_wait(struct pollfd *files, uint32_t count, uint64_t timeout_ns);

/* Keep a thread on one processor; 0 or an errno. */
int gs_pin(pthread_t thread, int cpu);

/* What tools show of a thread; at most 15 characters. */
void gs_name_thread(pthread_t thread, const char *name);

/* Whether routers on the way may cut a datagram into IP fragments. */
void gs_let_fragment(int socket_, bool is_ipv6, bool may_fragment);

/* UDP payload that the path takes unfragmented; 0: unknown. */
uint32_t gs_path_payload_bytes(int socket_, bool is_ipv6);

/* Send a row of equal segments at once; -1 with EINVAL or EIO where there is no such thing. */
ssize_t gs_send_segments(int socket_, const uint8_t *bytes, size_t count, uint16_t stride);

/* Send the same row, each segment for itself; how many bytes left before the first refusal, or -1
 * with errno when none did. */
ssize_t gs_send_each(int socket_, const uint8_t *bytes, size_t count, size_t stride, bool is_posix);

/* Zeroed memory, aligned to a cache line, whose pages cost nothing until they are touched where the
 * system can. NULL when it refuses.
 *
 * The tables of an end are sized for the most variables it may ever carry; fifty subscribers of ten
 * variables each in one process must not pay for that. Whoever adds a variable touches its page, so
 * an event's way never meets an untouched one. */
void *gs_lazy_allocate(size_t bytes);
void gs_lazy_release(void *memory, size_t bytes);

#endif
