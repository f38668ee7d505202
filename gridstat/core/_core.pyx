# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=False
"""The one place where a router and the forwarding core meet; `_ends.pyx` is that of the ends.

Python hands over whole tables and reads counters; it never sees an event on its way.
"""

cimport cython
import os
import socket

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from gridstat.core.forwarding cimport *
from gridstat.core.rows import Limits, check_channel, check_delta
from gridstat.model.errors import LayoutError, LimitReached, LinkDown, Misuse, UnknownName


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


@cython.final
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
            raise LimitReached("too many aperiodic variables", hint="raise limits.rings_max")
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
        """Counters of the thread, which the reference does not have."""
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
