/* A status event and the datagram around it, as bytes (big-endian).
 *
 *   event     0 created_ns u64 | 8 variable_id u32 | 12 option_count u8 | 13 flags u8
 *             14 sequence u16 | 16 value 8 bytes | 24 options, 24 bytes each
 *   datagram  0 version u8 | 1 key_epoch u8 | 2 length u16 | 4 channel_id u32 | 8 counter u64
 *             16 events back to back, then padding that `length` does not count
 *   sealed    the same with version 3: the events are encrypted, and a tag of 16 bytes follows,
 *             before any padding; `length` does not count it (`seal.h`)
 *
 * `gridstat/net/codec/` draws the same bytes in Python; golden files bind the two.
 */
#ifndef GS_EVENT_H
#define GS_EVENT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define GS_VERSION_PLAIN   1U
#define GS_VERSION_PROBES  2U /* A header alone is a datagram too: a probe. */
#define GS_VERSION_SEALED  3U
#define GS_VERSIONS_PLAIN  GS_VERSION_PROBES /* Highest version that is not sealed. */
#define GS_VERSIONS_MAX    GS_VERSION_SEALED
#define GS_HEADER_BYTES    16U
#define GS_TAG_BYTES       16U /* Behind the events of a sealed datagram. */
#define GS_EVENT_BYTES     24U
#define GS_OPTION_BYTES    24U
#define GS_EVENT_BYTES_MAX (GS_EVENT_BYTES + 255U * GS_OPTION_BYTES)

typedef enum {
    GS_WELL_FORMED = 0,
    GS_MALFORMED_SHORT,
    GS_MALFORMED_VERSION,
    GS_MALFORMED_EPOCH,
    GS_MALFORMED_LENGTH,
    GS_MALFORMED_OPTION,
    GS_MALFORMED_REASONS,
} gs_form;

typedef struct {
    uint32_t channel_id;
    uint32_t events_end; /* Offset behind the last event. */
    uint32_t event_count;
    uint64_t counter;
} gs_datagram;

static inline uint64_t gs_load_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return __builtin_bswap64(value);
}

static inline uint32_t gs_load_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return __builtin_bswap32(value);
}

static inline uint16_t gs_load_u16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return __builtin_bswap16(value);
}

static inline void gs_store_u64(uint8_t *at, uint64_t value)
{
    value = __builtin_bswap64(value);
    memcpy(at, &value, sizeof value);
}

static inline void gs_store_u32(uint8_t *at, uint32_t value)
{
    value = __builtin_bswap32(value);
    memcpy(at, &value, sizeof value);
}

static inline void gs_store_u16(uint8_t *at, uint16_t value)
{
    value = __builtin_bswap16(value);
    memcpy(at, &value, sizeof value);
}

static inline uint64_t gs_event_created_ns(const uint8_t *event)
{
    return gs_load_u64(event);
}
static inline uint32_t gs_event_variable(const uint8_t *event)
{
    return gs_load_u32(event + 8);
}
static inline uint8_t gs_event_flags(const uint8_t *event)
{
    return event[13];
}
static inline uint16_t gs_event_sequence(const uint8_t *event)
{
    return gs_load_u16(event + 14);
}

static inline uint32_t gs_event_bytes(const uint8_t *event)
{
    return GS_EVENT_BYTES + GS_OPTION_BYTES * (uint32_t)event[12];
}

static inline void gs_event_copy(uint8_t *to, const uint8_t *event, uint32_t bytes)
{
    if (bytes == GS_EVENT_BYTES)
        memcpy(to, event, GS_EVENT_BYTES);
    else
        memcpy(to, event, bytes);
}

/* Count the events up to `read->events_end`, which they must fill. */
static inline gs_form gs_events_read(const uint8_t *datagram, gs_datagram *read)
{
    uint32_t at = GS_HEADER_BYTES, length = read->events_end, count = 0;
    while (at < length) {
        if (length - at < GS_EVENT_BYTES)
            return GS_MALFORMED_OPTION;
        uint32_t event_bytes = gs_event_bytes(datagram + at);
        if (length - at < event_bytes)
            return GS_MALFORMED_OPTION;
        at += event_bytes;
        count++;
    }
    read->event_count = count;
    return GS_WELL_FORMED;
}

/* Check a whole datagram before any of it is used; `bytes` is what arrived, padding included. Its
 * version must be known here: at most `versions_max`, which is no sealed one. */
static inline gs_form gs_datagram_read(const uint8_t *datagram, size_t bytes, uint32_t versions_max,
                                       gs_datagram *read)
{
    if (bytes < GS_HEADER_BYTES)
        return GS_MALFORMED_SHORT;
    uint32_t version = datagram[0];
    if (version - 1 >= versions_max)
        return GS_MALFORMED_VERSION;
    if (datagram[1] != 0)
        return GS_MALFORMED_EPOCH;
    uint32_t length = gs_load_u16(datagram + 2);
    if (length > bytes)
        return GS_MALFORMED_LENGTH;
    if (__builtin_expect(length < GS_HEADER_BYTES + GS_EVENT_BYTES, 0) &&
        !(length == GS_HEADER_BYTES && version >= GS_VERSION_PROBES))
        return GS_MALFORMED_LENGTH;
    read->events_end = length;
    gs_form form = gs_events_read(datagram, read);
    read->channel_id = gs_load_u32(datagram + 4);
    read->counter = gs_load_u64(datagram + 8);
    return form;
}

/* Check the header of a sealed datagram, of which at least a header has arrived. Its events can be
 * read only when it has been opened. */
static inline gs_form gs_sealed_read(const uint8_t *datagram, size_t bytes, gs_datagram *read)
{
    uint32_t length = gs_load_u16(datagram + 2);
    if (length + (size_t)GS_TAG_BYTES > bytes)
        return GS_MALFORMED_LENGTH;
    if (length < GS_HEADER_BYTES + GS_EVENT_BYTES && length != GS_HEADER_BYTES)
        return GS_MALFORMED_LENGTH;
    read->channel_id = gs_load_u32(datagram + 4);
    read->counter = gs_load_u64(datagram + 8);
    read->events_end = length;
    read->event_count = 0;
    return GS_WELL_FORMED;
}

static inline void gs_header_write(uint8_t *at, uint32_t version, uint32_t length,
                                   uint32_t channel_id, uint64_t counter)
{
    at[0] = (uint8_t)version;
    at[1] = 0;
    gs_store_u16(at + 2, (uint16_t)length);
    gs_store_u32(at + 4, channel_id);
    gs_store_u64(at + 8, counter);
}

#endif
