/* The floors: what a hop costs when it does nothing but move bytes.
 *
 * forwarder MODE HOST DESTINATION...      MODE is single, mmsg or gso
 * forwarder sink HOST SOCKETS EVENT_BYTES PAGE_FILE
 *
 * A forwarder receives on one UDP port and sends every datagram to every destination (host:port)
 * through connected sockets: one datagram per call, in batches of 64, or with UDP GRO in and
 * UDP_SEGMENT out. A sink counts events per socket into a shared page (the u64 at 4,096 * socket)
 * and forwards nothing. Both print one JSON line with their ports, answer each line on stdin with
 * a JSON line of counts and CPU time, and end at end-of-file on stdin, or on SIGTERM.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { SOCKETS_MAX = 1024, BATCH = 64, BUFFER_BYTES = 65536, PAGE_BYTES = 4096 };
enum { ROUNDS_MAX = 64, HEADER_BYTES = 16 };
static const int SOCKET_BUFFER_BYTES = 64 * 1024 * 1024;

static int sources[SOCKETS_MAX], source_count;
static int destinations[SOCKETS_MAX], destination_count;
static uint64_t datagrams_in, datagrams_out, bytes_in, send_failed;
static uint8_t buffers[BATCH][BUFFER_BYTES];
static volatile sig_atomic_t is_ending;

static void fail(const char *what)
{
    fprintf(stderr, "forwarder: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void on_term(int signal_number)
{
    (void)signal_number;
    is_ending = 1;
}

/* Ask beyond the system's limit first; without the privilege the limit has to do. */
static void widen(int fd)
{
    int bytes = SOCKET_BUFFER_BYTES;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) != 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) != 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

static int open_source(const char *host, int with_gro)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), one = 1;
    if (fd < 0)
        fail("socket");
    widen(fd);
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        fail("bad host");
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0)
        fail("bind");
    if (with_gro && setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof one) != 0)
        fail("UDP_GRO");
    return fd;
}

static int open_destination(const char *text)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    char host[64];
    const char *colon = strrchr(text, ':');
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (colon == NULL || (size_t)(colon - text) >= sizeof host)
        fail("a destination is host:port");
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    address.sin_port = htons((uint16_t)atoi(colon + 1));
    if (fd < 0)
        fail("socket");
    widen(fd);
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        fail("bad destination host");
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        fail("connect");
    return fd;
}

static int port_of(int fd)
{
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &length) != 0)
        fail("getsockname");
    return ntohs(address.sin_port);
}

/* One datagram per call. Returns 0 when the socket is empty. */
static int round_single(int fd)
{
    ssize_t length = recv(fd, buffers[0], BUFFER_BYTES, 0);
    if (length < 0)
        return 0;
    datagrams_in += 1;
    bytes_in += (uint64_t)length;
    for (int i = 0; i < destination_count; i++) {
        if (send(destinations[i], buffers[0], (size_t)length, 0) < 0)
            send_failed += 1;
        else
            datagrams_out += 1;
    }
    return 1;
}

static int round_mmsg(int fd)
{
    static struct mmsghdr messages[BATCH];
    static struct iovec vectors[BATCH];
    int count;
    for (int i = 0; i < BATCH; i++) {
        vectors[i] = (struct iovec){buffers[i], BUFFER_BYTES};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &vectors[i], .msg_iovlen = 1};
    }
    count = recvmmsg(fd, messages, BATCH, MSG_DONTWAIT, NULL);
    if (count <= 0)
        return 0;
    for (int i = 0; i < count; i++) {
        vectors[i].iov_len = messages[i].msg_len;
        bytes_in += messages[i].msg_len;
    }
    datagrams_in += (uint64_t)count;
    for (int i = 0; i < destination_count; i++) {
        int sent = sendmmsg(destinations[i], messages, (unsigned)count, 0);
        if (sent < 0)
            sent = 0;
        datagrams_out += (uint64_t)sent;
        send_failed += (uint64_t)(count - sent);
    }
    return 1;
}

/* The segment size that GRO reports, or the whole length for a datagram that came alone. */
static ssize_t receive_segments(int fd, uint8_t *buffer, int *stride)
{
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec vector = {buffer, BUFFER_BYTES};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t length = recvmsg(fd, &message, 0);
    if (length < 0)
        return length;
    *stride = (int)length;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c != NULL; c = CMSG_NXTHDR(&message, c))
        if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO)
            memcpy(stride, CMSG_DATA(c), sizeof *stride);
    return length;
}

static int round_gso(int fd)
{
    char control[CMSG_SPACE(sizeof(uint16_t))] = {0};
    int stride = 0;
    ssize_t length = receive_segments(fd, buffers[0], &stride);
    struct iovec vector = {buffers[0], (size_t)length};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    uint64_t segments;
    if (length < 0)
        return 0;
    segments = stride > 0 ? ((uint64_t)length + (uint64_t)stride - 1) / (uint64_t)stride : 1;
    if (segments > 1) {
        uint16_t segment_bytes = (uint16_t)stride;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = IPPROTO_UDP;
        c->cmsg_type = UDP_SEGMENT;
        c->cmsg_len = CMSG_LEN(sizeof segment_bytes);
        memcpy(CMSG_DATA(c), &segment_bytes, sizeof segment_bytes);
    }
    datagrams_in += segments;
    bytes_in += (uint64_t)length;
    for (int i = 0; i < destination_count; i++) {
        if (sendmsg(destinations[i], &message, 0) < 0)
            send_failed += segments;
        else
            datagrams_out += segments;
    }
    return 1;
}

static uint8_t *page;
static size_t event_bytes;

/* Counts events by each datagram's own length (u16 at offset 2), since a segment may be padded. */
static int round_sink(int index)
{
    int stride = 0;
    ssize_t length = receive_segments(sources[index], buffers[0], &stride);
    volatile uint64_t *delivered = (volatile uint64_t *)(page + (size_t)index * PAGE_BYTES);
    uint64_t events = 0;
    if (length < 0)
        return 0;
    for (ssize_t at = 0; stride > 0 && at + HEADER_BYTES <= length; at += stride) {
        size_t used = (size_t)buffers[0][at + 2] << 8 | buffers[0][at + 3];
        if (used > HEADER_BYTES)
            events += (used - HEADER_BYTES) / event_bytes;
        delivered[1] += 1;
    }
    bytes_in += (uint64_t)length;
    datagrams_in += 1;
    delivered[0] += events;
    return 1;
}

static void open_sink(int argc, char **argv)
{
    int fd;
    if (argc != 6)
        exit(2);
    source_count = atoi(argv[3]);
    event_bytes = (size_t)atoi(argv[4]);
    if (source_count < 1 || source_count > SOCKETS_MAX || event_bytes < 1)
        exit(2);
    fd = open(argv[5], O_RDWR);
    if (fd < 0)
        fail(argv[5]);
    page = mmap(NULL, (size_t)source_count * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        fail("mmap");
    close(fd);
    for (int i = 0; i < source_count; i++)
        sources[i] = open_source(argv[2], 1);
}

static void print_counts(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    printf("{\"datagrams_in\": %llu, \"datagrams_out\": %llu, \"bytes_in\": %llu, "
           "\"send_failed\": %llu, \"cpu_ns\": %llu}\n",
           (unsigned long long)datagrams_in, (unsigned long long)datagrams_out,
           (unsigned long long)bytes_in, (unsigned long long)send_failed,
           (unsigned long long)used.tv_sec * 1000000000ull + (unsigned long long)used.tv_nsec);
    fflush(stdout);
}

/* A line asks for the counts; end-of-file ends the process. */
static void hear(void)
{
    char line[4096];
    ssize_t length = read(STDIN_FILENO, line, sizeof line);
    if (length <= 0)
        is_ending = 1;
    for (ssize_t i = 0; i < length; i++)
        if (line[i] == '\n')
            print_counts();
}

static void watch(int epoll, int fd, uint32_t index)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = index};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        fail("epoll_ctl");
}

static void serve(char mode)
{
    struct epoll_event events[BATCH];
    int epoll = epoll_create1(0);
    if (epoll < 0)
        fail("epoll_create1");
    watch(epoll, STDIN_FILENO, SOCKETS_MAX);
    for (int i = 0; i < source_count; i++)
        watch(epoll, sources[i], (uint32_t)i);
    while (!is_ending) {
        int count = epoll_wait(epoll, events, BATCH, -1);
        for (int i = 0; i < count; i++) {
            int index = (int)events[i].data.u32, is_full = 1;
            if (index == SOCKETS_MAX) {
                hear();
                continue;
            }
            for (int round = 0; round < ROUNDS_MAX && is_full; round++) {
                if (mode == 'k')
                    is_full = round_sink(index);
                else if (mode == 'g')
                    is_full = round_gso(sources[index]);
                else if (mode == 'm')
                    is_full = round_mmsg(sources[index]);
                else
                    is_full = round_single(sources[index]);
            }
        }
    }
}

int main(int argc, char **argv)
{
    char mode;
    if (argc < 4) {
        fprintf(stderr, "forwarder single|mmsg|gso HOST DESTINATION... | sink ...\n");
        return 2;
    }
    signal(SIGTERM, on_term);
    signal(SIGINT, SIG_IGN);
    mode = strcmp(argv[1], "sink") == 0 ? 'k' : argv[1][0];
    if (mode == 'k') {
        open_sink(argc, argv);
    } else {
        sources[source_count++] = open_source(argv[2], mode == 'g');
        for (int i = 3; i < argc && destination_count < SOCKETS_MAX; i++)
            destinations[destination_count++] = open_destination(argv[i]);
    }
    printf("{\"ports\": [");
    for (int i = 0; i < source_count; i++)
        printf("%s%d", i ? ", " : "", port_of(sources[i]));
    printf("]}\n");
    fflush(stdout);
    serve(mode);
    print_counts();
    return 0;
}
