/* Sockets that receive events: wide buffers, coalesced datagrams, kernel time stamps. */
#include <errno.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "loop.h"
#include "platform.h"

#define RECEIVE_BUFFER_BYTES (64 << 20)
#define NS_PER_S             1000000000ULL

int gs_receiving_socket(struct sockaddr *address, socklen_t *bytes, bool is_posix, int *opened)
{
    int socket_ = gs_udp_socket(address->sa_family);
    if (socket_ < 0)
        return errno;
    /* A plain user gets what net.core.rmem_max allows; `gridstat host` says how much that is. */
    gs_widen(socket_, SO_RCVBUF, RECEIVE_BUFFER_BYTES);
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

uint64_t gs_clock_ns(clockid_t clock)
{
    struct timespec time;
    if (clock_gettime(clock, &time) < 0)
        return 0;
    return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

gs_now gs_now_read(void)
{
    return (gs_now){.wall_ns = gs_clock_ns(CLOCK_REALTIME),
                    .steady_ns = gs_clock_ns(CLOCK_MONOTONIC)};
}
