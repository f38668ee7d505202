/* Sockets that receive events: wide buffers, coalesced datagrams, kernel time stamps. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "loop.h"
#include "platform.h"

#define RECEIVE_BUFFER_BYTES (64 << 20)
#define NS_PER_S             1000000000ULL

bool gs_resolve(const char *host, uint16_t port, struct sockaddr_storage *address, socklen_t *bytes)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found = NULL;
    if (getaddrinfo(host, NULL, &hints, &found) != 0)
        return false;
    memset(address, 0, sizeof *address);
    memcpy(address, found->ai_addr, found->ai_addrlen);
    *bytes = found->ai_addrlen;
    freeaddrinfo(found);
    if (address->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)address)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)address)->sin_port = htons(port);
    return true;
}

uint16_t gs_port_of(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)address)->sin6_port);
    return ntohs(((const struct sockaddr_in *)address)->sin_port);
}

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

uint64_t gs_taken_until(uint64_t arrived_ns, gs_now now)
{
    uint64_t age_ns = now.wall_ns > arrived_ns ? now.wall_ns - arrived_ns : 0;
    return arrived_ns == 0 || age_ns > now.steady_ns ? 0 : now.steady_ns - age_ns;
}
