"""Check the metrics of a running cloud with Prometheus' own checker.

Needs `promtool` (Debian: prometheus). `make test` checks the same text with the Python parser.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from pathlib import Path


def main() -> int:
    """Return 0 if the broker's and every router's metrics pass."""
    promtool = shutil.which("promtool")
    if promtool is None:
        sys.stderr.write("promtool is missing: apt-get install prometheus\n")
        return 2
    failed = []
    with tempfile.TemporaryDirectory(prefix="gridstat-metrics-") as folder:
        command = [sys.executable, "-m", "gridstat", "up", "--json", "--folder", folder]
        command.append("--without-pipeline")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as grid:
            try:
                _await_ledgers(grid)
                for path in sorted(Path(folder).glob("*.toml")):
                    port = tomllib.loads(path.read_text()).get("metrics_port")
                    if port is not None and not _passes(promtool, path.stem, port):
                        failed.append(path.stem)
            finally:
                grid.send_signal(signal.SIGINT)
                grid.communicate()
    return 1 if failed else 0


def _await_ledgers(grid: subprocess.Popen[str]) -> None:
    assert grid.stdout is not None
    for line in grid.stdout:
        survey = json.loads(line).get("survey")
        ledgers = [each["ledger"] for each in survey["subscriptions"]] if survey else []
        if any(path["is_counted"] for ledger in ledgers if ledger for path in ledger["paths"]):
            return
    raise SystemExit("the cloud ended before it had any ledger")


def _passes(promtool: str, name: str, port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read()
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, check=False
    )
    lines = text.count(b"\n")
    verdict = "passed" if checked.returncode == 0 else "FAILED"
    sys.stdout.write(f"{name}: {lines} lines, promtool check metrics {verdict}\n")
    sys.stdout.write((checked.stdout + checked.stderr).decode())
    return checked.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
