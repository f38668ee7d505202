"""Blocking calls that coroutines wait for: results of cancelled calls are released."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, cast

import pytest

from gridstat.endpoint import connection_setup
from gridstat.endpoint.awaitable_call import call_in_thread
from gridstat.endpoint.connection import Connection

if TYPE_CHECKING:
    from gridstat.endpoint.cloud_link import CloudLink

WITHIN_S = 60.0


def test_a_result_that_is_awaited_is_not_given_back() -> None:
    back: list[int] = []
    assert asyncio.run(call_in_thread(lambda: 7, back.append)) == 7
    assert back == []


def test_what_comes_after_the_waiting_was_cancelled_is_given_back_once() -> None:
    begun, go_on, is_back = threading.Event(), threading.Event(), threading.Event()
    back: list[int] = []

    def call() -> int:
        begun.set()
        go_on.wait(WITHIN_S)
        return 7

    def give_back(result: int) -> None:
        back.append(result)
        is_back.set()

    async def cancel() -> None:
        waiting = asyncio.ensure_future(call_in_thread(call, give_back))
        await asyncio.to_thread(begun.wait, WITHIN_S)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert back == []
        go_on.set()
        assert await asyncio.to_thread(is_back.wait, WITHIN_S)

    asyncio.run(cancel())
    assert back == [7]


def test_an_error_of_the_call_is_raised_and_nothing_given_back() -> None:
    back: list[float] = []
    with pytest.raises(ZeroDivisionError):
        asyncio.run(call_in_thread(lambda: 1 / 0, back.append))
    assert back == []


def test_a_connection_that_nobody_awaits_any_more_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on, is_closed = threading.Event(), threading.Event(), threading.Event()

    class Link:
        name = "c1/a"

        def close(self, *, keep: bool = False) -> None:
            assert not keep
            is_closed.set()

    def connect(*_: object) -> Connection:
        begun.set()
        go_on.wait(WITHIN_S)
        return Connection(cast("CloudLink", Link()))

    async def cancel() -> None:
        waiting = asyncio.ensure_future(connection_setup.connect_async("c1/e0@127.0.0.1:1", "c1/a"))
        await asyncio.to_thread(begun.wait, WITHIN_S)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        go_on.set()
        assert await asyncio.to_thread(is_closed.wait, WITHIN_S)

    monkeypatch.setattr(connection_setup, "connect", connect)
    asyncio.run(cancel())
