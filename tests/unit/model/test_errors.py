"""The error tree: stable codes, useful hints, and a picture that does not lie."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from gridstat.model import errors
from gridstat.model.error_index import all_errors, explain, thesis_codes
from gridstat.model.errors import (
    ChannelFull,
    GridStatError,
    LatencyNotSatisfiable,
    LinkDown,
    Malformed,
    Misuse,
    Refused,
    StorageFailed,
    UnknownName,
)

BRANCH_THOUSANDS = {Refused: 1, LinkDown: 2, Malformed: 3, Misuse: 4, StorageFailed: 5}

# Codes are for ever: add lines, never change one.
STABLE = {
    "GridStatError": 0,
    "Refused": 1000,
    "NotAuthorised": 1015,
    "WrongCloud": 1016,
    "NoSuchRouter": 1017,
    "NoSuchChannel": 1018,
    "EndPointExists": 1020,
    "NotAttached": 1021,
    "VariableExists": 1022,
    "NotPublished": 1023,
    "NoSuchSubscription": 1032,
    "NoSuchVariable": 1034,
    "LatencyNotSatisfiable": 1036,
    "IntervalNotSatisfiable": 1037,
    "RedundancyNotSatisfiable": 1038,
    "ChannelFull": 1039,
    "TypeMismatch": 1040,
    "RouterFull": 1043,
    "BurstTooLarge": 1044,
    "BackPressured": 1045,
    "GroupMismatch": 1054,
    "StillInUse": 1076,
    "NoCommonVersion": 1101,
    "NoCommonSchema": 1102,
    "StaleTerm": 1103,
    "ShuttingDown": 1104,
    "QuotaReached": 1105,
    "PathTooLong": 1106,
    "ModeNotDefined": 1107,
    "SecurityNotSatisfiable": 1108,
    "SkewNotSatisfiable": 1110,
    "Preempted": 1111,
    "SearchUndecided": 1112,
    "LinkDown": 2000,
    "DeadlinePassed": 2001,
    "CertificateRefused": 2015,
    "Malformed": 3000,
    "MalformedShort": 3001,
    "MalformedVersion": 3002,
    "MalformedEpoch": 3003,
    "MalformedLength": 3004,
    "MalformedOption": 3005,
    "MalformedFrame": 3010,
    "FrameTooLarge": 3011,
    "Misuse": 4000,
    "InvalidPeriod": 4001,
    "LayoutError": 4002,
    "LimitReached": 4003,
    "UnknownName": 4004,
    "WrongCall": 4005,
    "NotReadOnly": 4006,
    "ConfigurationError": 4100,
    "StorageFailed": 5001,
    "DamagedLog": 5002,
    "LogFull": 5003,
    "RecordsGone": 5004,
}


def ours() -> list[type[GridStatError]]:
    return [error for error in all_errors() if error.__module__.startswith(f"{errors.__name__}.")]


def test_codes_have_not_changed() -> None:
    assert {error.__name__: error.code for error in ours()} == STABLE


def test_codes_ascend_without_repeating() -> None:
    assert all(a.code < b.code for a, b in pairwise(ours()))


def test_a_code_lies_in_the_range_of_its_branch() -> None:
    for branch, thousands in BRANCH_THOUSANDS.items():
        for error in ours():
            if issubclass(error, branch):
                assert error.code // 1_000 == thousands, error.__name__


def test_the_picture_shows_every_class_with_its_code() -> None:
    drawn = dict(re.findall(r"[├└]── (\w+) .*?(\dxxx|\d{4})$", errors.__doc__ or "", re.MULTILINE))
    expected = {
        error.__name__: str(error.code) if error.code % 1_000 else f"{error.code // 1_000}xxx"
        for error in ours()
        if error is not GridStatError
    }
    assert drawn == expected


def test_each_malformed_reason_is_a_counter_suffix_of_its_own() -> None:
    reasons = [error.reason for error in ours() if issubclass(error, Malformed)]
    assert reasons == ["", "short", "version", "epoch", "length", "option", "frame", "frame_length"]


def test_text_has_message_code_and_hint() -> None:
    assert str(LatencyNotSatisfiable("no path below 4 ms", hint="allow 6 ms")) == (
        "no path below 4 ms (1036)\nhint: allow 6 ms"
    )


def test_a_class_lends_its_remedy_where_no_hint_was_given() -> None:
    assert ChannelFull("e0-i0 has no room").hint == ChannelFull.remedy


def test_text_without_hint_or_remedy_is_one_line() -> None:
    assert str(Misuse("no")) == "no (4000)"


@pytest.mark.parametrize("error", ours(), ids=lambda error: error.__name__)
def test_every_code_is_explained_by_name_and_first_sentence(error: type[GridStatError]) -> None:
    text = explain(error.code)
    assert text.startswith(f"{error.code} {error.__name__}: ")
    assert error.remedy in text


def test_an_explanation_names_the_branch() -> None:
    assert "a kind of: 1000 Refused" in explain(1036)


def test_a_code_of_the_thesis_is_explained_by_ours() -> None:
    assert explain(-36).startswith("-36 in the thesis: latency not satisfiable.")
    assert explain(1036) in explain(-36)
    assert thesis_codes(LatencyNotSatisfiable) == [-36]


def test_digits_of_refusals_are_those_of_the_thesis_where_it_has_one() -> None:
    for error in ours():
        if issubclass(error, Refused) and error is not Refused and (codes := thesis_codes(error)):
            assert 1_000 - error.code in codes


@pytest.mark.parametrize("code", [7, 1_001, -3, 9_999])
def test_an_unknown_code_is_an_error_that_lists_the_known(code: int) -> None:
    with pytest.raises(UnknownName, match=str(code)) as problem:
        explain(code)
    assert "1036" in problem.value.hint
