/* Differences between Linux and other POSIX systems.
 *
 * Compiled with GS_PORTABLE, or elsewhere than on Linux, the core uses POSIX calls alone: one
 * datagram a call, no offload, no kernel time stamps, no pinning. Without time stamps an event
 * counts as arrived when it is read, so a reader that stalls may lose events of a sparse stream
 * that came meanwhile. A test builds this variant with two compilers and runs it; `posix` at run
 * time selects the same code on Linux.
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

/* Ancillary data of a message. */
typedef struct {
    size_t segment_bytes; /* 0: not coalesced. */
    uint64_t arrived_ns;  /* 0: no time stamp. */
    uint32_t dropped;     /* Messages lost here so far, each up to 64 coalesced datagrams. */
} gs_ancillary;

#define GS_CONTROL_BYTES 128

/* Descriptor that polls readable from a signal until it is cleared; -1: not open. */
typedef struct {
    int reader, writer; /* One and the same on Linux. */
} gs_wake;

/* Open a descriptor, non-blocking and closed on exec; -1 with errno. */
int gs_udp_socket(int family);
int gs_pipe(int ends[2]);
int gs_wake_open(gs_wake *wake);

/* Any thread may call these. */
void gs_wake_signal(const gs_wake *wake);
void gs_wake_clear(const gs_wake *wake);
void gs_wake_close(gs_wake *wake);

/* Request a buffer size (SO_SNDBUF or SO_RCVBUF), beyond the system's bound if the process may. */
void gs_widen(int socket_, int which, int bytes);

/* Request coalesced datagrams, time stamps and the count of losses; the system may lack each. */
void gs_request_ancillary(int socket_);

/* Read a received message's ancillary data, exactly once; resets the message for the next one. */
gs_ancillary gs_read_ancillary(struct msghdr *message);

/* Datagrams lost on this socket so far; 0 where the system keeps no count. */
uint32_t gs_socket_dropped(int socket_);

/* Receive up to `count` messages without waiting, by one call where the system can. Each message
 * has GS_CONTROL_BYTES for ancillary data. */
int gs_receive(int socket_, gs_message *messages, uint32_t count, bool is_posix);

/* Wait for events; `timeout_ns` UINT64_MAX: for ever. As poll(2). */
int gs_wait(struct pollfd *files, uint32_t count, uint64_t timeout_ns);

/* Let the calling thread wake when a wait has passed, and not some 50 us later to save power. */
void gs_wake_exactly(void);

/* Keep a thread on one processor; 0 or an errno. */
int gs_pin(pthread_t thread, int cpu);

/* Set the name that tools show for a thread; at most 15 characters. */
void gs_name_thread(pthread_t thread, const char *name);

/* Allow or forbid IP fragmentation of datagrams on the path. */
void gs_let_fragment(int socket_, bool is_ipv6, bool may_fragment);

/* UDP payload that the path takes unfragmented; 0: unknown. */
uint32_t gs_path_payload_bytes(int socket_, bool is_ipv6);

/* Send consecutive equal segments by one call; -1 with EINVAL or EIO where the system cannot. */
ssize_t gs_send_segments(int socket_, const uint8_t *bytes, size_t count, uint16_t stride);

/* Send the same segments one by one; returns the bytes sent before the first refusal, or -1 with
 * errno when none was. */
ssize_t gs_send_each(int socket_, const uint8_t *bytes, size_t count, size_t stride, bool is_posix);

/* Allocate zeroed memory, aligned to a cache line, whose pages cost nothing until they are touched,
 * where the system can. NULL when the system refuses.
 *
 * The tables of an end-point are sized for the most variables it may ever carry; fifty subscribers
 * of ten variables each in one process must not pay for that. Adding a variable touches its page,
 * so the event path never meets an untouched one.
 */
void *gs_lazy_allocate(size_t bytes);
void gs_lazy_release(void *memory, size_t bytes);

/* Map zeroed memory for keys: not in core dumps, and zeros in a forked child, where the system can
 * do that. It is never given back. NULL when the system refuses. */
void *gs_secret_map(size_t bytes);

#endif
