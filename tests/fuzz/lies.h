/* Datagrams of a liar, deterministic by seed: random bytes, flipped bits, cuts, wrong lengths. */
#ifndef GS_LIES_H
#define GS_LIES_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "event.h"

#define LIE_SOURCE    77U
#define LIE_BYTES_MAX 9000U

static uint64_t lie_state;

static inline void lie_seed(uint64_t seed)
{
    lie_state = seed * 0x9E3779B97F4A7C15ULL + 1;
}

static inline uint32_t draw(uint32_t below)
{
    lie_state ^= lie_state << 13;
    lie_state ^= lie_state >> 7;
    lie_state ^= lie_state << 17;
    return (uint32_t)(lie_state >> 11) % below;
}

static inline uint32_t good_probe(uint8_t *bytes, uint64_t stamp)
{
    gs_header_write(bytes, GS_VERSION_PROBES, GS_HEADER_BYTES, LIE_SOURCE, stamp);
    return GS_HEADER_BYTES;
}

static inline uint32_t good_datagram(uint8_t *bytes, uint64_t stamp)
{
    uint32_t at = GS_HEADER_BYTES, events = 1 + draw(12);
    if (draw(16) == 0)
        return good_probe(bytes, stamp);
    for (uint32_t i = 0; i < events; i++) {
        uint8_t options = draw(8) == 0 ? (uint8_t)draw(4) : 0;
        memset(bytes + at, 0, GS_EVENT_BYTES + 24U * options);
        gs_store_u64(bytes + at, stamp + draw(300) * 1000);
        gs_store_u32(bytes + at + 8, draw(64));
        bytes[at + 12] = options;
        gs_store_u16(bytes + at + 14, (uint16_t)draw(65536));
        at += GS_EVENT_BYTES + 24U * options;
    }
    gs_header_write(bytes, 1 + draw(GS_VERSIONS_PLAIN), at, draw(20) == 0 ? draw(100) : LIE_SOURCE,
                    stamp);
    return at;
}

/* What was sent, judged before it is sent; whoever receives it must come to the same figures. */
typedef struct {
    unsigned long datagrams;
    unsigned long forms[GS_MALFORMED_REASONS];
    unsigned long events; /* Of the well-formed ones. */
    unsigned long sealed; /* With the header of a sealed one, which no source here is. */
} lie_tally;

static inline void lie_judge(lie_tally *tally, const uint8_t *bytes, size_t size)
{
    gs_datagram read;
    gs_form form = gs_datagram_read(bytes, size, GS_VERSIONS_PLAIN, &read);
    tally->datagrams++;
    if (form == GS_MALFORMED_VERSION && bytes[0] == GS_VERSION_SEALED) {
        form = gs_sealed_read(bytes, size, &read);
        if (form == GS_WELL_FORMED) {
            tally->sealed++;
            return;
        }
    }
    tally->forms[form]++;
    if (form == GS_WELL_FORMED)
        tally->events += read.event_count;
}

static inline unsigned long lie_malformed(const lie_tally *tally)
{
    return tally->datagrams - tally->forms[GS_WELL_FORMED] - tally->sealed;
}

static inline void lie_tell(const char *name, const lie_tally *tally)
{
    const unsigned long *forms = tally->forms;
    printf("%s: tried %lu = well-formed %lu + sealed %lu + short %lu + version %lu + epoch %lu + "
           "length %lu + "
           "option %lu, and so it was counted",
           name, tally->datagrams, forms[GS_WELL_FORMED], tally->sealed, forms[GS_MALFORMED_SHORT],
           forms[GS_MALFORMED_VERSION], forms[GS_MALFORMED_EPOCH], forms[GS_MALFORMED_LENGTH],
           forms[GS_MALFORMED_OPTION]);
}

/* Writes one lie and returns its size, which may be 0. */
static inline uint32_t lie(uint8_t *bytes, uint64_t stamp)
{
    uint32_t kind = draw(4), size;
    if (kind == 0) {
        size = draw(draw(4) == 0 ? LIE_BYTES_MAX : 200);
        for (uint32_t i = 0; i < size; i++)
            bytes[i] = (uint8_t)draw(256);
        if (size > 0 && draw(2) == 0)
            bytes[0] = (uint8_t)(1 + draw(GS_VERSIONS_MAX));
        if (size > 1 && draw(2) == 0)
            bytes[1] = 0;
        return size;
    }
    size = good_datagram(bytes, stamp);
    if (kind == 1)
        for (uint32_t i = 0; i < 1 + draw(4); i++)
            bytes[draw(size)] ^= (uint8_t)(1U << draw(8));
    if (kind == 2)
        size = draw(size + 1);
    if (kind == 3) {
        gs_store_u16(bytes + 2, (uint16_t)draw(65536));
        if (size > GS_HEADER_BYTES)
            bytes[GS_HEADER_BYTES + 12] = (uint8_t)draw(256);
    }
    return size;
}

#endif
