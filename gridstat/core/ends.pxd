# What Python sees of the C ends: the sending and the receiving one.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from * nogil:
    uint64_t bswap64 "__builtin_bswap64" (uint64_t) noexcept

cdef extern from "counters.h" nogil:
    enum: GS_HISTOGRAM_BUCKETS
    uint64_t gs_read(const uint64_t *) noexcept
    uint64_t gs_bucket_upper_ns(uint32_t) noexcept

cdef extern from "event.h" nogil:
    enum: GS_VERSION_PROBES
    enum: GS_VERSION_SEALED
    enum: GS_VERSIONS_MAX

cdef extern from "seal.h" nogil:
    ctypedef enum gs_seal_backend:
        GS_SEAL_EVP
        GS_SEAL_IPSEC_MB
        GS_SEAL_BEST
    void gs_seal_wipe(void *, size_t) noexcept
    gs_seal_backend gs_seal_best() noexcept
    const char *gs_seal_backend_name(gs_seal_backend) noexcept

cdef extern from "channel_keys.h" nogil:
    enum: GS_ACCEPTED_KEYS_MAX
    enum: GS_EPOCH_WORDS
    ctypedef struct gs_key_spec:
        uint8_t epoch
        uint8_t key[16]
        uint8_t salt[4]
    ctypedef struct gs_sealing:
        uint8_t epoch
    uint64_t gs_sealing_datagrams(const gs_sealing *) noexcept
    gs_sealing *gs_sealing_open(gs_seal_backend, const gs_key_spec *) noexcept
    ctypedef struct gs_epochs_seen:
        uint64_t opened[GS_EPOCH_WORDS]
        uint64_t dropped[GS_EPOCH_WORDS]
        uint64_t unknown[GS_EPOCH_WORDS]

cdef extern from "end_socket.h" nogil:
    ctypedef enum gs_end_status:
        GS_END_OK
        GS_END_NO_MEMORY
        GS_END_UNKNOWN_HOST
        GS_END_ADDRESS_IN_USE
        GS_END_ADDRESS_MISSING
        GS_END_NOT_PERMITTED
        GS_END_TOO_MANY_FILES
        GS_END_SYSTEM

cdef extern from "sender.h" nogil:
    enum: GS_RECORD_BYTES_MAX
    ctypedef struct gs_sender_options:
        uint32_t channel_id
        const char *host
        uint16_t ports[2]
        uint32_t mtu_bytes, variables_max, version
        uint64_t counter_start
        bint is_posix
    ctypedef struct gs_sender_counters:
        uint64_t events, sent, send_failed, would_block, datagrams_out, bytes_out
        uint64_t fallback, mtu_changes, refused, probes, no_key
    ctypedef enum gs_send_status:
        GS_SEND_DONE
        GS_SEND_FAILED
        GS_SEND_BLOCKED
        GS_SEND_TOO_MANY_VARIABLES
        GS_SEND_NO_KEY
    ctypedef struct gs_outgoing:
        uint32_t variable_id
        uint8_t flags
        bint is_urgent, is_created_now, has_sequence
        uint16_t sequence
        uint64_t created_ns
        const uint8_t *record
        uint32_t record_bytes
    ctypedef struct gs_outgoing_batch:
        const uint32_t *variable_ids
        const uint64_t *created_ns
        const uint64_t *values
        const uint8_t *options
        uint64_t count
        uint32_t option_count, events_per_datagram
        uint8_t flags
        uint64_t done, sent
    ctypedef struct gs_sender:
        pass
    gs_end_status gs_sender_open(const gs_sender_options *, gs_sender **) noexcept
    void gs_sender_shut(gs_sender *) noexcept
    void gs_sender_close(gs_sender *) noexcept
    gs_end_status gs_sender_retarget(gs_sender *, const char *, const uint16_t *) noexcept
    void gs_sender_restart_sequences(gs_sender *) noexcept
    void gs_sender_set_key(gs_sender *, gs_sealing *) noexcept
    const gs_sealing *gs_sender_key(gs_sender *) noexcept
    bint gs_sender_try_lock(gs_sender *) noexcept
    bint gs_sender_lock(gs_sender *) noexcept
    void gs_sender_unlock(gs_sender *) noexcept
    gs_send_status gs_sender_send(gs_sender *, const gs_outgoing *) noexcept
    gs_send_status gs_sender_probe(gs_sender *) noexcept
    gs_send_status gs_sender_send_many(gs_sender *, gs_outgoing_batch *) noexcept
    void gs_sender_abandon(gs_sender *) noexcept
    bint gs_sender_is_foreign(const gs_sender *) noexcept
    int gs_sender_socket(const gs_sender *, uint32_t) noexcept
    uint32_t gs_sender_mtu_bytes(const gs_sender *) noexcept
    uint32_t gs_sender_version(const gs_sender *) noexcept
    uint64_t gs_sender_counter(const gs_sender *) noexcept
    const gs_sender_counters *gs_sender_counted(const gs_sender *) noexcept

cdef extern from "sample_ring.h" nogil:
    ctypedef struct gs_sample:
        uint64_t created_ns, received_ns
        uint32_t variable_id
        uint8_t option_count, flags
        uint16_t sequence
        uint64_t value
    ctypedef struct gs_sample_ring:
        pass
    uint64_t gs_sample_ring_ready(const gs_sample_ring *) noexcept
    uint64_t gs_sample_ring_option_bytes(const gs_sample_ring *, uint64_t) noexcept
    void gs_sample_ring_take(gs_sample_ring *, gs_sample *, uint64_t, uint8_t *) noexcept

cdef extern from "laws.h" nogil:
    ctypedef struct gs_law:
        pass
    gs_law gs_law_make(uint32_t, uint32_t, uint64_t, uint32_t, uint64_t) noexcept

cdef extern from "ledger.h" nogil:
    enum: GS_COPY_SOURCES
    ctypedef struct gs_ledger_facts:
        uint64_t delivered, duplicate, late, unknown, missing, extra, ring_full
        int64_t first_slot, last_slot
        uint64_t copies[8]
        uint64_t passed
        uint64_t came[4]
        uint64_t first[4]
        uint64_t late_by[4]
        uint64_t too_old
        uint64_t too_old_by[4]

cdef extern from "sources.h" nogil:
    ctypedef struct gs_source_facts:
        uint64_t heard_ns, silent_ns, datagrams, lost, reordered, probes, newest_counter

cdef extern from "receiver.h" nogil:
    enum: GS_RECEIVER_SOURCES
    ctypedef enum gs_keep:
        GS_KEEP_RING
        GS_KEEP_NEWEST
        GS_KEEP_COUNT
    enum: GS_RECEIVED_COUNTERS
    ctypedef struct gs_receiver_options:
        const char *host
        uint16_t ports[2]
        uint32_t ring_events, option_bytes, variables_max
        uint64_t ring_expiry_ns
        gs_keep keep
        bint accepts_unknown, only_sources, is_posix
        uint64_t *page
    ctypedef struct gs_receiver:
        pass
    gs_end_status gs_receiver_open(const gs_receiver_options *, gs_receiver **) noexcept
    void gs_receiver_shut(gs_receiver *) noexcept
    void gs_receiver_close(gs_receiver *) noexcept
    gs_end_status gs_receiver_start(gs_receiver *) noexcept
    void gs_receiver_stop(gs_receiver *) noexcept
    bint gs_receiver_is_running(const gs_receiver *) noexcept
    bint gs_receiver_is_foreign(const gs_receiver *) noexcept
    bint gs_receiver_expect(gs_receiver *, uint32_t, const gs_law *) noexcept
    bint gs_receiver_forget(gs_receiver *, uint32_t) noexcept
    bint gs_receiver_ledger(gs_receiver *, uint32_t, gs_ledger_facts *) noexcept
    bint gs_receiver_open_source(gs_receiver *, uint32_t, bint) noexcept
    bint gs_receiver_set_keys(gs_receiver *, uint32_t, gs_seal_backend, const gs_key_spec *,
                              uint32_t) noexcept
    bint gs_receiver_is_sealed(gs_receiver *, uint32_t) noexcept
    bint gs_receiver_keys(gs_receiver *, uint32_t, gs_epochs_seen *) noexcept
    bint gs_receiver_close_source(gs_receiver *, uint32_t) noexcept
    uint32_t gs_receiver_source(gs_receiver *, uint32_t, gs_source_facts *) noexcept
    uint32_t gs_receiver_source_count(const gs_receiver *) noexcept
    bint gs_receiver_newest(gs_receiver *, uint32_t, gs_sample *) noexcept
    bint gs_receiver_wait(gs_receiver *, int) noexcept
    gs_sample_ring *gs_receiver_ring(gs_receiver *) noexcept
    int gs_receiver_wake_fd(const gs_receiver *) noexcept
    uint16_t gs_receiver_port(const gs_receiver *, uint32_t) noexcept
    uint32_t gs_receiver_buffer_bytes(const gs_receiver *) noexcept
    uint64_t gs_receiver_count(const gs_receiver *, uint32_t) noexcept
    uint64_t gs_receiver_latency(const gs_receiver *, uint32_t) noexcept
    uint64_t gs_receiver_kernel_dropped(const gs_receiver *) noexcept
    uint64_t gs_receiver_cpu_ns(gs_receiver *) noexcept
