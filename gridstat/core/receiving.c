/* Sockets that receive events: wide buffers, coalesced datagrams, kernel time stamps. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "loop.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

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
    int on = 1;
    int socket_ = socket(address->sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket_ < 0)
        return errno;
    widen(socket_);
    if (!is_posix) {
        /* Each may be missing; the loop reads whatever control messages do come. */
        setsockopt(socket_, IPPROTO_UDP, UDP_GRO, &on, sizeof on);
#ifdef SO_TIMESTAMPNS
        setsockopt(socket_, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
#endif
#ifdef SO_RXQ_OVFL
        setsockopt(socket_, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof on);
#endif
    }
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
