/* What others ask of a receiver. */
#include <poll.h>
#include <string.h>
#include <time.h>

#include "receiver_state.h"

bool gs_receiver_is_running(const gs_receiver *receiver)
{
    return __atomic_load_n(&receiver->is_running, __ATOMIC_ACQUIRE);
}

bool gs_receiver_is_foreign(const gs_receiver *receiver)
{
    return receiver->fork_generation != gs_fork_generation();
}

bool gs_receiver_expect(gs_receiver *receiver, uint32_t variable_id, const gs_law *law)
{
    return gs_expected_add(&receiver->expected, variable_id, law);
}

bool gs_receiver_forget(gs_receiver *receiver, uint32_t variable_id)
{
    return gs_expected_forget(&receiver->expected, variable_id);
}

bool gs_receiver_told(gs_receiver *receiver, uint32_t variable_id, gs_ledger_facts *facts)
{
    return gs_expected_told(&receiver->expected, variable_id, facts);
}

bool gs_receiver_newest(gs_receiver *receiver, uint32_t variable_id, gs_sample *sample)
{
    return gs_expected_newest(&receiver->expected, variable_id, sample);
}

/* --- Sources ----------------------------------------------------------------------------- */

static gs_known_source *find_source(gs_receiver *receiver, uint32_t channel_id)
{
    for (uint32_t i = 0; i < GS_RECEIVER_SOURCES; i++)
        if (receiver->sources[i].channel_id == channel_id)
            return &receiver->sources[i];
    return NULL;
}

/* Into the first free place, which nobody holds: whoever left it has waited for that. */
static bool open_source(gs_receiver *receiver, uint32_t channel_id)
{
    if (find_source(receiver, channel_id) != NULL)
        return true;
    gs_known_source *source = find_source(receiver, 0);
    if (source == NULL)
        return false;
    memset(&source->state, 0, sizeof source->state);
    source->host_heard_ns = 0;
    source->state.opened_ns = gs_clock_ns(CLOCK_MONOTONIC);
    __atomic_store_n(&source->channel_id, channel_id, __ATOMIC_RELEASE);
    uint32_t count = (uint32_t)(source - receiver->sources) + 1;
    if (count > receiver->source_count)
        __atomic_store_n(&receiver->source_count, count, __ATOMIC_RELEASE);
    gs_wake_signal(&receiver->stop); /* From now on it does not sleep for long. */
    return true;
}

bool gs_receiver_open_source(gs_receiver *receiver, uint32_t channel_id)
{
    pthread_mutex_lock(&receiver->expected.adding);
    bool has_room = open_source(receiver, channel_id);
    pthread_mutex_unlock(&receiver->expected.adding);
    return has_room;
}

bool gs_receiver_close_source(gs_receiver *receiver, uint32_t channel_id)
{
    pthread_mutex_lock(&receiver->expected.adding);
    gs_known_source *source = find_source(receiver, channel_id);
    if (source != NULL) {
        __atomic_store_n(&source->channel_id, 0, __ATOMIC_RELEASE);
        gs_expected_settle(&receiver->expected);
    }
    pthread_mutex_unlock(&receiver->expected.adding);
    return source != NULL;
}

uint32_t gs_receiver_source(gs_receiver *receiver, uint32_t place, gs_source_facts *facts)
{
    pthread_mutex_lock(&receiver->expected.adding);
    const gs_known_source *source = &receiver->sources[place];
    *facts = gs_source_tell(&source->state, &receiver->attention);
    uint32_t channel_id = source->channel_id;
    pthread_mutex_unlock(&receiver->expected.adding);
    return channel_id;
}

uint32_t gs_receiver_source_count(const gs_receiver *receiver)
{
    return __atomic_load_n(&receiver->source_count, __ATOMIC_ACQUIRE);
}

/* --- Batches and figures ----------------------------------------------------------------- */

bool gs_receiver_wait(gs_receiver *receiver, int timeout_ms)
{
    if (gs_sample_ring_ready(&receiver->ring) != 0)
        return true;
    struct pollfd wake = {.fd = receiver->wake.reader, .events = POLLIN};
    if (poll(&wake, 1, timeout_ms) <= 0 || gs_sample_ring_ready(&receiver->ring) != 0)
        return gs_sample_ring_ready(&receiver->ring) != 0;
    gs_wake_clear(&receiver->wake);
    if (gs_sample_ring_ready(&receiver->ring) == 0)
        return false;
    gs_wake_signal(&receiver->wake); /* Those that came meanwhile were signalled too early. */
    return true;
}

gs_sample_ring *gs_receiver_ring(gs_receiver *receiver)
{
    return &receiver->ring;
}

int gs_receiver_wake_fd(const gs_receiver *receiver)
{
    return receiver->wake.reader;
}

uint16_t gs_receiver_port(const gs_receiver *receiver, uint32_t port)
{
    return gs_socket_port(receiver->sockets[port]);
}

uint32_t gs_receiver_buffer_bytes(const gs_receiver *receiver)
{
    return gs_socket_receive_buffer_bytes(receiver->sockets[GS_PORT_DATA]);
}

uint64_t gs_receiver_count(const gs_receiver *receiver, uint32_t counter)
{
    return gs_read(&receiver->counters[counter]);
}

uint64_t gs_receiver_kernel_dropped(const gs_receiver *receiver)
{
    return (uint64_t)gs_lost(receiver->sockets[GS_PORT_DATA]) +
           gs_lost(receiver->sockets[GS_PORT_URGENT]);
}

uint64_t gs_receiver_latency(const gs_receiver *receiver, uint32_t bucket)
{
    return gs_read(&receiver->latency.buckets[bucket]);
}

uint64_t gs_receiver_cpu_ns(gs_receiver *receiver)
{
    pthread_mutex_lock(&receiver->running);
    uint64_t cpu_ns = receiver->cpu_ns_before;
    if (receiver->is_running)
        cpu_ns += gs_receiver_thread_cpu_ns(receiver);
    pthread_mutex_unlock(&receiver->running);
    return cpu_ns;
}
