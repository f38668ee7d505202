# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=False
"""The interface between Python and the C sender and receiver of an end-point.

The receiving thread never takes Python's lock; Python copies whole batches out of its ring.
"""

import time
import weakref

cimport cython
import numpy as np
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_Check
from cpython.number cimport PyIndex_Check

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from gridstat.core.ends cimport *
from gridstat.core.counter_names import RECEIVER_COUNTERS as _RECEIVED, SENDER_COUNTERS as _SENT
from gridstat.core.counter_names import SOURCE_FACTS as _SOURCE_FACTS
from gridstat.core.end_settings import PORT_MAX as _PORT_MAX, VARIABLES_MAX as _VARIABLES_MAX
from gridstat.core.end_settings import ReceiverSpec as _ReceiverSpec, bounded as _bounded
from gridstat.core.end_settings import check_opened as _check_opened, column as _column
from gridstat.core.key_settings import checked_key as _checked_key, checked_keys as _checked_keys
from gridstat.core.key_settings import no_seal_key as _no_seal_key, not_sealed as _not_sealed
from gridstat.model.rate_law import EVERY_MAX as _EVERY_MAX
from gridstat.model.errors import LayoutError, LimitReached, LinkDown, Misuse, UnknownName
from gridstat.core.samples import SAMPLE as _SAMPLE, Sample as _Sample

cdef int WAIT_MS_MAX = 100  # Python looks at its signals at least so often.
cdef dict KEEPS = {"ring": GS_KEEP_RING, "newest": GS_KEEP_NEWEST, "count": GS_KEEP_COUNT}


cdef dict BACKENDS = {"evp": GS_SEAL_EVP, "ipsec-mb": GS_SEAL_IPSEC_MB, "best": GS_SEAL_BEST}


cdef gs_seal_backend _backend(name) except *:
    if name not in BACKENDS:
        raise UnknownName(f"there is no backend {name!r}", hint="evp, ipsec-mb or best")
    return <gs_seal_backend><int>BACKENDS[name]


cdef _no_key(gs_seal_backend backend):
    if backend == GS_SEAL_BEST:
        backend = gs_seal_best()
    return _no_seal_key(gs_seal_backend_name(backend).decode())


cdef _write_key(gs_key_spec *spec, tuple checked):
    cdef bytes key = checked[1], salt = checked[2]
    spec.epoch = checked[0]
    memcpy(spec.key, <const char *>key, 16)
    memcpy(spec.salt, <const char *>salt, 4)


cdef tuple _epochs_in(const uint64_t *words):
    return tuple([epoch for epoch in range(256) if words[<size_t>epoch // 64] >> (epoch % 64) & 1])


cdef dict _named(tuple names, const uint64_t *at):
    return {name: gs_read(&at[i]) for i, name in enumerate(names)}


@cython.final
cdef class Sender:
    """Sends events into one channel; every event counts once in sent, send_failed, would_block or
    no_key.

    One call at a time: a second thread waits for its turn.
    """

    cdef gs_sender *sender
    cdef bint is_closed
    cdef readonly bint is_sealed
    cdef gs_seal_backend backend
    cdef uint64_t first_counter

    def __cinit__(self, channel_id, address, *, mtu_bytes=1232, variables_max=131072, posix=False,
                  datagram_version=1, counter_start=0, is_sealed=False, seal_backend="best"):
        cdef gs_sender_options options
        cdef gs_end_status status
        self.backend, self.is_sealed = _backend(seal_backend), is_sealed
        if self.is_sealed != (datagram_version == GS_VERSION_SEALED):
            raise LayoutError(f"datagrams of version {datagram_version} and is_sealed={is_sealed}",
                              hint=f"version {GS_VERSION_SEALED} is the sealed one, no other is")
        options.channel_id = _bounded("channel_id", channel_id, 0, 2**32 - 1)
        name = self._address(address, options.ports)
        options.host = name
        options.version = _bounded("datagram_version", datagram_version, 1, GS_VERSIONS_MAX)
        options.counter_start = _bounded("counter_start", counter_start, 0, 2**64 - 2)
        self.first_counter = options.counter_start + 1
        options.mtu_bytes = _bounded("mtu_bytes", mtu_bytes, 56 if is_sealed else 40, 65000)
        options.variables_max = _bounded("variables_max", variables_max, 1, _VARIABLES_MAX)
        options.is_posix = posix
        with nogil:
            status = gs_sender_open(&options, &self.sender)
        _check_opened(status, "cannot send to {} ports {} and {}".format(*address))

    cdef bytes _address(self, address, uint16_t *ports):
        host, data_port, urgent_port = address
        ports[0] = _bounded("data_port", data_port, 1, _PORT_MAX)
        ports[1] = _bounded("urgent_port", urgent_port, 1, _PORT_MAX)
        return host.encode()

    def __dealloc__(self):
        if self.sender != NULL:
            gs_sender_close(self.sender)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, variable_id, value, *, created_ns=None, flags=0, urgent=False, sequence=None):
        """Send one event in a datagram of its own, at once; False when the kernel has no room, or
        a sealed channel no key.

        Bytes are a record of 1 to 6,128, as `ValueCodec.encode` makes them; a `sequence` makes it,
        with its stamp, an event that may be sent again and is known for the same."""
        cdef gs_outgoing event
        cdef Py_buffer record
        cdef uint64_t word
        cdef double number
        event.variable_id = _bounded("variable_id", variable_id, 0, 2**32 - 1)
        event.flags = _bounded("flags", flags, 0, 63)
        event.is_urgent, event.has_sequence = urgent, sequence is not None
        event.sequence = _bounded("sequence", sequence or 0, 0, 65535)
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
        event.created_ns = _bounded("created_ns", created_ns or 0, 0, 2**64 - 1)
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

    def probe(self):
        """Send a datagram without events as a sign of life; False when the kernel did not take it.

        Version 1 knows no such datagrams.
        """
        cdef gs_send_status status
        if gs_sender_version(self.sender) < GS_VERSION_PROBES:
            raise Misuse("datagrams of version 1 cannot be probes",
                         hint="open the sender with datagram_version=2")
        self._enter()
        status = gs_sender_probe(self.sender)
        gs_sender_unlock(self.sender)
        return status == GS_SEND_DONE

    def set_key(self, epoch, key, salt):
        """Seal with this key from the next datagram on; a `send_many` under way takes it soon."""
        cdef gs_key_spec spec
        cdef gs_sealing *sealing
        checked = _checked_key(epoch, key, salt)
        self._need_sealed()
        self._need_open()
        _write_key(&spec, checked)
        sealing = gs_sealing_open(self.backend, &spec)
        gs_seal_wipe(&spec, sizeof(spec))
        if sealing is NULL:
            raise _no_key(self.backend)
        gs_sender_set_key(self.sender, sealing)  # With Python's lock: one call at a time.

    def clear_key(self):
        """Take the key away: nothing is sent until there is another."""
        self._need_sealed()
        self._need_open()
        gs_sender_set_key(self.sender, NULL)

    def sending_state(self):
        """Return the epoch in use, the datagrams under its key, and the counter of the last
        datagram."""
        cdef const gs_sealing *sealing
        self._need_open()
        sealing = gs_sender_key(self.sender)
        epoch, datagrams = -1, 0
        if sealing != NULL:
            epoch, datagrams = sealing.epoch, gs_sealing_datagrams(sealing)
        return {"epoch": epoch, "datagrams": datagrams, "first_counter": self.first_counter,
                "newest_counter": gs_sender_counter(self.sender)}

    cdef _need_sealed(self):
        if not self.is_sealed:
            raise Misuse("this sender does not seal", hint="open it with is_sealed=True")

    def retarget(self, address):
        """Send to another address from now on; counters and sequences go on as they were.

        When it cannot be reached, all stays as it was.
        """
        cdef uint16_t ports[2]
        cdef gs_end_status status
        name = self._address(address, ports)
        cdef const char *host = name
        self._enter()
        with nogil:
            status = gs_sender_retarget(self.sender, host, ports)
            gs_sender_unlock(self.sender)
        _check_opened(status, "cannot send to {} ports {} and {}".format(*address))

    def restart_sequences(self):
        """Number the events of every variable from 0 again; counters, key and address go on."""
        self._enter()
        gs_sender_restart_sequences(self.sender)
        gs_sender_unlock(self.sender)

    cdef gs_send_status _judge(self, gs_send_status status) except *:
        if status == GS_SEND_TOO_MANY_VARIABLES:
            raise LimitReached("this sender has sent too many different variables",
                               hint="open it with a larger variables_max")
        return status

    cdef _need_open(self):
        if gs_sender_is_foreign(self.sender):
            raise Misuse("a sender cannot be used in a forked child",
                         hint="open the sender after the fork")
        if self.is_closed:
            raise Misuse("the sender is closed", hint="open a new one")

    cdef _enter(self):
        cdef bint is_mine
        if gs_sender_is_foreign(self.sender):
            self._need_open()
        if not gs_sender_try_lock(self.sender):
            with nogil:
                is_mine = gs_sender_lock(self.sender)
            if not is_mine:
                raise Misuse("a signal handler cannot send in the middle of the same send_many",
                             hint="use another sender there")
        if self.is_closed:
            gs_sender_unlock(self.sender)
            self._need_open()

    def fileno(self):
        """The data socket, for options that gridstat does not set."""
        return gs_sender_socket(self.sender, 0)

    @property
    def mtu_bytes(self):
        """Largest datagram; smaller than requested where the path's MTU proved smaller."""
        return gs_sender_mtu_bytes(self.sender)

    @property
    def counter(self):
        """Counter of the last datagram; a successor on the same channel takes it as
        `counter_start`."""
        return gs_sender_counter(self.sender)

    def counters(self):
        """All counters: events = sent + send_failed + would_block + no_key."""
        return _named(_SENT, <const uint64_t *>gs_sender_counted(self.sender))

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
    """Owner of the C receiver, separate from `Receiver`, so that it can be stopped after that is
    freed."""

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

    in = malformed + policed_source + unknown + duplicate + too_old + policed_jump + delivered +
    ring_full; datagrams of sealed sources that are not authentic count in `sealed_...` alone.
    """

    cdef object __weakref__
    cdef _Listening listening
    cdef gs_receiver *receiver
    cdef gs_keep keep
    cdef gs_seal_backend backend
    cdef bint is_closed
    cdef int waiting        # Threads inside `read`
    cdef readonly tuple ports

    def __cinit__(self, **settings):
        cdef gs_receiver_options options
        cdef gs_end_status status
        spec = _ReceiverSpec(**settings)
        self.backend = _backend(spec.seal_backend)
        name = spec.host.encode()
        self.listening = _Listening()
        options.host = name
        options.ports[0], options.ports[1] = spec.data_port, spec.urgent_port
        options.keep = self.keep = KEEPS[spec.keep]
        options.ring_events = spec.ring_events
        options.option_bytes = spec.option_bytes
        options.variables_max = spec.variables_max
        options.ring_expiry_ns = spec.ring_expiry_ns
        options.accepts_unknown = spec.accept_unknown
        options.only_sources = spec.only_sources
        options.is_posix = spec.posix
        options.page = self._hold_page(spec.page)
        with nogil:
            status = gs_receiver_open(&options, &self.listening.receiver)
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

    def expect(self, variable_id, period, phase_ns=0, *, every=1, deadline_ns=0):
        """Take this variable, the first copy of each event; period None means aperiodic.

        Once more for a known one: other terms are counted from nothing, and only another period or
        phase forgets which copies have come.
        """
        self._need_open()
        cdef uint32_t number = _bounded("variable_id", variable_id, 0, 2**32 - 1)
        cdef gs_law law = gs_law_make(
            0 if period is None else period.seconds,
            0 if period is None else period.per_seconds,
            _bounded("phase_ns", phase_ns, 0, 2**64 - 1),
            _bounded("every", every, 1, _EVERY_MAX),
            _bounded("deadline_ns", deadline_ns, 0, 2**63),
        )
        if not gs_receiver_expect(self.receiver, number, &law):
            raise LimitReached("this receiver expects too many variables",
                               hint="open it with a larger variables_max, or forget some")

    def forget(self, variable_id):
        """Stop accepting this variable; its events are unknown from now on."""
        self._need_open()
        # With Python's lock, which the thread we may wait for, a receive call long, never takes.
        if not gs_receiver_forget(self.receiver,
                                  _bounded("variable_id", variable_id, 0, 2**32 - 1)):
            raise UnknownName(f"variable {variable_id} is not expected")

    def variable_counters(self, variable_id):
        """Return the counts of an expected variable since its terms last changed."""
        cdef gs_ledger_facts states
        self._need_open()
        if self.keep == GS_KEEP_COUNT:
            raise Misuse("this receiver keeps nothing but sums", hint="open it with keep='newest'")
        if not gs_receiver_ledger(self.receiver, variable_id, &states):
            raise UnknownName(f"variable {variable_id} is not expected")
        count = min(gs_receiver_source_count(self.receiver), GS_COPY_SOURCES)
        facts = <dict>states
        facts["copies"] = facts["copies"][:count]
        return facts

    def open_source(self, channel_id, is_sealed=False):
        """Watch an incoming channel: when datagrams came, and losses.

        A sealed one accepts sealed datagrams alone, of any host, by the keys that are set.
        """
        self._need_open()
        if not gs_receiver_open_source(self.receiver,
                                       _bounded("channel_id", channel_id, 1, 2**32 - 1),
                                       is_sealed):
            raise LimitReached(f"a receiver watches at most {GS_RECEIVER_SOURCES} channels",
                               hint="close a source first")
        if gs_receiver_is_sealed(self.receiver, channel_id) != bool(is_sealed):
            raise Misuse(f"source {channel_id} is open with is_sealed={not is_sealed}",
                         hint="close it first")

    def close_source(self, channel_id):
        """Stop watching the channel; its events are still accepted."""
        self._need_open()
        if not gs_receiver_close_source(self.receiver,
                                        _bounded("channel_id", channel_id, 1, 2**32 - 1)):
            raise UnknownName(f"source {channel_id} is not open")

    def set_keys(self, channel_id, keys):
        """Accept these keys on a sealed source and no others; a key that stays keeps its
        windows."""
        cdef gs_key_spec specs[GS_ACCEPTED_KEYS_MAX]
        cdef uint32_t number = _bounded("channel_id", channel_id, 1, 2**32 - 1)
        cdef bint is_done
        checked = _checked_keys(keys)
        self._need_open()
        if not gs_receiver_is_sealed(self.receiver, number):
            raise _not_sealed(channel_id)
        for at, key in enumerate(checked):
            _write_key(&specs[<size_t>at], key)
        # With Python's lock, as in `forget`.
        is_done = gs_receiver_set_keys(self.receiver, number, self.backend, specs,
                                       <uint32_t>len(checked))
        gs_seal_wipe(specs, sizeof(specs))
        if not is_done:
            raise _no_key(self.backend)

    def receiving_state(self, channel_id):
        """Return the epochs that were opened on a sealed source, and those without a key, since the
        last call."""
        cdef gs_epochs_seen seen
        self._need_open()
        if not gs_receiver_keys(self.receiver, _bounded("channel_id", channel_id, 1, 2**32 - 1),
                                &seen):
            raise _not_sealed(channel_id)
        return {
            "epochs": _epochs_in(seen.opened),
            "dropped_epochs": _epochs_in(seen.dropped),
            "unknown_epochs": _epochs_in(seen.unknown),
        }

    def source_states(self):
        """Return, by open source, when a datagram last came, the silence since, and the losses."""
        cdef gs_source_facts facts
        self._need_open()
        states = {}
        for place in range(gs_receiver_source_count(self.receiver)):
            channel_id = gs_receiver_source(self.receiver, place, &facts)
            if channel_id:
                states[channel_id] = _named(_SOURCE_FACTS, <const uint64_t *>&facts)
        return states

    def start(self):
        """Start receiving; starting twice is no error."""
        self._need_open()
        _check_opened(gs_receiver_start(self.receiver), "the receiving thread cannot start")

    def stop(self):
        """Stop receiving after the present batch; what was received can still be read."""
        self.listening.stop()

    def close(self):
        """Stop, and close both ports and the page; closing twice is no error."""
        if self.is_closed:
            return
        self.is_closed = True
        self.listening.stop()  # Also wakes a reader that waits in `read`.
        while self.waiting and not gs_receiver_is_foreign(self.receiver):
            time.sleep(0.001)
        gs_receiver_shut(self.receiver)
        if self.listening.has_page:
            self.listening.has_page = False
            PyBuffer_Release(&self.listening.page)

    @property
    def is_running(self):
        """True if the thread runs."""
        return gs_receiver_is_running(self.receiver) and not gs_receiver_is_foreign(self.receiver)

    def fileno(self):
        """Readable while events wait; reading until a batch is empty makes it unreadable again."""
        return gs_receiver_wake_fd(self.receiver)

    def read(self, events_max=65536, timeout_s=0):
        """Return the waiting events, oldest first; if there are none, wait for some until the
        timeout.

        An empty batch after the timeout (None: no timeout), or once the receiver is stopped.
        """
        cdef uint64_t count = self._await(events_max, timeout_s)
        return self._take(count, NULL)

    def read_with_options(self, events_max=65536, timeout_s=0):
        """Return the same as `read`, with the option bytes of all these events one after the
        other."""
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
        """All counters.

        `kernel_dropped` counts messages of the kernel that found the socket's buffer full; each may
        be up to 64 datagrams that it had joined. `newest_full` counts events of unknown variables
        that were delivered, but found no place for the newest value.
        """
        found = {name: gs_receiver_count(self.receiver, i) for i, name in enumerate(_RECEIVED)}
        found["kernel_dropped"] = gs_receiver_kernel_dropped(self.receiver)
        return found

    def latency_histogram(self):
        """Latencies from creation to reception, for events with good time, as (upper bound in ns,
        events)."""
        counts = [gs_receiver_latency(self.receiver, i) for i in range(GS_HISTOGRAM_BUCKETS)]
        return [(gs_bucket_upper_ns(<uint32_t>i), n) for i, n in enumerate(counts) if n]

    @property
    def receive_buffer_bytes(self):
        """Receive buffer that the system granted for the data port."""
        return gs_receiver_buffer_bytes(self.receiver)

    def thread_cpu_ns(self):
        """Processor time that the receiving thread has used."""
        if gs_receiver_is_foreign(self.receiver):
            self._need_open()
        return gs_receiver_cpu_ns(self.receiver)
