#include "event.h"

#include <stdbool.h>

gs_form gs_datagram_read(const uint8_t *datagram, size_t bytes, uint32_t versions_max,
                         gs_datagram *read)
{
    if (bytes < GS_HEADER_BYTES)
        return GS_MALFORMED_SHORT;
    uint32_t version = datagram[0];
    if (version == 0 || version > versions_max)
        return GS_MALFORMED_VERSION;
    if (datagram[1] != 0)
        return GS_MALFORMED_EPOCH;
    uint32_t length = gs_load_u16(datagram + 2);
    bool is_probe = length == GS_HEADER_BYTES && version >= GS_VERSION_PROBES;
    if ((length < GS_HEADER_BYTES + GS_EVENT_BYTES && !is_probe) || length > bytes)
        return GS_MALFORMED_LENGTH;
    uint32_t at = GS_HEADER_BYTES;
    uint32_t count = 0;
    while (at < length) {
        if (length - at < GS_EVENT_BYTES)
            return GS_MALFORMED_OPTION;
        uint32_t event_bytes = gs_event_bytes(datagram + at);
        if (length - at < event_bytes)
            return GS_MALFORMED_OPTION;
        at += event_bytes;
        count++;
    }
    read->channel_id = gs_load_u32(datagram + 4);
    read->counter = gs_load_u64(datagram + 8);
    read->events_end = length;
    read->event_count = count;
    return GS_WELL_FORMED;
}
