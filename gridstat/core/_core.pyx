# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=False
"""The interface between Python and the forwarding core; `_ends.pyx` is that of sender and receiver.

Python passes whole tables and reads counters; it never handles an event.
"""

cimport cython
import os
from threading import RLock

from libc.stdint cimport UINT32_MAX, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from gridstat.core.forwarding cimport *
from gridstat.core.channel_indices import ChannelIndices
from gridstat.core.closed_counters import ClosedCounters
from gridstat.core.counter_names import (
    CHANNEL_COUNTERS,
    CORE_COUNTERS,
    POLICED_REASONS,
    SOURCE_FACTS,
)
from gridstat.core.counter_names import check_committed
from gridstat.core.key_settings import checked_key, checked_keys, no_seal_key, not_sealed
from gridstat.core.rows import Limits, check_channel, check_delta, check_limits, check_routed
from gridstat.core.rows import check_versions, counter_before, system_hint
from gridstat.model.errors import LayoutError, LimitReached, LinkDown, Misuse, UnknownName


def slot_of(uint64_t created_ns, uint32_t seconds, uint32_t per_seconds, uint64_t phase_ns) -> int:
    """The core's slot law, for the parity test."""
    cdef gs_period period = gs_period_make(seconds, per_seconds, phase_ns)
    return gs_slot_of(created_ns, &period)


def is_due(uint64_t created_ns, uint32_t seconds, uint32_t per_seconds, uint64_t phase_ns,
           uint32_t every) -> bool:
    """The core's rate filter, for the parity test."""
    cdef gs_period period = gs_period_make(seconds, per_seconds, phase_ns)
    cdef gs_divisor divisor = gs_divisor_make(every)
    return gs_slot_is_due(gs_slot_of(created_ns, &period), &divisor)


def allocations() -> int:
    """How often the core has taken memory since the process began."""
    return gs_allocations()


def held_allocations() -> int:
    """How many pieces of memory the core holds now."""
    return gs_held()


_SEAL_BACKENDS = {"evp": GS_SEAL_EVP, "ipsec-mb": GS_SEAL_IPSEC_MB, "best": GS_SEAL_BEST}


def seal_backends() -> dict:
    """The backends of this machine that seal datagrams, fastest first, with their full names."""
    found = {}
    for name in ("ipsec-mb", "evp"):
        full = gs_seal_backend_name(<gs_seal_backend><int>_SEAL_BACKENDS[name]).decode()
        if full:
            found[name] = full
    return found


cdef gs_seal_backend _backend(str name) except *:
    if name not in _SEAL_BACKENDS:
        raise UnknownName(f"there is no backend {name!r}", hint="evp, ipsec-mb or best")
    return <gs_seal_backend><int>_SEAL_BACKENDS[name]


cdef _no_key(gs_seal_backend backend):
    if backend == GS_SEAL_BEST:
        backend = gs_seal_best()
    return no_seal_key(gs_seal_backend_name(backend).decode())


cdef _write_key(gs_key_spec *spec, tuple checked):
    cdef bytes key = checked[1], salt = checked[2]
    spec.epoch = checked[0]
    memcpy(spec.key, <const char *>key, 16)
    memcpy(spec.salt, <const char *>salt, 4)


cdef tuple _epochs_in(const uint64_t *words):
    return tuple([epoch for epoch in range(256) if words[<size_t>epoch // 64] >> (epoch % 64) & 1])


@cython.final
cdef class SealKey:
    """The key of one channel and epoch, for tests; channels hold theirs in C."""

    cdef gs_seal_key *key

    def __cinit__(self, bytes key not None, bytes salt not None, str backend not None="best"):
        if len(key) != 16 or len(salt) != 4:
            raise LayoutError(f"a key of {len(key)} and a salt of {len(salt)} bytes, not 16 and 4")
        self.key = gs_seal_key_open(_backend(backend), <const uint8_t *>key,
                                    <const uint8_t *>salt)
        if self.key is NULL:
            raise _no_key(_backend(backend))

    def __dealloc__(self):
        gs_seal_key_close(self.key)

    def seal(self, bytes datagram not None, uint32_t port=0):
        """Return the sealed datagram: header, encrypted events, tag."""
        if not 16 <= len(datagram) <= 65_000:
            raise LayoutError(f"{len(datagram)} bytes are no datagram")
        cdef bytearray sealed = bytearray(datagram) + bytearray(GS_SEAL_TAG_BYTES)
        gs_seal(self.key, sealed, <uint32_t>len(datagram), port)
        return bytes(sealed)

    def unseal(self, bytes datagram not None, uint32_t port=0):
        """Return header and events of a sealed datagram, or None if it is forged or damaged."""
        if len(datagram) > 65_535:
            return None
        cdef bytearray opened = bytearray(datagram)
        if not gs_unseal(self.key, opened, <uint32_t>len(datagram), port):
            return None
        return bytes(opened[:len(opened) - GS_SEAL_TAG_BYTES])


@cython.final
cdef class ReplayWindow:
    """The core's window of accepted counters, for the parity test."""

    cdef gs_replay_window window

    def is_new(self, uint64_t counter):
        return gs_replay_is_new(&self.window, counter)

    def note(self, uint64_t counter):
        gs_replay_note(&self.window, counter)


cdef class _Address:
    """A resolved UDP address in the form that the C side wants."""

    cdef sockaddr_storage storage
    cdef socklen_t size

    def __cinit__(self, str host, int port):
        if not 0 <= port <= 65535:
            raise LayoutError(f"port {port} is not 0 to 65535")
        if not gs_resolve(host.encode(), <uint16_t>port, &self.storage, &self.size):
            raise LinkDown(f"host {host!r} cannot be found", hint="give a name or an address")


cdef class _TableChange:
    """Rows of one delta as flat C arrays, for as long as the commit lasts."""

    cdef gs_row_spec *rows
    cdef gs_route *routes
    cdef gs_term *terms
    cdef gs_flood *floods
    cdef uint32_t *removals
    cdef uint32_t row_count, removal_count

    def __cinit__(self, tuple upserts, tuple removals, dict indices):
        routes = [route for row in upserts for route in row.routes]
        self.rows = <gs_row_spec *>calloc(len(upserts) + 1, sizeof(gs_row_spec))
        self.routes = <gs_route *>calloc(len(routes) + 1, sizeof(gs_route))
        self.terms = <gs_term *>calloc(sum(len(r.terms) for r in routes) + 1, sizeof(gs_term))
        self.floods = <gs_flood *>calloc(sum(len(r.floods) for r in upserts) + 1, sizeof(gs_flood))
        self.removals = <uint32_t *>calloc(len(removals) + 1, sizeof(uint32_t))
        if not (self.rows and self.routes and self.terms and self.floods and self.removals):
            check_committed(GS_NO_MEMORY)
        for variable_id in removals:
            self.removals[self.removal_count] = variable_id
            self.removal_count += 1
        cdef uint32_t route_at = 0, term_at = 0, flood_at = 0
        for row in upserts:
            self._write_spec(&self.rows[self.row_count], row)
            self.rows[self.row_count].routes = &self.routes[route_at]
            self.rows[self.row_count].floods = &self.floods[flood_at]
            self.row_count += 1
            for route in row.routes:
                self.routes[route_at] = gs_route(indices[route.channel_id], 0 if row.is_urgent else
                                                 route.priority, term_at, len(route.terms))
                route_at += 1
                for term in route.terms:
                    self.terms[term_at] = gs_term(term.modes, term.every)
                    term_at += 1
            for flood in row.floods:
                self.floods[flood_at] = gs_flood(flood.modes, flood.level, flood.every)
                flood_at += 1

    cdef _write_spec(self, gs_row_spec *spec, row):
        spec.variable_id = row.variable_id
        spec.terms = self.terms
        spec.flags = GS_ROW_URGENT if row.is_urgent else 0
        spec.flags |= GS_ROW_STAMP_EXEMPT if row.is_stamp_exempt else 0
        spec.flags |= GS_ROW_STAMP_BOUNDED if row.has_stamp_bounds else 0
        spec.stamp_bounds.ahead_ns = row.ahead_ns_max
        spec.stamp_bounds.behind_ns = row.behind_ns_max
        spec.flags |= GS_ROW_KEEPS_NEWEST if row.keeps_newest else 0
        spec.newest_options_max = row.newest_options_max
        spec.counted_every = row.counted_every
        if row.period is not None:
            spec.flags |= GS_ROW_PERIODIC | (GS_ROW_COUNTS_COPIES if row.counted_every else 0)
            spec.seconds = row.period.seconds
            spec.per_seconds = row.period.per_seconds
        spec.phase_ns = row.phase_ns
        spec.interval_ns_min = row.interval_ns_min
        spec.source = row.source
        spec.route_count = len(row.routes)
        spec.flood_count = len(row.floods)

    def __dealloc__(self):
        free(self.rows)
        free(self.routes)
        free(self.terms)
        free(self.floods)
        free(self.removals)


cdef dict _named(tuple names, const gs_counter *at):
    return {name: gs_read(&at[i]) for i, name in enumerate(names) if name is not None}


@cython.final
cdef class Core:
    """A forwarding core; `gridstat.core.reference.ReferenceCore` is the same in Python.

    One writer at a time: every method takes the lock, as some of them let go of Python's own.
    """

    cdef gs_core *core
    cdef gs_loop *loop
    cdef object lock
    cdef int process
    cdef object indices
    cdef dict specs    # channel id -> spec of the open ones
    cdef dict sources
    cdef object closed_counters
    cdef gs_seal_backend backend

    def __cinit__(self, limits=Limits(), *, posix=False, versions_max=3, str seal_backend="best"):
        cdef gs_limits core_limits
        self.backend = _backend(seal_backend)
        core_limits.versions_max = check_versions(versions_max)
        if not gs_has_memory(check_limits(limits)):
            raise LimitReached("there is not enough memory for these limits",
                               hint="lower variables_max, rings_max or the pools")
        core_limits.variables_max = limits.variables_max
        core_limits.rings_max = limits.rings_max
        self.indices = ChannelIndices(limits.channels_max)
        core_limits.channels_max = self.indices.capacity
        core_limits.pool_small = limits.pool_small
        core_limits.pool_large = limits.pool_large
        core_limits.stamp_bound_ns = limits.stamp_bound_ns
        core_limits.ring_expiry_ns = limits.ring_expiry_ns
        core_limits.is_posix = posix
        self.core = gs_core_open(&core_limits)
        self.loop = gs_loop_open(self.core)
        self.lock, self.process = RLock(), os.getpid()
        self.specs, self.sources, self.closed_counters = {}, {}, ClosedCounters()

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
        if self.process != os.getpid():
            raise Misuse("the core was made before a fork", hint="make one in this process")

    def close(self):
        """Stop the thread and give back sockets and memory; closing twice is no error."""
        if self.process != os.getpid():
            self._end()  # Whoever held the lock stayed in the parent.
            return
        with self.lock:
            self._end()

    def open_channel(self, spec):
        """Open an outgoing channel; rows that named it before find it again."""
        cdef gs_channel *channel = NULL
        cdef int failure = 0
        with self.lock:
            self._need_open()
            check_channel(spec, self.core.limits.versions_max)
            if spec.channel_id in self.specs:
                raise LayoutError(f"channel {spec.channel_id} is open already", hint="close it")
            index = self.indices.take(spec.channel_id, self._has_passed)
            try:
                failure = self._open(spec, index, &channel)
                if failure != 0:
                    raise LinkDown(f"channel {spec.channel_id} cannot open: "
                                   f"{os.strerror(failure)}",
                                   hint=system_hint(failure, "check its address"))
            except BaseException:
                self.indices.close(spec.channel_id, gs_table_epoch(self.core.table))
                raise
            self.closed_counters.opened(spec.channel_id)
            self.specs[spec.channel_id] = spec
            gs_set_channel(self.core, index, channel)
            self._set_floods()
            gs_loop_notify(self.loop)

    def _has_passed(self, uint64_t epoch):
        return gs_table_is_past(self.core.table, epoch)

    cdef int _open(self, spec, uint32_t index, gs_channel **channel) except -1:
        cdef gs_channel_options options
        cdef _Address data, urgent
        memset(&options, 0, sizeof(options))
        options.channel_id = spec.channel_id
        options.index = index
        options.level = spec.level
        options.mtu_bytes = spec.mtu_bytes
        options.version = spec.datagram_version
        options.probe_interval_ns = spec.probe_interval_ns
        options.probes_only_when_idle = spec.probes_only_when_idle
        options.counter = counter_before(spec, self.closed_counters.of(spec.channel_id))
        options.is_held = spec.is_held
        options.probes_only_when_held = spec.probes_only_when_held
        options.floods = spec.floods
        options.is_posix = self.core.limits.is_posix
        options.bandwidth_bytes_per_s = spec.bandwidth_bytes_per_s
        options.queue_events_max = spec.queue_events_max
        if spec.address is not None:
            host, data_port, urgent_port = spec.address
            data = _Address(host, data_port)
            urgent = _Address(host, urgent_port)
            options.addresses[0] = <sockaddr *>&data.storage
            options.addresses[1] = <sockaddr *>&urgent.storage
            options.address_bytes = data.size
        return gs_channel_open(&options, channel)

    cdef gs_channel *_channel(self, channel_id) except NULL:
        self._need_open()
        if channel_id not in self.specs:
            raise UnknownName(f"channel {channel_id} is not open")
        return self.core.channels[<uint32_t>self.indices.of[channel_id]]

    def close_channel(self, channel_id):
        """Close a channel and drop its queued events; return its last counters."""
        cdef gs_channel *channel
        with self.lock:
            channel = self._channel(channel_id)
            del self.specs[channel_id]
            gs_set_channel(self.core, self.indices.of[channel_id], NULL)
            self._set_floods()
            with nogil:
                gs_loop_forget(self.loop, channel)
            counters = _named(CHANNEL_COUNTERS, <gs_counter *>&channel.counters)
            self.closed_counters.closed(channel_id, gs_read(&channel.counter))
            gs_channel_close(channel)
            self.indices.close(channel_id, gs_table_epoch(self.core.table))
            return counters

    def release_channel(self, channel_id):
        """Send events too on a channel that was opened held; once more is no error."""
        with self.lock:
            gs_channel_hold(self._channel(channel_id), GS_SENDS_ALL)
            gs_loop_notify(self.loop)

    def hold_channel(self, channel_id, *, is_probed):
        """Send no events until `release_channel`, and probes only if asked for; the channel is
        sealed or was opened held."""
        cdef gs_channel *channel
        with self.lock:
            channel = self._channel(channel_id)
            if not channel.is_guarded:
                raise Misuse(f"channel {channel_id} cannot be held", hint="open it with is_held")
            gs_channel_hold(channel, GS_SENDS_PROBES if is_probed else GS_SENDS_NOTHING)
            gs_loop_notify(self.loop)

    cdef gs_channel *_sealed(self, channel_id) except NULL:
        cdef gs_channel *channel = self._channel(channel_id)
        if not self.specs[channel_id].is_sealed:
            raise not_sealed(channel_id)
        return channel

    def set_sending_key(self, channel_id, epoch, key, salt):
        """Seal with this key from the next datagram on."""
        cdef gs_key_spec spec
        cdef gs_sealing *sealing
        checked = checked_key(epoch, key, salt)
        with self.lock:
            self._sealed(channel_id)
            _write_key(&spec, checked)
            sealing = gs_sealing_open(self.backend, &spec)
            gs_seal_wipe(&spec, sizeof(spec))
            if sealing is NULL:
                raise _no_key(self.backend)
            gs_set_sending_key(self.core, self._sealed(channel_id), sealing)

    def clear_sending_key(self, channel_id):
        """Take the key away: the channel sends nothing until it has another."""
        with self.lock:
            gs_set_sending_key(self.core, self._sealed(channel_id), NULL)

    def sending_state(self, channel_id):
        """Return the epoch in use, the datagrams under its key, and the counters since it was
        opened."""
        cdef gs_channel *channel
        with self.lock:
            channel = self._channel(channel_id)
            gs_table_reclaim(self.core.table)
            return {
                "epoch": -1 if channel.owned_key is NULL else channel.owned_key.epoch,
                "datagrams": 0 if channel.owned_key is NULL
                             else gs_sealing_datagrams(channel.owned_key),
                "first_counter": channel.first_counter,
                "newest_counter": gs_read(&channel.counter),
            }

    def set_receiving_keys(self, channel_id, keys):
        """Accept these keys on a sealed source and no others; a key that stays keeps its
        windows."""
        cdef gs_key_spec specs[GS_ACCEPTED_KEYS_MAX]
        cdef bint is_done
        checked = checked_keys(keys)
        with self.lock:
            self._sealed_source(channel_id)
            for at, key in enumerate(checked):
                _write_key(&specs[<size_t>at], key)
            is_done = gs_set_receiving_keys(self.core, channel_id, self.backend, specs,
                                            <uint32_t>len(checked))
            gs_seal_wipe(specs, sizeof(specs))
            if not is_done or gs_core_opening(self.core, channel_id).keys.count != len(checked):
                raise _no_key(self.backend)

    def receiving_state(self, channel_id):
        """Return the epochs that were opened, and those without a key, since the last call."""
        cdef gs_epochs_seen seen
        with self.lock:
            self._sealed_source(channel_id)
            gs_table_reclaim(self.core.table)
            gs_opening_take(gs_core_opening(self.core, channel_id), &seen)
        return {
            "epochs": _epochs_in(seen.opened),
            "dropped_epochs": _epochs_in(seen.dropped),
            "unknown_epochs": _epochs_in(seen.unknown),
        }

    cdef _sealed_source(self, channel_id):
        self._need_open()
        if channel_id not in self.sources:
            raise UnknownName(f"source {channel_id} is not open")
        if not self.sources[channel_id][3]:
            raise not_sealed(channel_id)

    cdef _set_floods(self):
        flooding = [spec for _, spec in sorted(self.specs.items()) if spec.floods]
        cdef gs_flood_output *outputs
        outputs = <gs_flood_output *>gs_allocate((len(flooding) + 1) * sizeof(gs_flood_output))
        for at, spec in enumerate(flooding):
            outputs[<size_t>at].channel_index = self.indices.of[spec.channel_id]
            outputs[<size_t>at].channel_id = spec.channel_id
            outputs[<size_t>at].level = spec.level
        gs_table_set_floods(self.core.table, outputs, len(flooding))
        gs_release(outputs)

    def open_source(self, channel_id, *, is_publisher=False, back_channel=0, is_sealed=False):
        """Accept datagrams of an incoming channel; `back_channel` is the channel to its sender.

        A sealed source accepts sealed datagrams alone, any other one plain datagrams alone.
        """
        if not 0 < channel_id < 2**32 or not 0 <= back_channel < 2**32:
            raise LayoutError(f"{channel_id} or {back_channel} is not a channel id")
        with self.lock:
            self._need_open()
            if channel_id not in self.sources and len(self.sources) >= 65536:
                raise LimitReached("no room for another source")
            opened_ns = gs_loop_now_ns(self.loop)
            if not is_sealed and channel_id in self.sources:
                gs_set_receiving_keys(self.core, channel_id, self.backend, NULL, 0)
            self.sources[channel_id] = (bool(is_publisher), back_channel, opened_ns,
                                        bool(is_sealed))
            self._set_sources()

    def close_source(self, channel_id):
        """Close an incoming channel: its events count as unknown from now on."""
        with self.lock:
            self._need_open()
            if self.sources.pop(channel_id, None) is None:
                raise UnknownName(f"source {channel_id} is not open")
            self._set_sources()

    cdef _set_sources(self):
        cdef size_t at = 0
        cdef gs_source *sources
        sources = <gs_source *>gs_allocate((len(self.sources) + 1) * sizeof(gs_source))
        for channel_id, (is_publisher, back_channel, opened_ns, is_sealed) in self.sources.items():
            sources[at].channel_id = channel_id
            sources[at].is_publisher = is_publisher
            sources[at].is_sealed = is_sealed
            sources[at].back_channel = back_channel
            sources[at].opened_ns = opened_ns
            at += 1
        gs_table_set_sources(self.core.table, sources, <uint32_t>at)
        gs_release(sources)

    def source_states(self):
        """Return, by open source, when a datagram last came, the silence since, and the losses."""
        cdef gs_source_facts facts
        states = {}
        with self.lock:
            self._need_open()
            for channel_id in self.sources:
                facts = gs_core_source(self.core, channel_id)
                states[channel_id] = _named(SOURCE_FACTS, <gs_counter *>&facts)
        return states

    def commit(self, upserts=(), removals=()):
        """Apply a delta; the forwarding thread sees all of it between two batches, or nothing."""
        cdef _TableChange change
        upserts, removals = tuple(upserts), tuple(removals)
        check_delta(upserts, removals)
        with self.lock:
            self._need_open()
            check_routed(upserts, self.specs)
            change = _TableChange(upserts, removals, self.indices.of)
            check_committed(gs_table_commit(self.core.table, change.rows, change.row_count,
                                            change.removals, change.removal_count))
            epoch = gs_table_epoch(self.core.table)
            for variable_id in removals:
                self.indices.name(variable_id, (), epoch)
            for row in upserts:
                self.indices.name(row.variable_id, tuple([r.channel_id for r in row.routes]), epoch)

    def newest(self, variable_id):
        """The newest event of a variable whose row keeps it, with all its options, or None."""
        cdef uint8_t event[GS_EVENT_BYTES_MAX]
        cdef uint32_t size
        with self.lock:
            self._need_open()
            size = gs_table_newest(self.core.table, variable_id, event)
        return (<char *>event)[:size] if size else None

    def copies(self, variable_id):
        """Return the copies of a variable by incoming channel, or None if its row does not count
        them."""
        cdef gs_row_copy_facts facts
        with self.lock:
            self._need_open()
            return <dict>facts if gs_table_copies(self.core.table, variable_id, &facts) else None

    def policed(self):
        """Return the counts of policed events, as far as there was space to count them.

        By the publisher's channel and the variable: which count it is, and the events by reason.
        """
        cdef gs_policed place
        cdef uint32_t i, reason
        found = {}
        with self.lock:
            self._need_open()
            for i in range(GS_POLICED_PLACES):
                if not gs_policed_read(&self.core.policed[i], &place):
                    continue
                counts = {POLICED_REASONS[reason]: place.counts[reason]
                          for reason in range(GS_POLICED_REASONS) if place.counts[reason]}
                found[place.who >> 32, place.who & UINT32_MAX] = place.life, counts
        return found

    def rows(self):
        """Return the number of variables in the table."""
        self._need_open()
        return gs_table_rows(self.core.table)

    def retired(self):
        """Old versions of the table that the forwarding thread may still hold."""
        with self.lock:
            self._need_open()
            gs_table_reclaim(self.core.table)
            return gs_table_retired(self.core.table)

    @property
    def modes(self):
        """The active modes as they were set; the baseline (bit 0) is active beside them."""
        self._need_open()
        return self.core.modes

    def set_modes(self, mask):
        """Switch the active modes: one store, seen by the next receive call."""
        self._need_open()
        if not 0 <= mask < 2**64:
            raise LayoutError(f"modes {mask} do not fit into 64 bits")
        gs_switch_modes(self.core, mask)

    def inject(self, const uint8_t[::1] datagram, *, int port=0, uint64_t now_ns):
        """Take in one datagram as one receive call, and flush; for tests and memory channels."""
        cdef gs_arrival arrival
        cdef gs_view view
        cdef gs_now now
        if port not in (0, 1) or now_ns < 1 or datagram.shape[0] > GS_RECEIVE_BYTES:
            raise LayoutError("port is 0 or 1, now_ns at least 1, a datagram at most 65,536 bytes")
        with self.lock:
            self._need_idle()
            now.wall_ns = now.steady_ns = now_ns
            arrival.at = self.loop.buffers  # Sealed ones are opened in place.
            if datagram.shape[0]:
                memcpy(arrival.at, &datagram[0], datagram.shape[0])
            arrival.bytes = arrival.step = datagram.shape[0]
            arrival.port = port
            arrival.arrived_ns = now_ns
            view = gs_enter(self.core)
            gs_forward(self.core, &view, &arrival, now)
            gs_flush(self.core, now_ns)
            gs_attention_note(&self.core.attention, now_ns)
            gs_table_sleep(self.core.table)

    def pump(self, uint64_t now_ns):
        """Let paced channels send what their lines allow at `now_ns`, and send due probes."""
        with self.lock:
            self._need_idle()
            gs_pump(self.core, now_ns)
            gs_find_probing(self.core)
            gs_probe(self.core, now_ns, UINT32_MAX)
            gs_attention_note(&self.core.attention, now_ns)

    def take_output(self, channel_id):
        """Return what a memory channel has sent since the last call: (port, datagram) in order."""
        cdef gs_channel *channel
        cdef size_t at = 0
        cdef uint32_t port, size
        with self.lock:
            self._need_idle()
            channel = self._channel(channel_id)
            if self.specs[channel_id].address is not None:
                raise UnknownName(f"channel {channel_id} sends to an address, and keeps nothing")
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
        """Bind both ports or none (0: any free port) and return the bound ports."""
        cdef sockaddr_storage addresses[2]
        cdef uint32_t failed = 0
        cdef _Address data = _Address(host, data_port), urgent = _Address(host, urgent_port)
        addresses[0], addresses[1] = data.storage, urgent.storage
        with self.lock:
            self._need_idle()
            failure = gs_loop_listen(self.loop, addresses, data.size, &failed)
            if failure != 0:
                port = urgent_port if failed else data_port
                raise LinkDown(f"cannot listen on {host} port {port}: {os.strerror(failure)}",
                               hint=system_hint(failure,
                                                "choose another port, or 0 for any free one"))
        return gs_port_of(&addresses[0]), gs_port_of(&addresses[1])

    def start(self, *, cpu=None, fifo_priority=0):
        """Start the forwarding thread; return the reason if its scheduling was refused, else
        None."""
        with self.lock:
            self._need_idle()
            self.loop.cpu = -1 if cpu is None else cpu
            self.loop.fifo_priority = fifo_priority
            failure = gs_loop_start(self.loop)
            if failure != 0:
                raise LinkDown(f"the forwarding thread cannot start: {os.strerror(failure)}",
                               hint="raise the limit of threads or open files")
            refused = self.loop.scheduling_error
            return os.strerror(refused) if refused else None

    def stop(self):
        """End the thread after the batch in its hands; stopping twice is no error."""
        with self.lock:
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
        cdef gs_core_counters taken
        with self.lock:
            self._need_open()
            with nogil:
                taken = gs_core_counters_read(self.core)
        found = _named(CORE_COUNTERS, <gs_counter *>&taken)
        for kind in ("malformed", "unknown", "policed"):
            found[kind] = sum(n for name, n in found.items() if name.startswith(f"{kind}_"))
        return found

    def thread_counters(self):
        """Receive calls, and receive buffers that the kernel lost (each up to 64 datagrams)."""
        self._need_open()
        return _named(("kernel_dropped", "receive_calls"), &self.core.counters.kernel_dropped)

    def channel_counters(self, channel_id):
        """Counters of one open channel: due = sent + queued + `CHANNEL_DROPS`."""
        return _named(CHANNEL_COUNTERS, <gs_counter *>&self._channel(channel_id).counters)

    def latency_histogram(self):
        """Kernel receive (or queueing) to send: (upper bound in ns, copies), no empty buckets."""
        self._need_open()
        counts = [gs_read(&self.core.latency.buckets[i]) for i in range(GS_HISTOGRAM_BUCKETS)]
        return [(gs_bucket_upper_ns(<uint32_t>i), n) for i, n in enumerate(counts) if n]

    def pool_free(self):
        """Free buffers of the pool: small, large."""
        self._need_open()
        return gs_read(&self.core.pool.small.free), gs_read(&self.core.pool.large.free)
