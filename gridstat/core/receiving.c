/* Sockets that receive events: wide buffers, coalesced datagrams, kernel time stamps. */
#ifndef GS_PORTABLE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "loop.h"
#include "platform.h"

#define RECEIVE_BUFFER_BYTES (64 << 20)
#define NS_PER_S             1000000000ULL

static void widen(int socket_)
{
    int bytes = RECEIVE_BUFFER_BYTES;
#ifdef SO_RCVBUFFORCE
    if (setsockopt(socket_, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) == 0)
        return;
#endif
    /* A plain user gets what net.core.rmem_max allows; `gridstat host` says how much that is. */
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

int gs_receiving_socket(struct sockaddr *address, socklen_t *bytes, bool is_posix, int *opened)
{
    int socket_ = gs_udp_socket(address->sa_family);
    if (socket_ < 0)
        return errno;
    widen(socket_);
    if (!is_posix)
        gs_ask_remarks(socket_);
    if (bind(socket_, address, *bytes) < 0 || getsockname(socket_, address, bytes) < 0) {
        int failure = errno;
        close(socket_);
        return failure;
    }
    *opened = socket_;
    return 0;
}

static uint64_t read_clock(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

gs_now gs_now_read(void)
{
    return (gs_now){.wall_ns = read_clock(CLOCK_REALTIME),
                    .steady_ns = read_clock(CLOCK_MONOTONIC)};
}
