"""Run ANDES on a test system of three buses and two machines, and store its output files.

    pip install andes
    python tools/andes_fixture.py tests/unit/console/simulation/andes_files

ANDES is no dependency: it is only needed to make the files of the test again.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import andes  # type: ignore[import-not-found,unused-ignore]

CASE = "two_machines"


def build() -> Any:  # noqa: ANN401 - ANDES ships no types.
    """Return a plant far from a larger one, with a load between; one of two lines opens at 1 s."""
    system = andes.System(default_config=True, name=CASE)
    for bus in (1, 2, 3):
        system.add("Bus", {"idx": bus, "name": f"bus {bus}", "Vn": 345.0})
    system.add("Slack", {"idx": 1, "bus": 1, "v0": 1.02, "Sn": 1000.0, "Vn": 345.0})
    system.add("PV", {"idx": 2, "bus": 2, "p0": 3.0, "v0": 1.01, "Sn": 400.0, "Vn": 345.0})
    system.add("PQ", {"idx": 1, "bus": 3, "p0": 6.0, "q0": 0.5, "Vn": 345.0})
    for line, (one, other, reactance) in enumerate(
        [(1, 3, 0.04), (2, 3, 0.1), (2, 3, 0.1)], start=1
    ):
        system.add(
            "Line",
            {
                "idx": f"L{line}",
                "bus1": one,
                "bus2": other,
                "x": reactance,
                "Vn1": 345.0,
                "Vn2": 345.0,
            },
        )
    for machine, rating in ((1, 1000.0), (2, 400.0)):
        system.add(
            "GENCLS",
            {
                "idx": machine,
                "bus": machine,
                "gen": machine,
                "Sn": rating,
                "Vn": 345.0,
                "M": 8.0,
                "D": 1.0,
                "xd1": 0.3,
            },
        )
    system.add("Toggle", {"idx": 1, "model": "Line", "dev": "L3", "t": 1.0})
    system.setup()
    return system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    system = build()
    system.PFlow.run()
    system.TDS.config.tf = 3.0
    system.TDS.config.tstep = 1 / 30
    system.TDS.run()
    system.files.lst = f"{CASE}_out.lst"
    system.files.npz = f"{CASE}_out.npz"
    system.dae.write_lst(system.files.lst)
    system.dae.write_npz(system.files.npz)
    print(f"{len(system.dae.ts.t)} rows, {sorted(os.listdir())}")


if __name__ == "__main__":
    main()
