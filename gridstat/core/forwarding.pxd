# What Python sees of the forwarding core in C.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    ctypedef unsigned short sa_family_t
    cdef struct sockaddr:
        sa_family_t sa_family
    cdef struct sockaddr_storage:
        sa_family_t ss_family

cdef extern from "<sys/mman.h>" nogil:
    int mlockall(int) noexcept
    int MCL_CURRENT
    int MCL_FUTURE

cdef extern from "memory.h" nogil:
    void *gs_allocate(size_t) noexcept
    void gs_release(void *) noexcept
    uint64_t gs_allocations() noexcept
    uint64_t gs_held() noexcept
    bint gs_has_memory(size_t) noexcept

cdef extern from "counters.h" nogil:
    ctypedef uint64_t gs_counter
    enum: GS_HISTOGRAM_BUCKETS
    ctypedef struct gs_histogram:
        gs_counter buckets[GS_HISTOGRAM_BUCKETS]
    uint64_t gs_read(const gs_counter *) noexcept
    uint64_t gs_bucket_upper_ns(uint32_t) noexcept

cdef extern from "rate_law.h" nogil:
    ctypedef struct gs_period:
        pass
    gs_period gs_period_make(uint32_t, uint32_t, uint64_t) noexcept
    int64_t gs_slot_of(uint64_t, const gs_period *) noexcept
    ctypedef struct gs_divisor:
        pass
    gs_divisor gs_divisor_make(uint32_t) noexcept
    bint gs_slot_is_due(int64_t, const gs_divisor *) noexcept

cdef extern from "event.h" nogil:
    enum: GS_MALFORMED_REASONS
    enum: GS_MALFORMED_SHORT
    enum: GS_EVENT_BYTES_MAX

cdef extern from "seal.h" nogil:
    enum: GS_SEAL_TAG_BYTES
    ctypedef enum gs_seal_backend:
        GS_SEAL_EVP
        GS_SEAL_IPSEC_MB
        GS_SEAL_BEST
    ctypedef struct gs_seal_key:
        pass
    gs_seal_key *gs_seal_key_open(gs_seal_backend, const uint8_t *, const uint8_t *) noexcept
    void gs_seal_key_close(gs_seal_key *) noexcept
    void gs_seal(gs_seal_key *, uint8_t *, uint32_t, uint32_t) noexcept
    void gs_seal_wipe(void *, size_t) noexcept
    bint gs_unseal(gs_seal_key *, uint8_t *, uint32_t, uint32_t) noexcept
    gs_seal_backend gs_seal_best() noexcept
    const char *gs_seal_backend_name(gs_seal_backend) noexcept
    ctypedef struct gs_replay_window:
        pass
    bint gs_replay_is_new(const gs_replay_window *, uint64_t) noexcept
    void gs_replay_note(gs_replay_window *, uint64_t) noexcept

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
    ctypedef struct gs_key_set:
        uint32_t count
    ctypedef struct gs_opening:
        gs_key_set *keys
    ctypedef struct gs_epochs_seen:
        uint64_t opened[GS_EPOCH_WORDS]
        uint64_t dropped[GS_EPOCH_WORDS]
        uint64_t unknown[GS_EPOCH_WORDS]
    void gs_opening_take(gs_opening *, gs_epochs_seen *) noexcept

cdef extern from "sources.h" nogil:
    ctypedef struct gs_source:
        uint32_t channel_id
        bint is_open, is_publisher, is_sealed
        uint32_t back_channel
        uint64_t opened_ns
    ctypedef struct gs_attention:
        pass
    void gs_attention_note(gs_attention *, uint64_t) noexcept
    ctypedef struct gs_source_facts:
        uint64_t heard_ns, silent_ns, datagrams, lost, reordered, probes, newest_counter

cdef extern from "forwarding_table.h" nogil:
    enum: GS_ROW_PERIODIC
    enum: GS_ROW_URGENT
    enum: GS_ROW_STAMP_EXEMPT
    enum: GS_ROW_STAMP_BOUNDED
    enum: GS_ROW_KEEPS_NEWEST
    enum: GS_ROW_COUNTS_COPIES
    ctypedef struct gs_term:
        uint64_t modes
        uint32_t every
    ctypedef struct gs_route:
        uint32_t channel_index, event_class, term_first, term_count
    ctypedef struct gs_flood:
        uint64_t modes
        uint32_t level, every
    ctypedef struct gs_stamp_bounds:
        uint64_t ahead_ns, behind_ns
    ctypedef struct gs_row_spec:
        uint32_t variable_id, flags, seconds, per_seconds
        uint64_t phase_ns, interval_ns_min
        uint32_t source, newest_options_max, counted_every, route_count, flood_count
        gs_stamp_bounds stamp_bounds
        const gs_route *routes
        const gs_term *terms
        const gs_flood *floods
    cdef struct gs_flood_output:
        uint32_t channel_index, channel_id, level
    ctypedef struct gs_root:
        pass
    ctypedef struct gs_table:
        pass
    ctypedef enum gs_commit_result:
        GS_COMMITTED
        GS_TOO_MANY_VARIABLES
        GS_TOO_MANY_RINGS
        GS_TOO_MANY_DIVISORS
        GS_NO_MEMORY
    gs_commit_result gs_table_commit(gs_table *, const gs_row_spec *, uint32_t,
                                     const uint32_t *, uint32_t) noexcept
    void gs_table_set_sources(gs_table *, const gs_source *, uint32_t) noexcept
    void gs_table_set_floods(gs_table *, const gs_flood_output *, uint32_t) noexcept
    ctypedef struct gs_row_copy_facts:
        uint32_t every, path_count
        uint32_t channel_ids[4]
        uint64_t passed
        uint64_t came[4]
        uint64_t first[4]
    bint gs_table_copies(const gs_table *, uint32_t, gs_row_copy_facts *) noexcept
    uint32_t gs_table_newest(const gs_table *, uint32_t, uint8_t *) noexcept
    uint32_t gs_table_rows(const gs_table *) noexcept
    void gs_table_reclaim(gs_table *) noexcept
    uint32_t gs_table_retired(const gs_table *) noexcept
    uint64_t gs_table_epoch(const gs_table *) noexcept
    bint gs_table_is_past(const gs_table *, uint64_t) noexcept
    void gs_table_sleep(gs_table *) noexcept

cdef extern from "channel.h" nogil:
    ctypedef struct gs_channel_counters:
        gs_counter due, sent, queued, queue_full, pool_empty, send_failed
        gs_counter datagrams_out, bytes_out, fallback, mtu_changes, probes_sent, probes_failed
        gs_counter replay_queued, no_key, unproven
    ctypedef struct gs_sink:
        uint8_t *bytes
        size_t used
    ctypedef struct gs_channel:
        gs_channel_counters counters
        gs_sink sink
        gs_counter counter
        uint64_t first_counter
        gs_sealing *owned_key
        bint is_guarded
    ctypedef struct gs_channel_options:
        uint32_t channel_id, index, level, mtu_bytes, version
        uint64_t probe_interval_ns, counter
        bint floods, is_posix, probes_only_when_idle, is_held, probes_only_when_held
        uint64_t bandwidth_bytes_per_s
        uint32_t queue_events_max
        const sockaddr *addresses[2]
        socklen_t address_bytes
    int gs_channel_open(const gs_channel_options *, gs_channel **) noexcept
    void gs_channel_close(gs_channel *) noexcept
    ctypedef enum gs_holding:
        GS_SENDS_ALL
        GS_SENDS_PROBES
        GS_SENDS_NOTHING
    void gs_channel_hold(gs_channel *, gs_holding) noexcept

cdef extern from "buffer_pool.h" nogil:
    ctypedef struct gs_buffer_stack:
        gs_counter free
    ctypedef struct gs_buffer_pool:
        gs_buffer_stack small
        gs_buffer_stack large

cdef extern from "policing.h" nogil:
    enum: GS_POLICED_PLACES
    enum: GS_POLICED_REASONS
    ctypedef struct gs_policed:
        gs_counter life, who
        gs_counter counts[6]
    bint gs_policed_read(const gs_policed *, gs_policed *) noexcept

cdef extern from "forwarder.h" nogil:
    ctypedef struct gs_limits:
        uint32_t variables_max, rings_max, channels_max, pool_small, pool_large
        uint64_t stamp_bound_ns, ring_expiry_ns
        uint32_t versions_max
        bint is_posix
    ctypedef struct gs_core_counters:
        gs_counter malformed[GS_MALFORMED_REASONS]
        gs_counter in_ "in"
        gs_counter unknown_channel, unknown_variable
        gs_counter policed_port, policed_source, policed_stamp, policed_slot, policed_jump
        gs_counter policed_interval, duplicate, too_old, not_due, dispatched, flooded
        gs_counter flood_withheld, newest_too_large
        gs_counter sealed_unknown_channel, sealed_unknown_epoch, sealed_replayed, sealed_forged
        gs_counter sealed_plain
        gs_counter datagrams_in, bytes_in, kernel_dropped, receive_calls
    ctypedef struct gs_core:
        gs_limits limits
        gs_table *table
        gs_channel **channels
        uint64_t modes
        gs_attention attention
        gs_buffer_pool pool
        gs_core_counters counters
        gs_histogram latency
        gs_policed *policed
    ctypedef struct gs_now:
        uint64_t wall_ns, steady_ns
    gs_core *gs_core_open(const gs_limits *) noexcept
    void gs_core_close(gs_core *) noexcept
    ctypedef struct gs_arrival:
        uint8_t *at
        size_t bytes, step
        uint32_t port
        uint64_t arrived_ns
    ctypedef struct gs_view:
        pass
    gs_view gs_enter(gs_core *) noexcept
    void gs_forward(gs_core *, const gs_view *, const gs_arrival *, gs_now) noexcept
    gs_core_counters gs_core_counters_read(const gs_core *) noexcept
    void gs_flush(gs_core *, uint64_t) noexcept
    void gs_pump(gs_core *, uint64_t) noexcept
    void gs_find_probing(gs_core *) noexcept
    void gs_probe(gs_core *, uint64_t, uint32_t) noexcept
    gs_source_facts gs_core_source(const gs_core *, uint32_t) noexcept
    void gs_set_sending_key(gs_core *, gs_channel *, gs_sealing *) noexcept
    bint gs_set_receiving_keys(gs_core *, uint32_t, gs_seal_backend, const gs_key_spec *,
                               uint32_t) noexcept
    gs_opening *gs_core_opening(const gs_core *, uint32_t) noexcept
    void gs_switch_modes(gs_core *, uint64_t) noexcept
    void gs_set_channel(gs_core *, uint32_t, gs_channel *) noexcept

cdef extern from "loop.h" nogil:
    enum: GS_RECEIVE_BYTES
    ctypedef struct gs_loop:
        bint is_running
        uint8_t *buffers
        int cpu, fifo_priority, scheduling_error
    gs_loop *gs_loop_open(gs_core *) noexcept
    void gs_loop_close(gs_loop *) noexcept
    int gs_loop_listen(gs_loop *, sockaddr_storage *, socklen_t, uint32_t *) noexcept
    int gs_loop_start(gs_loop *) noexcept
    void gs_loop_stop(gs_loop *) noexcept
    void gs_loop_notify(const gs_loop *) noexcept
    void gs_loop_forget(gs_loop *, gs_channel *) noexcept
    uint64_t gs_loop_now_ns(const gs_loop *) noexcept
    uint64_t gs_loop_cpu_ns(const gs_loop *) noexcept
    bint gs_resolve(const char *, uint16_t, sockaddr_storage *, socklen_t *) noexcept
    uint16_t gs_port_of(const sockaddr_storage *) noexcept
