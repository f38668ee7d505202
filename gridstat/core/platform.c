#ifndef GS_PORTABLE
#define _GNU_SOURCE
#endif
#include "platform.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"

#if GS_LINUX
#include <linux/sock_diag.h>
#include <netinet/udp.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#endif

#define NS_PER_S       1000000000ULL
#define NS_PER_MS      1000000ULL
#define IPV4_UDP_BYTES 28
#define IPV6_UDP_BYTES 48

#define SEGMENTS_AT_ONCE 64U

/* Our sockets never block, but an inherited one may. POSIX has the flag since 2024. */
#ifdef MSG_DONTWAIT
#define SEND_FLAGS (MSG_NOSIGNAL | MSG_DONTWAIT)
#else
#define SEND_FLAGS MSG_NOSIGNAL
#endif

void gs_wake_close(gs_wake *wake)
{
    if (wake->writer >= 0 && wake->writer != wake->reader)
        close(wake->writer);
    if (wake->reader >= 0)
        close(wake->reader);
    wake->reader = wake->writer = -1;
}

static int receive_one_by_one(int socket_, gs_message *messages, uint32_t count)
{
    uint32_t taken = 0;
    for (; taken < count; taken++) {
        const struct iovec *part = messages[taken].header.msg_iov;
        ssize_t bytes = recv(socket_, part->iov_base, part->iov_len, 0);
        if (bytes < 0)
            break;
        messages[taken].bytes = (unsigned)bytes;
        messages[taken].header.msg_controllen = 0;
    }
    return (int)taken;
}

static ssize_t send_one_by_one(int socket_, const uint8_t *bytes, size_t count, size_t stride)
{
    size_t at = 0;
    while (at < count) {
        size_t length = count - at < stride ? count - at : stride;
        if (send(socket_, bytes + at, length, SEND_FLAGS) < 0)
            return at == 0 ? -1 : (ssize_t)at;
        at += length;
    }
    return (ssize_t)at;
}

/* POSIX has anonymous mappings since 2024, and nearly every system before; elsewhere all pages are
 * allocated at once. */
#ifdef MAP_ANONYMOUS

void *gs_lazy_allocate(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void gs_lazy_release(void *memory, size_t bytes)
{
    if (memory != NULL)
        munmap(memory, bytes);
}

#else

void *gs_lazy_allocate(size_t bytes)
{
    return gs_allocate(bytes);
}

void gs_lazy_release(void *memory, size_t bytes)
{
    (void)bytes;
    gs_release(memory);
}

#endif

void *gs_secret_map(size_t bytes)
{
    void *memory = gs_lazy_allocate(bytes);
#ifdef MADV_DONTDUMP
    if (memory != NULL)
        madvise(memory, bytes, MADV_DONTDUMP);
#endif
#ifdef MADV_WIPEONFORK
    if (memory != NULL)
        madvise(memory, bytes, MADV_WIPEONFORK); /* Linux before 4.14 refuses it. */
#endif
    return memory;
}

#if GS_LINUX

int gs_udp_socket(int family)
{
    return socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int gs_pipe(int ends[2])
{
    return pipe2(ends, O_CLOEXEC | O_NONBLOCK);
}

int gs_wake_open(gs_wake *wake)
{
    wake->reader = wake->writer = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return wake->reader < 0 ? -1 : 0;
}

void gs_wake_signal(const gs_wake *wake)
{
    eventfd_write(wake->writer, 1); /* Fails only when the descriptor is readable anyway. */
}

void gs_wake_clear(const gs_wake *wake)
{
    eventfd_t signals;
    (void)!eventfd_read(wake->reader, &signals);
}

void gs_widen(int socket_, int which, int bytes)
{
    int forced = which == SO_SNDBUF ? SO_SNDBUFFORCE : SO_RCVBUFFORCE;
    if (setsockopt(socket_, SOL_SOCKET, forced, &bytes, sizeof bytes) < 0)
        setsockopt(socket_, SOL_SOCKET, which, &bytes, sizeof bytes);
}

_Static_assert(sizeof(gs_message) == sizeof(struct mmsghdr), "the kernel fills our messages");

void gs_request_ancillary(int socket_)
{
    int on = 1;
    setsockopt(socket_, IPPROTO_UDP, UDP_GRO, &on, sizeof on);
    setsockopt(socket_, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    setsockopt(socket_, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof on);
}

gs_ancillary gs_read_ancillary(struct msghdr *message)
{
    gs_ancillary found = {0};
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at != NULL; at = CMSG_NXTHDR(message, at)) {
        if (at->cmsg_level == IPPROTO_UDP && at->cmsg_type == UDP_GRO) {
            int bytes;
            memcpy(&bytes, CMSG_DATA(at), sizeof bytes);
            found.segment_bytes = bytes > 0 ? (size_t)bytes : 0;
        } else if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec time;
            memcpy(&time, CMSG_DATA(at), sizeof time);
            found.arrived_ns = (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
        } else if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SO_RXQ_OVFL) {
            memcpy(&found.dropped, CMSG_DATA(at), sizeof found.dropped);
        }
    }
    /* The kernel shortened the length to what it wrote; the next call needs the whole buffer. */
    message->msg_controllen = GS_CONTROL_BYTES;
    return found;
}

uint32_t gs_socket_dropped(int socket_)
{
    uint32_t facts[SK_MEMINFO_VARS] = {0};
    socklen_t bytes = sizeof facts;
    getsockopt(socket_, SOL_SOCKET, SO_MEMINFO, facts, &bytes);
    return facts[SK_MEMINFO_DROPS];
}

int gs_receive(int socket_, gs_message *messages, uint32_t count, bool is_posix)
{
    if (is_posix)
        return receive_one_by_one(socket_, messages, count);
    return recvmmsg(socket_, (struct mmsghdr *)(void *)messages, count, MSG_DONTWAIT, NULL);
}

int gs_wait(struct pollfd *files, uint32_t count, uint64_t timeout_ns)
{
    struct timespec room = {.tv_sec = (time_t)(timeout_ns / NS_PER_S),
                            .tv_nsec = (long)(timeout_ns % NS_PER_S)};
    return ppoll(files, count, timeout_ns == UINT64_MAX ? NULL : &room, NULL);
}

void gs_wake_exactly(void)
{
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* Where it is refused, waits are longer. */
}

int gs_pin(pthread_t thread, int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    return pthread_setaffinity_np(thread, sizeof set, &set);
}

void gs_name_thread(pthread_t thread, const char *name)
{
    pthread_setname_np(thread, name);
}

void gs_let_fragment(int socket_, bool is_ipv6, bool may_fragment)
{
    int discovery = may_fragment ? IP_PMTUDISC_DONT : IP_PMTUDISC_DO;
    if (is_ipv6)
        setsockopt(socket_, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &discovery, sizeof discovery);
    else
        setsockopt(socket_, IPPROTO_IP, IP_MTU_DISCOVER, &discovery, sizeof discovery);
}

uint32_t gs_path_payload_bytes(int socket_, bool is_ipv6)
{
    int mtu = 0;
    socklen_t bytes = sizeof mtu;
    int failed = is_ipv6 ? getsockopt(socket_, IPPROTO_IPV6, IPV6_MTU, &mtu, &bytes)
                         : getsockopt(socket_, IPPROTO_IP, IP_MTU, &mtu, &bytes);
    int payload = mtu - (is_ipv6 ? IPV6_UDP_BYTES : IPV4_UDP_BYTES);
    return failed == 0 && payload > 0 ? (uint32_t)payload : 0;
}

ssize_t gs_send_segments(int socket_, const uint8_t *bytes, size_t count, uint16_t stride)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(uint16_t))];
    } control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = count};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = IPPROTO_UDP;
    header->cmsg_type = UDP_SEGMENT;
    header->cmsg_len = CMSG_LEN(sizeof stride);
    memcpy(CMSG_DATA(header), &stride, sizeof stride);
    return sendmsg(socket_, &message, SEND_FLAGS);
}

ssize_t gs_send_each(int socket_, const uint8_t *bytes, size_t count, size_t stride, bool is_posix)
{
    if (is_posix || count <= stride)
        return send_one_by_one(socket_, bytes, count, stride);
    struct mmsghdr messages[SEGMENTS_AT_ONCE];
    struct iovec parts[SEGMENTS_AT_ONCE];
    uint32_t segments = 0;
    for (size_t at = 0; at < count && segments < SEGMENTS_AT_ONCE; at += stride) {
        size_t length = count - at < stride ? count - at : stride;
        parts[segments] = (struct iovec){(void *)(uintptr_t)(bytes + at), length};
        messages[segments] = (struct mmsghdr){
            .msg_hdr = {.msg_iov = &parts[segments], .msg_iovlen = 1},
        };
        segments++;
    }
    int taken = sendmmsg(socket_, messages, segments, SEND_FLAGS);
    if (taken < 0)
        return -1;
    size_t sent = (size_t)taken * stride;
    return (ssize_t)(sent < count ? sent : count);
}

#else

static int make_quiet(int file)
{
    if (fcntl(file, F_SETFD, FD_CLOEXEC) < 0 || fcntl(file, F_SETFL, O_NONBLOCK) < 0)
        return -1;
    return file;
}

int gs_udp_socket(int family)
{
    int socket_ = socket(family, SOCK_DGRAM, 0);
    return socket_ < 0 ? -1 : make_quiet(socket_);
}

int gs_pipe(int ends[2])
{
    if (pipe(ends) < 0)
        return -1;
    return make_quiet(ends[0]) < 0 || make_quiet(ends[1]) < 0 ? -1 : 0;
}

int gs_wake_open(gs_wake *wake)
{
    int ends[2] = {-1, -1};
    int failed = gs_pipe(ends);
    *wake = (gs_wake){.reader = ends[0], .writer = ends[1]};
    return failed;
}

void gs_wake_signal(const gs_wake *wake)
{
    ssize_t written = write(wake->writer, "", 1);
    (void)written; /* A full pipe is readable as well. */
}

void gs_wake_clear(const gs_wake *wake)
{
    char bytes[64];
    while (read(wake->reader, bytes, sizeof bytes) > 0)
        ;
}

void gs_widen(int socket_, int which, int bytes)
{
    setsockopt(socket_, SOL_SOCKET, which, &bytes, sizeof bytes);
}

void gs_request_ancillary(int socket_)
{
    (void)socket_;
}

gs_ancillary gs_read_ancillary(struct msghdr *message)
{
    (void)message;
    return (gs_ancillary){0};
}

uint32_t gs_socket_dropped(int socket_)
{
    (void)socket_;
    return 0;
}

int gs_receive(int socket_, gs_message *messages, uint32_t count, bool is_posix)
{
    (void)is_posix;
    return receive_one_by_one(socket_, messages, count);
}

int gs_wait(struct pollfd *files, uint32_t count, uint64_t timeout_ns)
{
    /* Rounded up, so that the thread does not wake before an event is due. */
    int timeout_ms = -1;
    if (timeout_ns != UINT64_MAX)
        timeout_ms = (int)(timeout_ns / NS_PER_MS < 60000 ? (timeout_ns + NS_PER_MS - 1) / NS_PER_MS
                                                          : 60000);
    return poll(files, (nfds_t)count, timeout_ms);
}

void gs_wake_exactly(void)
{
}

int gs_pin(pthread_t thread, int cpu)
{
    (void)thread, (void)cpu;
    return ENOTSUP;
}

void gs_name_thread(pthread_t thread, const char *name)
{
    (void)thread, (void)name;
}

void gs_let_fragment(int socket_, bool is_ipv6, bool may_fragment)
{
    (void)socket_, (void)is_ipv6, (void)may_fragment;
}

uint32_t gs_path_payload_bytes(int socket_, bool is_ipv6)
{
    (void)socket_, (void)is_ipv6;
    return 0;
}

ssize_t gs_send_segments(int socket_, const uint8_t *bytes, size_t count, uint16_t stride)
{
    (void)socket_, (void)bytes, (void)count, (void)stride;
    errno = EINVAL;
    return -1;
}

ssize_t gs_send_each(int socket_, const uint8_t *bytes, size_t count, size_t stride, bool is_posix)
{
    (void)is_posix;
    return send_one_by_one(socket_, bytes, count, stride);
}

#endif
