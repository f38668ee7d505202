"""The program in the README runs, as it stands, against a real cloud."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from gridstat.console.config.grid_file import default_grid_text
from tests.cluster.one_cloud.cloud import WEST
from tests.tidy.source import ROOT

if TYPE_CHECKING:
    from tests.cluster.one_cloud.cloud import Cloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


def test_the_program_in_the_readme_runs_on_a_cloud(cloud: Cloud) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert program.count('folder=".gridstat"') == 2
    shown = re.findall(r'"(c1/[\w-]+)"', program)
    cloud_shown = tomllib.loads(default_grid_text())["cloud"][0]
    assert shown == [f"{cloud_shown['name']}/{edge}" for edge in cloud_shown["pmu"][0]["edges"]]
    for written, edge in zip(shown, WEST, strict=True):
        program = program.replace(f'"{written}"', f'"{edge}"')
    ran = subprocess.run(
        [sys.executable, "-c", program.replace(".gridstat", str(cloud.folder))],
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
    )
    assert ran.stderr == ""
    assert ran.stdout == "231.4 by 2 paths\n"
