"""Two alarms are never taken for one, and one never for two."""

from __future__ import annotations

from gridstat.model.alarms.alarm_identity import SEQUENCES, distinct_sequences, sequence_of

ONSET_NS = 1_700_000_000_000_000_000


def test_a_number_is_the_same_on_every_machine() -> None:
    assert sequence_of("under-frequency", "c1/hill/pmu-1/frequency") == 8_458


def test_alarms_of_one_instant_have_different_numbers_in_any_order() -> None:
    names = [f"c1/{hex(number * number)}/frequency" for number in range(3_000)]
    assert len({sequence_of("low", name) for name in names}) < len(names)
    alarms = [(ONSET_NS, "low", name) for name in names]
    numbers = distinct_sequences(alarms)
    assert len(set(numbers.values())) == len(names)
    assert all(0 <= number < SEQUENCES for number in numbers.values())
    assert distinct_sequences(reversed(alarms)) == numbers


def test_alarms_of_different_instants_keep_their_number() -> None:
    numbers = distinct_sequences([(ONSET_NS, "low", "a"), (ONSET_NS + 1, "low", "a")])
    assert set(numbers.values()) == {sequence_of("low", "a")}
