"""Convert an ANDES run to a recording of PMUs, to be played like a simulated disturbance.

    andes run case.xlsx -r tds --tf 20
    python tools/andes_recording.py case_out.npz case_recording.npz

`gridstat.console.simulation.recording.load_recording` reads it again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gridstat.console.simulation.andes_run import read_andes
from gridstat.console.simulation.recording import save_recording
from gridstat.console.simulation.swing import NOMINAL_HZ
from gridstat.model.errors import GridStatError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, help="what ANDES wrote: .lst, .npz or .csv")
    parser.add_argument("recording", type=Path, help="the file to write, .npz")
    parser.add_argument("--nominal-hz", type=float, default=NOMINAL_HZ)
    given = parser.parse_args(arguments)
    try:
        recording = read_andes(given.run, given.nominal_hz)
    except GridStatError as error:
        print(error, file=sys.stderr)
        return 1
    save_recording(recording, given.recording)
    print(
        f"{given.recording}: {len(recording.stations)} stations, {recording.duration_s:.1f} s, "
        f"{recording.frequencies_hz.min():.3f} to {recording.frequencies_hz.max():.3f} Hz"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
