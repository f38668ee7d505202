"""A core and the ends that have no memory for a key say so, and go on when there is some."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

from gridstat.core.key_settings import no_seal_key
from gridstat.core.rows import system_hint
from gridstat.model.errors import LimitReached

NO_MEMORY = """
import ctypes, os
from ctypes import CFUNCTYPE, c_char_p, c_int, c_size_t, c_void_p

libc, crypto, is_empty = ctypes.CDLL(None), ctypes.CDLL("libcrypto.so.3"), False
for of in (libc.malloc, libc.realloc):
    of.restype = c_void_p
libc.malloc.argtypes = [c_size_t]
libc.realloc.argtypes = [c_void_p, c_size_t]
libc.free.argtypes = [c_void_p]

@CFUNCTYPE(c_void_p, c_size_t, c_char_p, c_int)
def allocate(size, *_):
    return None if is_empty else libc.malloc(size)

@CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_char_p, c_int)
def enlarge(memory, size, *_):
    return None if is_empty else libc.realloc(memory, size)

@CFUNCTYPE(None, c_void_p, c_char_p, c_int)
def release(memory, *_):
    libc.free(memory)

assert crypto.CRYPTO_set_mem_functions(allocate, enlarge, release) == 1

from gridstat.core._core import Core, SealKey
from gridstat.core._ends import Receiver, Sender
from gridstat.core.rows import ChannelSpec
from gridstat.model.errors import LimitReached

core = Core(seal_backend="evp")
core.open_channel(ChannelSpec(1, datagram_version=3, is_sealed=True))
core.open_source(2, is_sealed=True)
sender = Sender(1, ("127.0.0.1", 9, 9), datagram_version=3, is_sealed=True, seal_backend="evp")
receiver = Receiver(seal_backend="evp")
receiver.open_source(2, is_sealed=True)
KEY = (5, bytes(16), bytes(4))
calls = (
    lambda: SealKey(KEY[1], KEY[2], "evp"),
    lambda: core.set_sending_key(1, *KEY),
    lambda: core.set_receiving_keys(2, [KEY]),
    lambda: sender.set_key(*KEY),
    lambda: receiver.set_keys(2, [KEY]),
)
for first in (calls[0], calls[3]):  # The library is looked for by the first key of each module.
    first()
for call in calls:
    is_empty = True
    try:
        call()
    except LimitReached as refusal:
        print(refusal.args[0])
    finally:
        is_empty = False
    call()
print(core.sending_state(1)["epoch"], sender.sending_state()["epoch"], flush=True)
os._exit(0)  # OpenSSL releases memory after Python has ended.
"""


def test_a_key_without_memory_is_refused_in_true_words_and_set_later() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_MEMORY], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    *refused, then = done.stdout.splitlines()
    assert refused == 5 * ["no memory for a key of OpenSSL libcrypto"]
    assert then == "5 5"


@pytest.mark.parametrize(
    ("backend", "words"),
    [("", "no such library"), ("OpenSSL libcrypto", "no memory for a key")],
)
def test_a_missing_library_and_missing_memory_are_told_apart(backend: str, words: str) -> None:
    refusal = no_seal_key(backend)
    assert isinstance(refusal, LimitReached)
    assert words in str(refusal.args[0])
    assert ("install" in refusal.hint) == (not backend)


@pytest.mark.parametrize(
    ("failure", "word"),
    [
        (errno.ENOMEM, "memory"),
        (errno.ENOBUFS, "memory"),
        (errno.EMFILE, "ulimit"),
        (errno.EINVAL, "check its address"),
    ],
)
def test_the_hint_of_a_socket_is_for_what_the_system_lacks(failure: int, word: str) -> None:
    assert word in system_hint(failure, "check its address")
