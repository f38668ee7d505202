/* Devices as raw sockets, and the little that the relay must know of what is in a frame. */
#ifndef RELAY_ETHERNET_H
#define RELAY_ETHERNET_H

#include <stdbool.h>
#include <stdint.h>

#include "frames.h"

/* A raw socket that sees what reaches the device and never what we send; -1 with errno. */
int relay_device_open(const char *device);

/* Reads one frame and the time at which the kernel took it in (by the steady clock). `bytes` is
 * the frame's true length, which may exceed the buffer. False if there is none. */
bool relay_device_read(int device, relay_frame *frame, uint64_t *arrived_ns);

bool relay_device_write(int device, const relay_frame *frame);

/* What the kernel threw away since the last call, because we did not read in time. */
uint64_t relay_device_dropped(int device);

/* Makes the kernel itself check-sum and cut what it sends through the device, as one that has no
 * clever card must: the far end of a wire sees nothing else. False with errno. */
bool relay_device_make_plain(const char *device);

bool relay_is_ip(const relay_frame *frame);

/* Flips one bit of a UDP datagram's content and mends the checksum, so that the flip reaches the
 * application. False if the frame holds no whole UDP datagram with content. */
bool relay_flip_bit(relay_frame *frame, uint64_t flip);

uint64_t relay_now_ns(void);

#endif
