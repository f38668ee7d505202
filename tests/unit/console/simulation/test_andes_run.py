"""A run of ANDES becomes a recording; `tools/andes_fixture.py` has made the files by a real one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gridstat.console.simulation.andes_run import read_andes
from gridstat.console.simulation.recording import NOMINAL_VOLT, load_recording
from gridstat.model.errors import ConfigurationError
from tools.andes_recording import main

RUN = Path(__file__).parent / "andes_files" / "two_machines_out.npz"
TRIP_S = 1.0


def rows() -> np.ndarray:
    with np.load(RUN) as stored:
        return np.array(stored["data"])


def test_buses_are_stations_at_rest_before_the_trip_and_swinging_after_it() -> None:
    recording = read_andes(RUN)
    assert recording.stations == ("bus-1", "bus-2", "bus-3")
    assert recording.duration_s == pytest.approx(3.0)
    assert np.all(np.diff(recording.times_s) > 0)
    before = recording.times_s < TRIP_S
    assert np.allclose(recording.frequencies_hz[before], 60.0, atol=1e-3)
    assert np.ptp(recording.frequencies_hz[~before, 1]) > 0.05
    assert recording.voltages_volt[0, 0] == pytest.approx(1.02 * NOMINAL_VOLT, rel=1e-6)


def test_a_bus_turns_as_fast_as_the_machine_at_it() -> None:
    """ANDES' own speeds of the machines say what the angles of their buses must."""
    data = rows()
    recording = read_andes(RUN)
    for station, speed in ((0, 3), (1, 4)):
        is_late = recording.times_s > TRIP_S + 0.2
        machine_hz = 60.0 * np.interp(recording.times_s - 0.05, data[:, 0], data[:, speed])
        apart_hz = recording.frequencies_hz[is_late, station] - machine_hz[is_late]
        assert np.abs(apart_hz).max() < 0.25 * np.ptp(recording.frequencies_hz[:, 1])


def test_the_same_comes_out_of_an_exported_csv(tmp_path: Path) -> None:
    names = [
        line.split(",")[1].strip() for line in RUN.with_suffix(".lst").read_text().splitlines()
    ]
    exported = tmp_path / "run_out.csv"
    np.savetxt(exported, rows(), delimiter=",", header=",".join(names), comments="")
    assert np.allclose(read_andes(exported).frequencies_hz, read_andes(RUN).frequencies_hz)


def test_the_tool_writes_what_can_be_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(RUN.with_suffix(".lst")), str(tmp_path / "recording.npz")]) == 0
    assert "3 stations, 3.0 s" in capsys.readouterr().out
    played = load_recording(tmp_path / "recording.npz")
    direct = read_andes(RUN)
    assert played.phasor_at(1.7, station=1) == direct.phasor_at(1.7, station=1)
    assert -180.0 <= played.phasor_at(1.7, station=1).angle_degrees < 180.0


def test_files_that_are_something_else_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "gone.npz"), str(tmp_path / "out.npz")]) == 1
    assert "hint" in capsys.readouterr().err
    (tmp_path / "odd_out.lst").write_text("0, Time [s], Time\n1, x GENCLS 1, x\n")
    np.savez(tmp_path / "odd_out.npz", data=np.zeros((3, 2)))
    with pytest.raises(ConfigurationError, match="no bus"):
        read_andes(tmp_path / "odd_out.npz")
    np.savez(tmp_path / "odd_out.npz", data=np.zeros((3, 5)))
    with pytest.raises(ConfigurationError, match="2 names"):
        read_andes(tmp_path / "odd_out.npz")
    with pytest.raises(ConfigurationError, match="odd_out"):
        load_recording(tmp_path / "odd_out.npz")
