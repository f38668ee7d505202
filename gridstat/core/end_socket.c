#define _GNU_SOURCE
#include "end_socket.h"

#include <errno.h>
#include <linux/sock_diag.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop.h"

#define SEND_BUFFER_BYTES (8 << 20)
#define UDP_HEADER_BYTES  8
#define IPV4_HEADER_BYTES 20
#define IPV6_HEADER_BYTES 40

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
    int bytes = SEND_BUFFER_BYTES;
    int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP);
    if (fd < 0)
        return gs_end_status_now();
    if (connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
        gs_end_status status = gs_end_status_now();
        close(fd);
        return status;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) != 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    gs_socket_set_dont_fragment(fd, true);
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

static int family_of(int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    getsockname(fd, (struct sockaddr *)&address, &bytes);
    return address.ss_family;
}

uint16_t gs_socket_port(int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    getsockname(fd, (struct sockaddr *)&address, &bytes);
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

uint64_t gs_socket_dropped(int fd)
{
    uint32_t facts[SK_MEMINFO_VARS] = {0};
    socklen_t length = sizeof facts;
    if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, facts, &length) != 0)
        return 0;
    return facts[SK_MEMINFO_DROPS];
}

void gs_socket_set_dont_fragment(int fd, bool is_set)
{
    if (family_of(fd) == AF_INET6) {
        int mode = is_set ? IPV6_PMTUDISC_DO : IPV6_PMTUDISC_DONT;
        setsockopt(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &mode, sizeof mode);
    } else {
        int mode = is_set ? IP_PMTUDISC_DO : IP_PMTUDISC_DONT;
        setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &mode, sizeof mode);
    }
}

uint32_t gs_socket_payload_bytes_max(int fd)
{
    bool is_v6 = family_of(fd) == AF_INET6;
    int headers = UDP_HEADER_BYTES + (is_v6 ? IPV6_HEADER_BYTES : IPV4_HEADER_BYTES);
    int mtu_bytes = 0;
    socklen_t length = sizeof mtu_bytes;
    int level = is_v6 ? IPPROTO_IPV6 : IPPROTO_IP;
    if (getsockopt(fd, level, is_v6 ? IPV6_MTU : IP_MTU, &mtu_bytes, &length) != 0)
        return 0;
    return mtu_bytes > headers ? (uint32_t)(mtu_bytes - headers) : 0;
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
