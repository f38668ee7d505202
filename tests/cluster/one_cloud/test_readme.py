"""The program in the README runs, as it stands, against a real cloud."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gridstat.net.command.address import address_text
from gridstat.net.command.identity import Role
from tests.cluster.one_cloud.cloud import WEST
from tests.tidy.source import ROOT

if TYPE_CHECKING:
    from tests.cluster.one_cloud.cloud import Cloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


def test_the_program_in_the_readme_runs_on_a_cloud(cloud: Cloud) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    names = re.findall(r'name="([^"]+)"', program)
    assert len(names) == 2
    for name in names:
        cloud.access.files_of(Role.ENDPOINT, name)
    for shown, edge in zip(re.findall(r"[\w/-]+@[\d.:]+", program), WEST, strict=True):
        program = program.replace(shown, f"{edge}@{address_text(cloud.access.edges[edge])}")
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=cloud.folder,
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
    )
    assert ran.stderr == ""
    assert ran.stdout.splitlines()[-1].startswith("2 paths, Ledger(")
