#include "end_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop.h"
#include "platform.h"

#define SEND_BUFFER_BYTES (8 << 20)

typedef gs_end_status gs_open_one(const struct addrinfo *found, bool is_posix, int *opened);

gs_end_status gs_end_status_now(void)
{
    switch (errno) {
    case ENOMEM:
    case ENOBUFS:
        return GS_END_NO_MEMORY;
    case EADDRINUSE:
        return GS_END_ADDRESS_IN_USE;
    case EADDRNOTAVAIL:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EAFNOSUPPORT:
        return GS_END_ADDRESS_MISSING;
    case EPERM:
    case EACCES:
        return GS_END_NOT_PERMITTED;
    case EMFILE:
    case ENFILE:
        return GS_END_TOO_MANY_FILES;
    default:
        return GS_END_SYSTEM;
    }
}

static gs_end_status open_sending(const struct addrinfo *found, bool is_posix, int *opened)
{
    (void)is_posix; /* A sender asks for no extras at its socket. */
    int fd = gs_udp_socket(found->ai_family);
    if (fd < 0)
        return gs_end_status_now();
    if (connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
        gs_end_status status = gs_end_status_now();
        close(fd);
        return status;
    }
    gs_widen(fd, SO_SNDBUF, SEND_BUFFER_BYTES);
    gs_let_fragment(fd, found->ai_family == AF_INET6, false);
    *opened = fd;
    return GS_END_OK;
}

static gs_end_status open_receiving(const struct addrinfo *found, bool is_posix, int *opened)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = found->ai_addrlen;
    memcpy(&address, found->ai_addr, bytes);
    errno = gs_receiving_socket((struct sockaddr *)&address, &bytes, is_posix, opened);
    return errno == 0 ? GS_END_OK : gs_end_status_now();
}

static gs_end_status open_first(const gs_endpoint *wanted, gs_open_one *open_one, int *opened)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *first = NULL;
    char service[8];
    snprintf(service, sizeof service, "%u", wanted->port);
    if (getaddrinfo(wanted->host, service, &hints, &first) != 0)
        return GS_END_UNKNOWN_HOST;
    gs_end_status status = GS_END_UNKNOWN_HOST;
    for (struct addrinfo *found = first; found != NULL; found = found->ai_next) {
        status = open_one(found, wanted->is_posix, opened);
        if (status == GS_END_OK)
            break;
    }
    freeaddrinfo(first);
    return status;
}

gs_end_status gs_socket_connect(const gs_endpoint *peer, int *opened)
{
    return open_first(peer, open_sending, opened);
}

gs_end_status gs_socket_bind(const gs_endpoint *own, int *opened)
{
    return open_first(own, open_receiving, opened);
}

void gs_socket_close(int *opened)
{
    if (*opened >= 0)
        close(*opened);
    *opened = -1;
}

static struct sockaddr_storage own_address(int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    getsockname(fd, (struct sockaddr *)&address, &bytes);
    return address;
}

bool gs_socket_is_ipv6(int fd)
{
    return own_address(fd).ss_family == AF_INET6;
}

uint16_t gs_socket_port(int fd)
{
    struct sockaddr_storage address = own_address(fd);
    if (address.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
    return ntohs(((struct sockaddr_in *)&address)->sin_port);
}

uint32_t gs_socket_receive_buffer_bytes(int fd)
{
    int bytes = 0;
    socklen_t length = sizeof bytes;
    getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &length);
    return (uint32_t)bytes;
}

static uint32_t generation;
static pthread_once_t is_watching = PTHREAD_ONCE_INIT;

static void count_child(void)
{
    __atomic_fetch_add(&generation, 1, __ATOMIC_RELAXED);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_child);
}

uint32_t gs_fork_generation(void)
{
    pthread_once(&is_watching, watch_forks);
    return __atomic_load_n(&generation, __ATOMIC_RELAXED);
}
