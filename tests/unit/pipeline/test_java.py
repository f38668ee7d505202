"""Choice of a Java, which pip alone can install."""

from __future__ import annotations

import subprocess
import tempfile
from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import ConfigurationError
from gridstat.pipeline import java
from gridstat.pipeline.cache_folder import cache_folder
from gridstat.pipeline.class_archive import archive_options, archive_path, make_archive
from gridstat.pipeline.java import java_home, java_version, java_without_vectors, packaged_java

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NO_PATH = "/nonexistent"


@pytest.fixture
def fake_java(tmp_path: Path) -> Callable[[str, str], Path]:
    """A `java` that says only which version it is."""

    def make(name: str, version: str) -> Path:
        program = tmp_path / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        program.chmod(0o755)
        return tmp_path / name

    return make


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("25", 25), ("1.8.0_402", 1), ("21-ea", 21)]
)
def test_a_version_is_read_from_java_s_own_words(
    fake_java: Callable[[str, str], Path], version: str, major: int
) -> None:
    assert java_version(fake_java("any", version)) == major


def test_what_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path) == 0
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("no program at all")
    program.chmod(0o755)
    assert java_version(tmp_path) == 0


def test_the_named_java_comes_before_that_on_the_path(
    fake_java: Callable[[str, str], Path], tmp_path: Path
) -> None:
    named, on_path = fake_java("named", "21"), fake_java("other", "17")
    environment = {"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}
    assert java_home(environment, tmp_path) == named
    assert java_home({"PATH": str(on_path / "bin")}, tmp_path) == on_path


def test_a_java_that_is_too_old_is_passed_over(
    fake_java: Callable[[str, str], Path], tmp_path: Path
) -> None:
    old, newer = fake_java("old", "11.0.2"), fake_java("newer", "17.0.1")
    environment = {"JAVA_HOME": str(old), "PATH": str(newer / "bin")}
    assert java_home(environment, tmp_path) == newer


def test_without_a_java_of_its_own_the_machine_gets_the_packaged_one(tmp_path: Path) -> None:
    home = java_home({"PATH": NO_PATH}, tmp_path)
    assert home == tmp_path / "java"
    assert java_version(home) >= java.JAVA_MIN


def test_the_packaged_java_starts_although_it_lacks_a_module_that_spark_asks_for(
    tmp_path: Path,
) -> None:
    packaged = packaged_java()
    assert packaged is not None
    asked = ["--add-modules=jdk.incubator.vector", "-Dword=two words", "-version"]
    bare = subprocess.run([packaged / "bin" / "java", *asked], capture_output=True, check=False)
    assert bare.returncode != 0  # Or the script is not needed any more.
    home = java_without_vectors(packaged, tmp_path)
    subprocess.run([home / "bin" / "java", *asked], capture_output=True, check=True)


def test_no_java_at_all_is_a_plain_error_with_what_to_do(
    fake_java: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "PACKAGE", "no_such_package")
    old = fake_java("old", "11")
    with pytest.raises(ConfigurationError, match="no Java of version 17 or newer") as told:
        java_home({"JAVA_HOME": str(old), "PATH": NO_PATH}, tmp_path)
    assert f"{old} has 11" in str(told.value)
    assert "pip install" in told.value.hint


def test_the_cache_is_where_the_user_wants_it(tmp_path: Path) -> None:
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path / "x")}) == tmp_path / "x" / "gridstat"
    assert cache_folder({"HOME": str(tmp_path)}) == tmp_path / ".cache" / "gridstat"
    assert (tmp_path / ".cache" / "gridstat").stat().st_mode & 0o777 == 0o700


def test_a_home_that_cannot_be_written_to_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").touch()
    found = cache_folder({"HOME": str(tmp_path / "file")})
    assert found.parent == tmp_path
    assert found.is_dir()
    assert cache_folder({}) == found


def test_a_folder_that_others_may_write_into_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refuse a folder into which others could have put programs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shared = cache_folder({})
    shared.chmod(0o777)
    fresh = cache_folder({})
    assert fresh != shared
    assert fresh.stat().st_mode & 0o777 == 0o700


def test_an_archive_is_named_by_its_java_and_used_only_if_it_was_made(
    fake_java: Callable[[str, str], Path], tmp_path: Path
) -> None:
    one = archive_path(fake_java("one", "17.0.1"), tmp_path)
    other = archive_path(fake_java("other", "17.0.2"), tmp_path)
    assert one != other
    assert archive_options(one) == ""
    one.touch()
    assert f"-XX:SharedArchiveFile={one}" in archive_options(one)


def test_an_archive_that_is_there_is_not_made_again(
    fake_java: Callable[[str, str], Path], tmp_path: Path
) -> None:
    home = fake_java("any", "17.0.1")
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").touch()
    made = archive_path(home, tmp_path)
    made.touch()
    assert make_archive(home, tmp_path) == made


def test_a_java_that_cannot_make_an_archive_says_so_at_once(
    fake_java: Callable[[str, str], Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="makes no archive of classes") as told:
        make_archive(fake_java("any", "17.0.1"), tmp_path)
    assert "nothing is lost" in told.value.hint
