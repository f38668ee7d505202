"""Files of a running grid belong to its user alone, however permissive the caller's umask is."""

from __future__ import annotations

import signal
import stat
from typing import TYPE_CHECKING

import pytest

from tests.cluster.command import GRIDSTAT, Command
from tests.cluster.eventually import eventually
from tests.cluster.whole_cloud.test_up import SMALL, WITHIN_S

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
PERMISSIVE = 'umask 000; exec "$0" "$@"'


def modes_of_others(folder: Path) -> dict[str, str]:
    """Files and folders that anybody but their owner may use, with their modes."""
    return {
        str(path.relative_to(folder.parent)): oct(stat.S_IMODE(path.stat().st_mode))
        for path in (folder, *folder.rglob("*"))
        if stat.S_IMODE(path.stat().st_mode) & 0o077
    }


def permissive(folder: Path, *words: str | Path) -> Command:
    """Run a command of gridstat with a umask of 0."""
    return Command(folder, "/bin/sh", "-c", PERMISSIVE, GRIDSTAT, *words)


def test_keys_journal_and_log_are_of_their_user_alone_under_a_permissive_umask(
    tmp_path: Path,
) -> None:
    file, cloud, log, outputs = (tmp_path / name for name in ("small.toml", "cloud", "log", "out"))
    file.write_text(SMALL)
    outputs.mkdir()
    words = ("up", file, "--folder", cloud, "--json", "--without-pipeline")
    with permissive(tmp_path, *words) as command:
        eventually(lambda: command.complaint_without("running"), within_s=WITHIN_S)
        record = ("recorder", "c1/**", "--folder", cloud, "--into", log, "--json")
        with permissive(outputs, *record) as recorder:
            eventually(lambda: recorder.complaint_without("ready"), within_s=WITHIN_S)
            eventually(lambda: None if (log / "status.json").exists() else "no status yet")
            assert recorder.end(signal.SIGTERM) == 0
        assert {path.suffix for path in cloud.rglob("*")} >= {".key", ".pem", ".sqlite", ".toml"}
        assert list(log.rglob("*"))
        assert modes_of_others(cloud) == {}
        assert modes_of_others(log) == {}
        assert command.end(signal.SIGINT) == 0


def test_new_certificates_are_of_their_user_alone_under_a_permissive_umask(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    for words in (("init",), ("issue", "broker/c1")):
        with permissive(tmp_path, "certificates", *words, "--folder", folder) as command:
            assert command.exit_code() == 0, command.errors
    assert len(list(folder.iterdir())) == 4
    assert modes_of_others(folder) == {}
