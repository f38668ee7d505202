/* Sockets of the ends: a pair of UDP ports, one for data and one for what is urgent. */
#ifndef GS_END_SOCKET_H
#define GS_END_SOCKET_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    GS_END_OK = 0,
    GS_END_NO_MEMORY,
    GS_END_UNKNOWN_HOST,
    GS_END_ADDRESS_IN_USE,
    GS_END_ADDRESS_MISSING,
    GS_END_NOT_PERMITTED,
    GS_END_TOO_MANY_FILES,
    GS_END_SYSTEM,
} gs_end_status;

typedef struct {
    const char *host; /* A name, or an address of either family. */
    uint16_t port;
    bool is_posix;
} gs_endpoint;

/* Non-blocking, closed on exec, with the largest buffers that the system grants. */
gs_end_status gs_socket_connect(const gs_endpoint *peer, int *opened);
gs_end_status gs_socket_bind(const gs_endpoint *own, int *opened);
void gs_socket_close(int *opened);

/* The status that the present `errno` means. */
gs_end_status gs_end_status_now(void);

uint16_t gs_socket_port(int fd);
uint32_t gs_socket_receive_buffer_bytes(int fd);
bool gs_socket_is_ipv6(int fd);

/* Changes in a forked child, where the threads of the parent do not exist. */
uint32_t gs_fork_generation(void);

#endif
