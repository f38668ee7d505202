#include "ethernet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define RECEIVE_BUFFER_BYTES (8 << 20)
#define NS_PER_S             1000000000
#define ETHERNET_BYTES       14U
#define IP_BYTES_MIN         20U
#define UDP_BYTES            8U
#define UDP_PROTOCOL         17
#define FRAGMENT_MASK        0x3FFF /* More fragments follow, or this one is not the first. */
#define CONTROL_BYTES        128

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t relay_now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static bool prepare(int device, unsigned index)
{
    int on = 1, bytes = RECEIVE_BUFFER_BYTES;
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)index};
    /* The forced way needs more rights than a plain user has; the other is bounded by a sysctl. */
    if (setsockopt(device, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) != 0)
        setsockopt(device, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    return setsockopt(device, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) == 0 &&
           setsockopt(device, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) == 0 &&
           bind(device, (struct sockaddr *)&address, sizeof address) == 0;
}

int relay_device_open(const char *device)
{
    unsigned index = if_nametoindex(device);
    if (index == 0)
        return -1;
    /* Without a protocol until it is bound, or it would take in frames of every device. */
    int opened = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (opened >= 0 && !prepare(opened, index)) {
        int why = errno;
        close(opened);
        errno = why;
        return -1;
    }
    return opened;
}

/* The kernel stamps by the wall clock; the heap counts by the steady one. */
static uint64_t steady_ns(struct msghdr *message)
{
    uint64_t now_ns = relay_now_ns();
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at != NULL; at = CMSG_NXTHDR(message, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SO_TIMESTAMPNS)
            continue;
        struct timespec stamp;
        memcpy(&stamp, CMSG_DATA(at), sizeof stamp);
        uint64_t stamped_ns = (uint64_t)stamp.tv_sec * NS_PER_S + (uint64_t)stamp.tv_nsec;
        uint64_t wall_ns = clock_ns(CLOCK_REALTIME);
        uint64_t age_ns = wall_ns - stamped_ns;
        /* A step of the wall clock must not send a frame back in time. */
        return wall_ns >= stamped_ns && age_ns < NS_PER_S ? now_ns - age_ns : now_ns;
    }
    return now_ns;
}

bool relay_device_read(int device, relay_frame *frame, uint64_t *arrived_ns)
{
    char control[CONTROL_BYTES] __attribute__((aligned(16)));
    struct iovec part = {.iov_base = frame->content, .iov_len = sizeof frame->content};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t bytes = recvmsg(device, &message, MSG_TRUNC);
    if (bytes < 0)
        return false;
    frame->bytes = (uint32_t)bytes;
    *arrived_ns = steady_ns(&message);
    return true;
}

bool relay_device_write(int device, const relay_frame *frame)
{
    return send(device, frame->content, frame->bytes, MSG_DONTWAIT) == (ssize_t)frame->bytes;
}

uint64_t relay_device_dropped(int device)
{
    struct tpacket_stats told;
    socklen_t bytes = sizeof told;
    if (getsockopt(device, SOL_PACKET, PACKET_STATISTICS, &told, &bytes) != 0)
        return 0;
    return told.tp_drops;
}

bool relay_device_make_plain(const char *device)
{
    static const uint32_t commands[] = {ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO};
    int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool is_done = any >= 0;
    for (size_t at = 0; is_done && at < sizeof commands / sizeof *commands; at++) {
        struct ethtool_value value = {.cmd = commands[at], .data = 0};
        struct ifreq request = {.ifr_data = (void *)&value};
        snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device);
        is_done = ioctl(any, SIOCETHTOOL, &request) == 0;
    }
    if (any >= 0)
        close(any);
    return is_done;
}

static uint16_t load_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static void store_u16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

bool relay_is_ip(const relay_frame *frame)
{
    return frame->bytes >= ETHERNET_BYTES + IP_BYTES_MIN &&
           load_u16(frame->content + ETHERNET_BYTES - 2) == ETHERTYPE_IP;
}

static uint32_t sum_of(const uint8_t *at, uint32_t bytes)
{
    uint32_t sum = 0;
    for (; bytes > 1; at += 2, bytes -= 2)
        sum += load_u16(at);
    return bytes == 0 ? sum : sum + ((uint32_t)at[0] << 8);
}

/* RFC 768: over addresses, protocol, length and the datagram with its own field at zero. */
static void mend_checksum(const uint8_t *ip, uint8_t *udp, uint32_t bytes)
{
    store_u16(udp + 6, 0);
    uint32_t sum = sum_of(ip + 12, 8) + UDP_PROTOCOL + bytes + sum_of(udp, bytes);
    while (sum > UINT16_MAX)
        sum = (sum & UINT16_MAX) + (sum >> 16);
    uint16_t mended = (uint16_t)~sum;
    store_u16(udp + 6, mended == 0 ? UINT16_MAX : mended);
}

bool relay_flip_bit(relay_frame *frame, uint64_t flip)
{
    uint8_t *ip = frame->content + ETHERNET_BYTES;
    if (!relay_is_ip(frame) || ip[9] != UDP_PROTOCOL || (load_u16(ip + 6) & FRAGMENT_MASK) != 0)
        return false;
    uint32_t header_bytes = (ip[0] & 15U) * 4U;
    uint32_t room_bytes = frame->bytes - ETHERNET_BYTES;
    if (header_bytes < IP_BYTES_MIN || header_bytes + UDP_BYTES > room_bytes)
        return false;
    uint8_t *udp = ip + header_bytes;
    uint32_t bytes = load_u16(udp + 4);
    if (bytes <= UDP_BYTES || header_bytes + bytes > room_bytes)
        return false;
    uint64_t bit = flip % ((bytes - UDP_BYTES) * 8U);
    udp[UDP_BYTES + bit / 8] ^= (uint8_t)(1U << (bit % 8));
    if (load_u16(udp + 6) != 0)
        mend_checksum(ip, udp, bytes);
    return true;
}
