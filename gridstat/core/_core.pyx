# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=False
"""The one place where Python and the forwarding core meet.

Python hands over whole tables and reads counters; it never sees an event on its way.
"""

import os
import socket

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from gridstat.core.rows import Limits, check_channel, check_delta
from gridstat.model.errors import LayoutError, LimitReached, LinkDown, Misuse, UnknownName


cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    ctypedef unsigned short sa_family_t
    cdef struct sockaddr:
        sa_family_t sa_family
    cdef struct sockaddr_storage:
        sa_family_t ss_family

cdef extern from "<netinet/in.h>" nogil:
    cdef struct in_addr:
        uint32_t s_addr
    cdef struct sockaddr_in:
        sa_family_t sin_family
        uint16_t sin_port
        in_addr sin_addr
    cdef struct in6_addr:
        uint8_t s6_addr[16]
    cdef struct sockaddr_in6:
        sa_family_t sin6_family
        uint16_t sin6_port
        in6_addr sin6_addr
        uint32_t sin6_scope_id
    uint16_t htons(uint16_t) noexcept
    uint16_t ntohs(uint16_t) noexcept

cdef extern from "<sys/mman.h>" nogil:
    int mlockall(int) noexcept
    int MCL_CURRENT
    int MCL_FUTURE

cdef extern from "memory.h" nogil:
    uint64_t gs_allocations() noexcept

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
    bint gs_slot_is_due(int64_t, uint32_t) noexcept

cdef extern from "event.h" nogil:
    enum: GS_MALFORMED_REASONS
    enum: GS_MALFORMED_SHORT

cdef extern from "forwarding_table.h" nogil:
    enum: GS_ROW_PERIODIC
    enum: GS_ROW_URGENT
    enum: GS_ROW_STAMP_EXEMPT
    ctypedef struct gs_term:
        uint64_t modes
        uint32_t every
    ctypedef struct gs_route:
        uint32_t channel_index, event_class, term_first, term_count
    ctypedef struct gs_flood:
        uint64_t modes
        uint32_t level
    ctypedef struct gs_row_words:
        uint32_t variable_id, flags, seconds, per_seconds
        uint64_t phase_ns, interval_ns_min
        uint32_t source, route_count, flood_count
        const gs_route *routes
        const gs_term *terms
        const gs_flood *floods
    ctypedef struct gs_source:
        uint32_t channel_id
        bint is_open, is_publisher
        uint32_t back_channel
    cdef struct gs_flood_way:
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
    gs_commit_result gs_table_commit(gs_table *, const gs_row_words *, uint32_t,
                                     const uint32_t *, uint32_t) noexcept
    void gs_table_set_sources(gs_table *, const gs_source *, uint32_t) noexcept
    void gs_table_set_floods(gs_table *, const gs_flood_way *, uint32_t) noexcept
    uint32_t gs_table_rows(const gs_table *) noexcept
    void gs_table_reclaim(gs_table *) noexcept
    uint32_t gs_table_retired(const gs_table *) noexcept
    const gs_root *gs_table_enter(gs_table *) noexcept
    void gs_table_sleep(gs_table *) noexcept

cdef extern from "channel.h" nogil:
    ctypedef struct gs_channel_counters:
        gs_counter due, sent, queued, queue_full, pool_empty, send_failed, too_large
        gs_counter datagrams_out, bytes_out, fallback, mtu_changes
    ctypedef struct gs_sink:
        uint8_t *bytes
        size_t used
    ctypedef struct gs_channel:
        gs_channel_counters counters
        gs_sink sink
        uint32_t mtu_bytes
    ctypedef struct gs_channel_words:
        uint32_t channel_id, index, level, mtu_bytes
        bint floods, is_posix
        uint64_t bandwidth_bytes_per_s
        uint32_t queue_events_max
        const sockaddr *addresses[2]
        socklen_t address_bytes
    int gs_channel_open(const gs_channel_words *, gs_channel **) noexcept
    void gs_channel_close(gs_channel *) noexcept

cdef extern from "buffer_pool.h" nogil:
    ctypedef struct gs_buffer_stack:
        gs_counter free
    ctypedef struct gs_buffer_pool:
        gs_buffer_stack small
        gs_buffer_stack large

cdef extern from "forwarder.h" nogil:
    ctypedef struct gs_limits:
        uint32_t variables_max, rings_max, channels_max, pool_small, pool_large
        uint64_t stamp_bound_ns, ring_expiry_ns
        bint is_posix
    ctypedef struct gs_core_counters:
        gs_counter malformed[GS_MALFORMED_REASONS]
        gs_counter in_ "in"
        gs_counter unknown_channel, unknown_variable
        gs_counter policed_port, policed_source, policed_stamp, policed_slot, policed_jump
        gs_counter policed_interval, duplicate, not_due, dispatched, flooded
        gs_counter datagrams_in, bytes_in, kernel_dropped, receive_calls
    ctypedef struct gs_core:
        gs_limits limits
        gs_table *table
        gs_channel **channels
        uint64_t modes
        gs_buffer_pool pool
        gs_core_counters counters
        gs_histogram latency
    ctypedef struct gs_now:
        uint64_t wall_ns, steady_ns
    gs_core *gs_core_open(const gs_limits *) noexcept
    void gs_core_close(gs_core *) noexcept
    ctypedef struct gs_arrival:
        const uint8_t *at
        size_t bytes, step
        uint32_t port
    void gs_forward(gs_core *, const gs_root *, const gs_arrival *, gs_now) noexcept
    void gs_flush(gs_core *, uint64_t) noexcept
    void gs_pump(gs_core *, uint64_t) noexcept
    void gs_switch_modes(gs_core *, uint64_t) noexcept
    void gs_set_channel(gs_core *, uint32_t, gs_channel *) noexcept

cdef extern from "loop.h" nogil:
    ctypedef struct gs_loop:
        bint is_running
        int cpu, fifo_priority, scheduling_error
    gs_loop *gs_loop_open(gs_core *) noexcept
    void gs_loop_close(gs_loop *) noexcept
    int gs_loop_listen(gs_loop *, uint32_t, sockaddr *, socklen_t *) noexcept
    int gs_loop_start(gs_loop *) noexcept
    void gs_loop_stop(gs_loop *) noexcept
    void gs_loop_forget(gs_loop *, gs_channel *) noexcept
    uint64_t gs_loop_cpu_ns(const gs_loop *) noexcept


def slot_of(uint64_t created_ns, uint32_t seconds, uint32_t per_seconds, uint64_t phase_ns) -> int:
    """The core's slot law, for the parity test."""
    cdef gs_period period = gs_period_make(seconds, per_seconds, phase_ns)
    return gs_slot_of(created_ns, &period)


def is_due(uint64_t created_ns, uint32_t seconds, uint32_t per_seconds, uint64_t phase_ns,
           uint32_t every) -> bool:
    """The core's rate filter, for the parity test."""
    cdef gs_period period = gs_period_make(seconds, per_seconds, phase_ns)
    return gs_slot_is_due(gs_slot_of(created_ns, &period), every)


def allocations() -> int:
    """How often the core has taken memory since the process began."""
    return gs_allocations()


cdef class _Address:
    """A resolved UDP address in the form that the C side wants."""

    cdef sockaddr_storage storage
    cdef socklen_t size

    def __cinit__(self, str host, int port):
        cdef sockaddr_in *four = <sockaddr_in *>&self.storage
        cdef sockaddr_in6 *six = <sockaddr_in6 *>&self.storage
        memset(&self.storage, 0, sizeof(self.storage))
        if not 0 <= port <= 65535:
            raise LayoutError(f"port {port} is not 0 to 65535")
        try:
            family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        except OSError as error:
            raise LinkDown(f"host {host!r} cannot be found: {error}") from error
        packed = socket.inet_pton(family, place[0].split("%")[0])
        if family == socket.AF_INET:
            four.sin_family = socket.AF_INET
            four.sin_port = htons(<uint16_t>port)
            memcpy(&four.sin_addr, <const char *>packed, 4)
            self.size = sizeof(sockaddr_in)
        else:
            six.sin6_family = socket.AF_INET6
            six.sin6_port = htons(<uint16_t>port)
            six.sin6_scope_id = place[3]
            memcpy(&six.sin6_addr, <const char *>packed, 16)
            self.size = sizeof(sockaddr_in6)

    cdef int port(self):
        if self.storage.ss_family == socket.AF_INET:
            return ntohs((<sockaddr_in *>&self.storage).sin_port)
        return ntohs((<sockaddr_in6 *>&self.storage).sin6_port)


cdef class _Words:
    """Rows of one delta as flat C arrays, for as long as the commit lasts."""

    cdef gs_row_words *rows
    cdef gs_route *routes
    cdef gs_term *terms
    cdef gs_flood *floods
    cdef uint32_t *removals
    cdef uint32_t row_count, removal_count

    def __cinit__(self, tuple upserts, tuple removals, dict indices):
        routes = [route for row in upserts for route in row.routes]
        self.rows = <gs_row_words *>calloc(len(upserts) + 1, sizeof(gs_row_words))
        self.routes = <gs_route *>calloc(len(routes) + 1, sizeof(gs_route))
        self.terms = <gs_term *>calloc(sum(len(r.terms) for r in routes) + 1, sizeof(gs_term))
        self.floods = <gs_flood *>calloc(sum(len(r.floods) for r in upserts) + 1, sizeof(gs_flood))
        self.removals = <uint32_t *>calloc(len(removals) + 1, sizeof(uint32_t))
        if not (self.rows and self.routes and self.terms and self.floods and self.removals):
            raise MemoryError
        for variable_id in removals:
            self.removals[self.removal_count] = variable_id
            self.removal_count += 1
        cdef uint32_t route_at = 0, term_at = 0, flood_at = 0
        cdef gs_row_words *words
        for row in upserts:
            words = &self.rows[self.row_count]
            self.row_count += 1
            self._put_head(words, row)
            words.routes = &self.routes[route_at]
            words.terms = self.terms
            words.floods = &self.floods[flood_at]
            for route in row.routes:
                self.routes[route_at].channel_index = indices[route.channel_id]
                self.routes[route_at].event_class = 0 if row.is_urgent else route.priority
                self.routes[route_at].term_first = term_at
                self.routes[route_at].term_count = len(route.terms)
                route_at += 1
                for term in route.terms:
                    self.terms[term_at].modes = term.modes
                    self.terms[term_at].every = term.every
                    term_at += 1
            for flood in row.floods:
                self.floods[flood_at].modes = flood.modes
                self.floods[flood_at].level = flood.level
                flood_at += 1

    cdef _put_head(self, gs_row_words *words, row):
        words.variable_id = row.variable_id
        words.flags = (
            (GS_ROW_PERIODIC if row.period is not None else 0)
            | (GS_ROW_URGENT if row.is_urgent else 0)
            | (GS_ROW_STAMP_EXEMPT if row.is_stamp_exempt else 0)
        )
        if row.period is not None:
            words.seconds = row.period.seconds
            words.per_seconds = row.period.per_seconds
        words.phase_ns = row.phase_ns
        words.interval_ns_min = row.interval_ns_min
        words.source = row.source
        words.route_count = len(row.routes)
        words.flood_count = len(row.floods)

    def __dealloc__(self):
        free(self.rows)
        free(self.routes)
        free(self.terms)
        free(self.floods)
        free(self.removals)


cdef class Core:
    """A forwarding core; `gridstat.core.reference.ReferenceCore` says the same in Python."""

    cdef gs_core *core
    cdef gs_loop *loop
    cdef dict indices       # channel id -> index, as long as it is open or a row names it
    cdef dict specs         # channel id -> spec of the open ones
    cdef dict references    # channel id -> number of rows that name it
    cdef dict named         # variable id -> channel ids of its row
    cdef dict sources
    cdef list free_indices

    def __cinit__(self, limits=Limits(), *, posix=False):
        cdef gs_limits words
        words.variables_max = limits.variables_max
        words.rings_max = limits.rings_max
        words.channels_max = limits.channels_max
        words.pool_small = limits.pool_small
        words.pool_large = limits.pool_large
        words.stamp_bound_ns = limits.stamp_bound_ns
        words.ring_expiry_ns = limits.ring_expiry_ns
        words.is_posix = posix
        self.core = gs_core_open(&words)
        self.loop = gs_loop_open(self.core)
        self.indices, self.specs, self.references = {}, {}, {}
        self.named, self.sources = {}, {}
        self.free_indices = list(range(limits.channels_max - 1, -1, -1))

    def __dealloc__(self):
        self._end()

    cdef void _end(self) noexcept:
        if self.loop != NULL:
            gs_loop_close(self.loop)
            self.loop = NULL
        if self.core != NULL:
            gs_core_close(self.core)
            self.core = NULL

    cdef _need_open(self):
        if self.core == NULL:
            raise Misuse("the core is closed", hint="make a new one; a closed core holds nothing")

    def close(self):
        """Stop the thread and give back sockets and memory; closing twice is no error."""
        self._end()

    # -- channels and sources ------------------------------------------------------------------

    def open_channel(self, spec):
        """Open an outgoing channel; rows that named it before find it again."""
        self._need_open()
        check_channel(spec)
        if spec.channel_id in self.specs:
            raise LayoutError(f"channel {spec.channel_id} is open already", hint="close it first")
        if spec.channel_id not in self.indices:
            if not self.free_indices:
                raise LimitReached("no room for another channel", hint="raise limits.channels_max")
            self.indices[spec.channel_id] = self.free_indices.pop()
        cdef gs_channel *channel = NULL
        cdef uint32_t index = self.indices[spec.channel_id]
        cdef int failure = self._open(spec, index, &channel)
        if failure != 0:
            self._forget_index(spec.channel_id)
            raise LinkDown(f"channel {spec.channel_id} cannot open: {os.strerror(failure)}")
        self.specs[spec.channel_id] = spec
        gs_set_channel(self.core, index, channel)
        self._tell_floods()

    cdef int _open(self, spec, uint32_t index, gs_channel **channel) except -1:
        cdef gs_channel_words words
        cdef _Address data, urgent
        memset(&words, 0, sizeof(words))
        words.channel_id = spec.channel_id
        words.index = index
        words.level = spec.level
        words.mtu_bytes = spec.mtu_bytes
        words.floods = spec.floods
        words.is_posix = self.core.limits.is_posix
        words.bandwidth_bytes_per_s = spec.bandwidth_bytes_per_s
        words.queue_events_max = spec.queue_events_max
        if spec.address is not None:
            host, data_port, urgent_port = spec.address
            data = _Address(host, data_port)
            urgent = _Address(host, urgent_port)
            words.addresses[0] = <sockaddr *>&data.storage
            words.addresses[1] = <sockaddr *>&urgent.storage
            words.address_bytes = data.size
        return gs_channel_open(&words, channel)

    cdef gs_channel *_channel(self, channel_id) except NULL:
        self._need_open()
        if channel_id not in self.specs:
            raise UnknownName(f"channel {channel_id} is not open")
        return self.core.channels[<uint32_t>self.indices[channel_id]]

    cdef _forget_index(self, channel_id):
        if channel_id not in self.specs and self.references.get(channel_id, 0) == 0:
            self.references.pop(channel_id, None)
            self.free_indices.append(self.indices.pop(channel_id))

    def close_channel(self, channel_id):
        """Close a channel; what it still queues is dropped and rows no longer reach it."""
        cdef gs_channel *channel = self._channel(channel_id)
        del self.specs[channel_id]
        gs_set_channel(self.core, self.indices[channel_id], NULL)
        self._tell_floods()
        with nogil:
            gs_loop_forget(self.loop, channel)
        gs_channel_close(channel)
        self._forget_index(channel_id)

    cdef _tell_floods(self):
        flooding = [spec for _, spec in sorted(self.specs.items()) if spec.floods]
        cdef gs_flood_way *ways = <gs_flood_way *>calloc(len(flooding) + 1, sizeof(gs_flood_way))
        for at, spec in enumerate(flooding):
            ways[<size_t>at].channel_index = self.indices[spec.channel_id]
            ways[<size_t>at].channel_id = spec.channel_id
            ways[<size_t>at].level = spec.level
        gs_table_set_floods(self.core.table, ways, len(flooding))
        free(ways)

    def open_source(self, channel_id, *, is_publisher=False, back_channel=0):
        """Accept datagrams of an incoming channel; `back_channel` leads to whoever sends on it."""
        self._need_open()
        if not 0 < channel_id < 2**32 or not 0 <= back_channel < 2**32:
            raise LayoutError(f"{channel_id} or {back_channel} is not a channel id")
        if channel_id not in self.sources and len(self.sources) >= 65536:
            raise LimitReached("no room for another source")
        self.sources[channel_id] = (bool(is_publisher), back_channel)
        self._tell_sources()

    def close_source(self, channel_id):
        """Events of this incoming channel are unknown from now on."""
        self._need_open()
        if self.sources.pop(channel_id, None) is None:
            raise UnknownName(f"source {channel_id} is not open")
        self._tell_sources()

    cdef _tell_sources(self):
        cdef gs_source *words = <gs_source *>calloc(len(self.sources) + 1, sizeof(gs_source))
        cdef size_t at = 0
        for channel_id, (is_publisher, back_channel) in self.sources.items():
            words[at].channel_id = channel_id
            words[at].is_publisher = is_publisher
            words[at].back_channel = back_channel
            at += 1
        gs_table_set_sources(self.core.table, words, <uint32_t>at)
        free(words)

    # -- the table -----------------------------------------------------------------------------

    def commit(self, upserts=(), removals=()):
        """Apply a delta; the forwarding thread sees all of it between two batches, or nothing."""
        self._need_open()
        upserts, removals = tuple(upserts), tuple(removals)
        check_delta(upserts, removals)
        for row in upserts:
            for route in row.routes:
                if route.channel_id not in self.specs:
                    raise UnknownName(
                        f"variable {row.variable_id} is routed to channel {route.channel_id}, "
                        "which is not open"
                    )
        cdef _Words words = _Words(upserts, removals, self.indices)
        cdef gs_commit_result result = gs_table_commit(
            self.core.table, words.rows, words.row_count, words.removals, words.removal_count
        )
        if result == GS_TOO_MANY_VARIABLES:
            raise LimitReached("no room for so many variables", hint="raise limits.variables_max")
        if result == GS_TOO_MANY_RINGS:
            raise LimitReached("no room for so many aperiodic variables",
                               hint="raise limits.rings_max")
        if result != GS_COMMITTED:
            raise LayoutError("a variable has too many divisors")
        self._note_names(upserts, removals)

    cdef _note_names(self, tuple upserts, tuple removals):
        for variable_id in removals:
            self._note_name(variable_id, ())
        for row in upserts:
            self._note_name(row.variable_id, tuple(route.channel_id for route in row.routes))

    cdef _note_name(self, variable_id, tuple channel_ids):
        before = self.named.pop(variable_id, ())
        for channel_id in channel_ids:
            self.references[channel_id] = self.references.get(channel_id, 0) + 1
        for channel_id in before:
            self.references[channel_id] -= 1
            self._forget_index(channel_id)
        if channel_ids:
            self.named[variable_id] = channel_ids

    def rows(self):
        """How many variables the table knows."""
        self._need_open()
        return gs_table_rows(self.core.table)

    def retired(self):
        """Old versions of the table that the forwarding thread may still hold."""
        self._need_open()
        gs_table_reclaim(self.core.table)
        return gs_table_retired(self.core.table)

    @property
    def modes(self):
        """The active modes as they were set; the baseline (bit 0) is active beside them."""
        self._need_open()
        return self.core.modes

    def set_modes(self, mask):
        """Switch the active modes: one store, seen by the next datagram."""
        self._need_open()
        if not 0 <= mask < 2**64:
            raise LayoutError(f"modes {mask} do not fit into 64 bits")
        gs_switch_modes(self.core, mask)

    # -- by hand, without a thread -------------------------------------------------------------

    def inject(self, const uint8_t[::1] datagram, *, int port=0, uint64_t now_ns):
        """Take in one datagram as one receive call, and flush; for tests and memory channels."""
        self._need_idle()
        if port not in (0, 1) or now_ns < 2:
            raise LayoutError("port is 0 or 1, and now_ns at least 2")
        cdef gs_now now
        now.wall_ns = now.steady_ns = now_ns
        cdef const gs_root *root = gs_table_enter(self.core.table)
        cdef gs_arrival arrival
        arrival.at = &datagram[0] if datagram.shape[0] else NULL
        arrival.bytes = arrival.step = datagram.shape[0]
        arrival.port = port
        gs_forward(self.core, root, &arrival, now)
        gs_flush(self.core, now_ns)
        gs_table_sleep(self.core.table)

    def pump(self, uint64_t now_ns):
        """Let paced channels send what their lines allow at `now_ns`."""
        self._need_idle()
        gs_pump(self.core, now_ns)

    def take_output(self, channel_id):
        """What a memory channel has sent since the last call: (port, datagram) in order."""
        cdef gs_channel *channel = self._channel(channel_id)
        cdef size_t at = 0
        cdef uint32_t port, size
        self._need_idle()
        taken = []
        while at < channel.sink.used:
            memcpy(&port, channel.sink.bytes + at, 4)
            memcpy(&size, channel.sink.bytes + at + 4, 4)
            taken.append((port, (<char *>channel.sink.bytes)[at + 8:at + 8 + size]))
            at += 8 + size
        channel.sink.used = 0
        return taken

    cdef _need_idle(self):
        self._need_open()
        if self.loop.is_running:
            raise Misuse("the core's own thread is running", hint="stop it first")

    # -- the thread ----------------------------------------------------------------------------

    def listen(self, host, data_port=0, urgent_port=0):
        """Bind both ports; 0 lets the system choose. The ports that were bound."""
        self._need_idle()
        ports = []
        cdef _Address address
        for port, wanted in ((1, urgent_port), (0, data_port)):
            address = _Address(host, wanted)
            failure = gs_loop_listen(self.loop, port, <sockaddr *>&address.storage, &address.size)
            if failure != 0:
                raise LinkDown(f"cannot listen on {host} port {wanted}: {os.strerror(failure)}",
                               hint="choose another port, or 0 for any free one")
            ports.append(address.port())
        return ports[1], ports[0]

    def start(self, *, cpu=None, fifo_priority=0):
        """Start forwarding in a thread of its own."""
        self._need_idle()
        self.loop.cpu = -1 if cpu is None else cpu
        self.loop.fifo_priority = fifo_priority
        failure = gs_loop_start(self.loop)
        if failure != 0:
            raise LinkDown(f"the forwarding thread cannot start: {os.strerror(failure)}")
        if self.loop.scheduling_error != 0:
            return os.strerror(self.loop.scheduling_error)
        return None

    def stop(self):
        """End the thread after the batch in its hands; stopping twice is no error."""
        self._need_open()
        with nogil:
            gs_loop_stop(self.loop)

    def thread_cpu_ns(self):
        """Processor time that the forwarding thread has used."""
        self._need_open()
        return gs_loop_cpu_ns(self.loop)

    def lock_memory(self):
        """Keep all memory of the process resident; False when the system refuses."""
        return mlockall(MCL_CURRENT | MCL_FUTURE) == 0

    # -- counters ------------------------------------------------------------------------------

    def counters(self):
        """All counters of the core; see `in = malformed + ... + dispatched`."""
        self._need_open()
        cdef gs_core_counters *at = &self.core.counters
        found = {
            "in": gs_read(&at.in_),
            "unknown_channel": gs_read(&at.unknown_channel),
            "unknown_variable": gs_read(&at.unknown_variable),
            "policed_port": gs_read(&at.policed_port),
            "policed_source": gs_read(&at.policed_source),
            "policed_stamp": gs_read(&at.policed_stamp),
            "policed_slot": gs_read(&at.policed_slot),
            "policed_jump": gs_read(&at.policed_jump),
            "policed_interval": gs_read(&at.policed_interval),
            "duplicate": gs_read(&at.duplicate),
            "not_due": gs_read(&at.not_due),
            "dispatched": gs_read(&at.dispatched),
            "flooded": gs_read(&at.flooded),
            "datagrams_in": gs_read(&at.datagrams_in),
            "bytes_in": gs_read(&at.bytes_in),
        }
        for reason, name in enumerate(("short", "version", "epoch", "length", "option")):
            found[f"malformed_{name}"] = gs_read(&at.malformed[GS_MALFORMED_SHORT + reason])
        for kind in ("malformed", "unknown", "policed"):
            found[kind] = sum(n for name, n in found.items() if name.startswith(f"{kind}_"))
        return found

    def thread_counters(self):
        """Counters of the thread alone, which the reference does not have."""
        self._need_open()
        return {
            "receive_calls": gs_read(&self.core.counters.receive_calls),
            "kernel_dropped": gs_read(&self.core.counters.kernel_dropped),
        }

    def channel_counters(self, channel_id):
        """Counters of one open channel: due = sent + queued + the drops."""
        cdef gs_channel_counters *at = &self._channel(channel_id).counters
        return {
            "due": gs_read(&at.due),
            "sent": gs_read(&at.sent),
            "queued": gs_read(&at.queued),
            "queue_full": gs_read(&at.queue_full),
            "pool_empty": gs_read(&at.pool_empty),
            "send_failed": gs_read(&at.send_failed),
            "too_large": gs_read(&at.too_large),
            "datagrams_out": gs_read(&at.datagrams_out),
            "bytes_out": gs_read(&at.bytes_out),
            "fallback": gs_read(&at.fallback),
            "mtu_changes": gs_read(&at.mtu_changes),
        }

    def latency_histogram(self):
        """Kernel receive time to send, as (upper bound in ns, events), empty buckets left out."""
        self._need_open()
        counts = [gs_read(&self.core.latency.buckets[i]) for i in range(GS_HISTOGRAM_BUCKETS)]
        return [(gs_bucket_upper_ns(<uint32_t>i), n) for i, n in enumerate(counts) if n]

    def pool_free(self):
        """Free buffers of the pool: small, large."""
        self._need_open()
        return gs_read(&self.core.pool.small.free), gs_read(&self.core.pool.large.free)


# ENDS: sender and receiver

import time
import weakref

cimport cython
import numpy as np
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_Check
from cpython.number cimport PyIndex_Check

from gridstat.core.ends cimport *
from gridstat.core.end_settings import PORT_MAX as _PORT_MAX, VARIABLES_MAX as _VARIABLES_MAX
from gridstat.core.end_settings import ReceiverSpec as _ReceiverSpec, bounded as _bounded
from gridstat.core.end_settings import check_opened as _check_opened, column as _column
from gridstat.core.samples import SAMPLE as _SAMPLE, Sample as _Sample

cdef int WAIT_MS_MAX = 100  # Python looks at its signals at least so often.
cdef tuple RECEIVED = (
    "in", "malformed", "malformed_short", "malformed_version", "malformed_epoch",
    "malformed_length", "malformed_option", "unknown", "duplicate", "policed_jump", "delivered",
    "ring_full", "datagrams_in", "bytes_in",
)
cdef dict KEEPS = {"ring": GS_KEEP_RING, "newest": GS_KEEP_NEWEST, "count": GS_KEEP_COUNT}

@cython.final
cdef class Sender:
    """Sends events into one channel; every event counts once in sent, send_failed or would_block.

    One call at a time: a second thread waits for its turn.
    """

    cdef gs_sender *sender
    cdef bint is_closed

    def __cinit__(self, channel_id, address, *, mtu_bytes=1232, variables_max=131072, posix=False):
        cdef gs_sender_words words
        cdef gs_end_status status
        host, data_port, urgent_port = address
        name = host.encode()
        words.channel_id = _bounded("channel_id", channel_id, 0, 2**32 - 1)
        words.host = name
        words.ports[0] = _bounded("data_port", data_port, 1, _PORT_MAX)
        words.ports[1] = _bounded("urgent_port", urgent_port, 1, _PORT_MAX)
        words.mtu_bytes = _bounded("mtu_bytes", mtu_bytes, 40, 65000)
        words.variables_max = _bounded("variables_max", variables_max, 1, _VARIABLES_MAX)
        words.is_posix = posix
        with nogil:
            status = gs_sender_open(&words, &self.sender)
        _check_opened(status, f"cannot send to {host} ports {data_port} and {urgent_port}")

    def __dealloc__(self):
        if self.sender != NULL:
            gs_sender_close(self.sender)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, variable_id, value, *, created_ns=None, flags=0, urgent=False):
        """Send one event in a datagram of its own, at once; False when the kernel has no room.

        Bytes are a record of 1 to 6,128 bytes in wire order, as `ValueCodec.encode` makes them.
        """
        cdef gs_outgoing event
        cdef Py_buffer record
        cdef uint64_t word
        cdef double number
        event.variable_id = _bounded("variable_id", variable_id, 0, 2**32 - 1)
        event.flags = _bounded("flags", flags, 0, 63)
        event.is_urgent = urgent
        if PyFloat_Check(value):
            number = PyFloat_AS_DOUBLE(value)
            memcpy(&word, &number, 8)
        elif PyIndex_Check(value):
            word = <uint64_t><int64_t>_bounded("value", int(value), -2**63, 2**63 - 1)
        elif isinstance(value, (bytes, bytearray, memoryview)):
            PyObject_GetBuffer(value, &record, PyBUF_SIMPLE)
            try:
                event.record = <const uint8_t *>record.buf
                event.record_bytes = _bounded("a record's bytes", record.len, 1,
                                              GS_RECORD_BYTES_MAX)
                return self._send(&event, created_ns)
            finally:
                PyBuffer_Release(&record)
        else:
            raise LayoutError(f"a {type(value).__name__} is no value",
                              hint="give an int, a float, a bool, or the bytes of a record")
        word = bswap64(word)
        event.record = <const uint8_t *>&word
        event.record_bytes = 8
        return self._send(&event, created_ns)

    cdef bint _send(self, gs_outgoing *event, created_ns) except *:
        cdef gs_send_status status
        event.is_created_now = created_ns is None
        if created_ns is not None:
            event.created_ns = _bounded("created_ns", created_ns, 0, 2**64 - 1)
        self._enter()
        # With Python's lock: the call never blocks, and taking the lock back might.
        status = gs_sender_send(self.sender, event)
        gs_sender_unlock(self.sender)
        return self._judge(status) == GS_SEND_DONE

    def send_many(self, variable_ids, values, created_ns, *, options=None, events_per_datagram=0,
                  flags=0):
        """Send packed events from NumPy columns; how many of them the kernel took."""
        cdef gs_outgoing_batch batch
        cdef gs_send_status status = GS_SEND_BLOCKED
        cdef const uint32_t[::1] ids = _column("variable_ids", variable_ids, "u4")
        cdef const uint64_t[::1] words = _column("values", values, "i8").view("u8")
        cdef const uint64_t[::1] stamps = _column("created_ns", created_ns, "u8")
        cdef const uint8_t[:, ::1] rest = None
        if not ids.shape[0] == words.shape[0] == stamps.shape[0]:
            raise LayoutError("variable_ids, values and created_ns must be of one length")
        memset(&batch, 0, sizeof(batch))
        batch.count = ids.shape[0]
        batch.flags = _bounded("flags", flags, 0, 63)
        batch.events_per_datagram = _bounded("events_per_datagram", events_per_datagram, 0, 65535)
        if batch.count == 0:
            return 0
        if options is not None:
            rest = np.ascontiguousarray(options)
            if rest.shape[0] != ids.shape[0] or rest.shape[1] % 24 or rest.shape[1] > 255 * 24:
                raise LayoutError("options must be uint8 of shape (events, 24 * n), n at most 255")
            batch.option_count = rest.shape[1] // 24
            if batch.option_count:
                batch.options = &rest[0, 0]
        batch.variable_ids, batch.values, batch.created_ns = &ids[0], &words[0], &stamps[0]
        self._enter()
        try:
            while status == GS_SEND_BLOCKED:
                with nogil:
                    status = gs_sender_send_many(self.sender, &batch)
                PyErr_CheckSignals()
        finally:
            gs_sender_abandon(self.sender)
            gs_sender_unlock(self.sender)
        self._judge(status)
        return batch.sent

    cdef gs_send_status _judge(self, gs_send_status status) except *:
        if status == GS_SEND_TOO_MANY_VARIABLES:
            raise LimitReached("this sender has sent too many different variables",
                               hint="open it with a larger variables_max")
        return status

    cdef _enter(self):
        cdef bint is_mine
        if gs_sender_is_foreign(self.sender):
            raise Misuse("a sender cannot be used in a forked child",
                         hint="open the sender after the fork")
        if not gs_sender_try_lock(self.sender):
            with nogil:
                is_mine = gs_sender_lock(self.sender)
            if not is_mine:
                raise Misuse("a signal handler cannot send in the middle of the same send_many",
                             hint="use another sender there")
        if self.is_closed:
            gs_sender_unlock(self.sender)
            raise Misuse("the sender is closed", hint="open a new one")

    def fileno(self):
        """The data socket, for options that gridstat does not set."""
        return gs_sender_socket(self.sender, 0)

    @property
    def mtu_bytes(self):
        """The largest datagram; less than asked for where the path proved narrower."""
        return gs_sender_mtu_bytes(self.sender)

    def counters(self):
        """All counters: events = sent + send_failed + would_block."""
        cdef const gs_sender_counters *at = gs_sender_counted(self.sender)
        return {
            "events": gs_read(&at.events),
            "sent": gs_read(&at.sent),
            "send_failed": gs_read(&at.send_failed),
            "would_block": gs_read(&at.would_block),
            "datagrams_out": gs_read(&at.datagrams_out),
            "bytes_out": gs_read(&at.bytes_out),
            "fallback": gs_read(&at.fallback),
            "mtu_changes": gs_read(&at.mtu_changes),
            "refused": gs_read(&at.refused),
        }

    def close(self):
        """Close the sockets; closing twice is no error."""
        if self.is_closed or gs_sender_is_foreign(self.sender):
            return
        self._enter()
        self.is_closed = True
        gs_sender_shut(self.sender)
        gs_sender_unlock(self.sender)


@cython.final
cdef class _Listening:
    """Owns the C receiver, apart from `Receiver`, so that it can be stopped when that is gone."""

    cdef gs_receiver *receiver
    cdef Py_buffer page
    cdef bint has_page

    def stop(self):
        """End the thread; at the interpreter's exit too."""
        with nogil:
            gs_receiver_stop(self.receiver)

    def __dealloc__(self):
        if self.receiver != NULL:
            gs_receiver_close(self.receiver)
        if self.has_page:
            PyBuffer_Release(&self.page)


@cython.final
cdef class Receiver:
    """Receives events in a thread of its own, which never waits for Python.

    in = malformed + unknown + duplicate + policed_jump + delivered + ring_full.
    """

    cdef object __weakref__
    cdef _Listening listening
    cdef gs_receiver *receiver
    cdef gs_keep keep
    cdef bint is_closed
    cdef int waiting        # Threads inside `read`
    cdef readonly tuple ports

    def __cinit__(self, **settings):
        cdef gs_receiver_words words
        cdef gs_end_status status
        spec = _ReceiverSpec(**settings)
        name = spec.host.encode()
        self.listening = _Listening()
        words.host = name
        words.ports[0], words.ports[1] = spec.data_port, spec.urgent_port
        words.keep = self.keep = KEEPS[spec.keep]
        words.ring_events = spec.ring_events
        words.option_bytes = spec.option_bytes
        words.variables_max = spec.variables_max
        words.ring_expiry_ns = spec.ring_expiry_ns
        words.accepts_unknown = spec.accept_unknown
        words.is_posix = spec.posix
        words.page = self._hold_page(spec.page)
        with nogil:
            status = gs_receiver_open(&words, &self.listening.receiver)
        _check_opened(status, f"cannot listen on {spec.host} ports {spec.data_port} and "
                              f"{spec.urgent_port}")
        self.receiver = self.listening.receiver
        self.ports = gs_receiver_port(self.receiver, 0), gs_receiver_port(self.receiver, 1)
        weakref.finalize(self, self.listening.stop)

    cdef uint64_t *_hold_page(self, page) except? NULL:
        if page is None:
            return NULL
        PyObject_GetBuffer(page, &self.listening.page, PyBUF_SIMPLE | PyBUF_WRITABLE)
        self.listening.has_page = True
        if self.listening.page.len < 4096 or <size_t>self.listening.page.buf % 8:
            raise LayoutError("a page must have 4,096 bytes and be aligned to 8")
        return <uint64_t *>self.listening.page.buf

    cdef _need_open(self):
        if gs_receiver_is_foreign(self.receiver):
            raise Misuse("a receiver cannot be used in a forked child, where its thread is missing",
                         hint="open the receiver after the fork")
        if self.is_closed:
            raise Misuse("the receiver is closed", hint="open a new one")

    def expect(self, variable_id, period, phase_ns=0):
        """Take this variable, the first copy of each event; period None means aperiodic."""
        self._need_open()
        _bounded("variable_id", variable_id, 0, 2**32 - 1)
        _bounded("phase_ns", phase_ns, 0, 2**64 - 1)
        cdef uint32_t seconds = 0 if period is None else period.seconds
        cdef uint32_t per_seconds = 0 if period is None else period.per_seconds
        if not gs_receiver_expect(self.receiver, variable_id, seconds, per_seconds, phase_ns):
            raise LimitReached("this receiver expects too many variables",
                               hint="open it with a larger variables_max")

    def start(self):
        """Start receiving; starting twice is no error."""
        self._need_open()
        _check_opened(gs_receiver_start(self.receiver), "the receiving thread cannot start")

    def stop(self):
        """Stop receiving after the batch in hand; what was received can still be read."""
        self.listening.stop()

    def close(self):
        """Stop, and give back both ports and the page; closing twice is no error."""
        if self.is_closed:
            return
        self.is_closed = True
        self.listening.stop()  # Also wakes whoever waits in `read`.
        while self.waiting and not gs_receiver_is_foreign(self.receiver):
            time.sleep(0.001)
        gs_receiver_shut(self.receiver)
        if self.listening.has_page:
            self.listening.has_page = False
            PyBuffer_Release(&self.listening.page)

    @property
    def is_running(self):
        """Whether the thread runs."""
        return gs_receiver_is_running(self.receiver) and not gs_receiver_is_foreign(self.receiver)

    def fileno(self):
        """Readable when events wait; reading until a batch is empty makes it unreadable again."""
        return gs_receiver_wake_fd(self.receiver)

    def read(self, events_max=65536, timeout_s=0):
        """The events that wait, oldest first; when there are none, wait for some until the timeout.

        An empty batch after the timeout (None: no timeout), or once the receiver is stopped.
        """
        cdef uint64_t count = self._await(events_max, timeout_s)
        return self._take(count, NULL)

    def read_with_options(self, events_max=65536, timeout_s=0):
        """As `read`, with the option bytes of all these events one after the other."""
        cdef uint64_t count = self._await(events_max, timeout_s)
        cdef uint64_t size = gs_sample_ring_option_bytes(gs_receiver_ring(self.receiver), count)
        options = PyBytes_FromStringAndSize(NULL, size)
        return self._take(count, <uint8_t *>PyBytes_AS_STRING(options)), options

    cdef _take(self, uint64_t count, uint8_t *options):
        cdef Py_buffer view
        batch = np.empty(count, _SAMPLE)
        if count != 0:
            PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
            # Under Python's lock, so that two readers cannot take the same events.
            gs_sample_ring_take(gs_receiver_ring(self.receiver), <gs_sample *>view.buf, count,
                                options)
            PyBuffer_Release(&view)
        return batch

    cdef uint64_t _await(self, events_max, timeout_s) except? 0:
        cdef uint64_t most = _bounded("events_max", events_max, 1, 2**32)
        cdef gs_sample_ring *ring = gs_receiver_ring(self.receiver)
        cdef int wait_ms = 0
        if gs_receiver_is_foreign(self.receiver):
            self._need_open()
        if self.keep != GS_KEEP_RING:
            raise Misuse("this receiver keeps no events", hint="open it with keep='ring'")
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while gs_sample_ring_ready(ring) == 0:
            if gs_receiver_is_running(self.receiver):
                left_s = WAIT_MS_MAX if deadline_s is None else deadline_s - time.monotonic()
                wait_ms = max(0, min(WAIT_MS_MAX, int(left_s * 1000 + 0.999)))
            else:
                wait_ms = 0
            self.waiting += 1
            with nogil:
                gs_receiver_wait(self.receiver, wait_ms)
            self.waiting -= 1
            PyErr_CheckSignals()
            if wait_ms == 0:
                break
        return min(most, gs_sample_ring_ready(ring))

    def newest(self, variable_id):
        """The newest event of an expected variable, or None before the first."""
        cdef gs_sample found
        self._need_open()
        if self.keep == GS_KEEP_COUNT:
            raise Misuse("this receiver keeps no values", hint="open it with keep='newest'")
        if not gs_receiver_newest(self.receiver, variable_id, &found):
            return None
        return _Sample(found.created_ns, found.received_ns, found.variable_id, found.option_count,
                      found.flags, found.sequence, <int64_t>found.value)

    def counters(self):
        """All counters; `kernel_dropped` counts datagrams that found the socket's buffer full."""
        found = {name: gs_receiver_count(self.receiver, i) for i, name in enumerate(RECEIVED)}
        found["kernel_dropped"] = gs_receiver_kernel_dropped(self.receiver)
        return found

    def latency_histogram(self):
        """Created to received, for events with good time, as (upper bound in ns, events)."""
        counts = [gs_receiver_latency(self.receiver, i) for i in range(GS_HISTOGRAM_BUCKETS)]
        return [(gs_bucket_upper_ns(<uint32_t>i), n) for i, n in enumerate(counts) if n]

    @property
    def receive_buffer_bytes(self):
        """What the system granted for the data port."""
        return gs_receiver_buffer_bytes(self.receiver)

    def thread_cpu_ns(self):
        """Processor time that the receiving thread has used."""
        if gs_receiver_is_foreign(self.receiver):
            self._need_open()
        return gs_receiver_cpu_ns(self.receiver)
