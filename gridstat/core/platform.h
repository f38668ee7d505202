/* What differs between Linux and any other POSIX system, in one place.
 *
 * Compiled with GS_PORTABLE, or elsewhere than on Linux, the core uses POSIX calls alone: one
 * datagram a call, no offload, no kernel time stamps, no pinning. A test compiles it so; `posix` at
 * run time takes the same way on Linux.
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
    uint32_t dropped;     /* Datagrams lost on this socket so far, for want of buffer. */
} gs_remarks;

#define GS_CONTROL_BYTES 128

/* Non-blocking and closed on exec; -1 with errno. */
int gs_udp_socket(int family);
int gs_pipe(int ends[2]);

/* Ask for coalesced datagrams, time stamps and the count of losses; each may be missing. */
void gs_ask_remarks(int socket_);
gs_remarks gs_read_remarks(struct msghdr *message);

/* Up to `count` messages without waiting; one call where the system can. */
int gs_receive(int socket_, gs_message *messages, uint32_t count, bool is_posix);

/* Wait for events; `timeout_ns` UINT64_MAX: for ever. As poll(2). */
int gs_wait(struct pollfd *files, uint32_t count, uint64_t timeout_ns);

/* Keep a thread on one processor; 0 or an errno. */
int gs_pin(pthread_t thread, int cpu);

/* Whether routers on the way may cut a datagram into IP fragments. */
void gs_let_fragment(int socket_, bool is_ipv6, bool may_fragment);

/* UDP payload that the path takes unfragmented; 0: unknown. */
uint32_t gs_path_payload_bytes(int socket_, bool is_ipv6);

/* Send a row of equal segments at once; -1 with EINVAL or EIO where there is no such thing. */
ssize_t gs_send_segments(int socket_, const uint8_t *bytes, size_t count, uint16_t stride);

#endif
