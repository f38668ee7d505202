"""Count the instructions that the core spends on an event, which no other process can disturb.

Needs `valgrind` (Debian: valgrind). `gridstat experiment run forwarding` measures speeds; on a
shared machine they show less clearly than this whether a change has made the event path longer.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "benchmarks" / "micro" / "forwarded_events.c"
KINDS = ("plain", "inner", "newest", "routes", "alerts", "flooded")
SEALED_KINDS = ("opened", "sealed")
"""A sealed source and a plain channel, and the reverse; the flush that seals is counted too."""
PACKED = (1, 12)
EVENTS = 24_000
FLAGS = ("-std=gnu11", "-pthread", "-O2")  # As setup.py compiles the core.


def main() -> int:
    """Print a line for each kind of row, beside another checkout's if one is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="the checkout to compare with")
    against: Path | None = parser.parse_args().against
    if shutil.which("valgrind") is None:
        sys.stderr.write("valgrind is missing: apt-get install valgrind\n")
        return 2
    if against is not None and not core_of(against).is_dir():
        sys.stderr.write(f"{against} holds no {core_of(Path())}: name a checkout of gridstat\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="gridstat-instructions-") as folder:
        ours = compiled(ROOT, Path(folder) / "ours")
        theirs = compiled(against, Path(folder) / "theirs") if against else None
        for kind in KINDS:
            for packed in PACKED:
                print(line(kind, packed, ours, theirs))
        for kind in SEALED_KINDS:
            for packed in PACKED:
                print(line(kind, packed, ours, theirs if has_seals(against) else None))
    return 0


def has_seals(checkout: Path | None) -> bool:
    """Return whether the checkout's core can seal channels; older ones cannot."""
    return checkout is not None and (core_of(checkout) / "channel_keys.h").exists()


def core_of(checkout: Path) -> Path:
    return checkout / "gridstat" / "core"


def compiled(checkout: Path, program: Path) -> Path:
    core = core_of(checkout)
    sources = sorted(core.glob("*.c"))
    files = map(str, (program, PROGRAM, *sources))
    command = [os.environ.get("CC", "cc"), *FLAGS, f"-I{core}", "-o", *files]
    subprocess.run(command, check=True)
    return program


def line(kind: str, packed: int, ours: Path, theirs: Path | None) -> str:
    now = instructions(ours, kind, packed)
    head = f"{kind:8} {packed:3} a datagram {now:8.1f} an event"
    if theirs is None:
        return head
    before = instructions(theirs, kind, packed)
    return f"{head}, {now / before:.3f} of {before:.1f}"


def instructions(program: Path, kind: str, packed: int) -> float:
    """Return the instructions inside `gs_forward`, per event, and of sealed channels in
    `gs_flush`."""
    command = ["valgrind", "--tool=callgrind", "--toggle-collect=gs_forward"]
    if kind in SEALED_KINDS:
        command.append("--toggle-collect=gs_flush")
    command += ["--callgrind-out-file=/dev/null", str(program), kind, str(packed)]
    command.append(str(EVENTS // packed))
    output = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    found = re.search(r"Collected : (\d+)", output)
    assert found is not None, output
    return int(found[1]) / EVENTS


if __name__ == "__main__":
    sys.exit(main())
