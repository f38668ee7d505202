"""Layers of imports: folder order is layer order, siblings meet by messages, nothing cycles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.tidy.imports import cycle_in, import_graph, imports_of, module_name
from tests.tidy.source import ROOT, assert_none, code_files, lines_of, write_sample

if TYPE_CHECKING:
    from pathlib import Path

MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "net": {"model"},
    "core": {"model"},
    "router": {"model", "net", "core"},
    "broker": {"model", "net"},
    "endpoint": {"model", "net", "core"},
    "monitor": {"model", "net"},
    "overlay": {"model", "net"},
    "record": {"model"},
    "pipeline": {"model", "record"},
}
COMPOSES_EVERYTHING = "console"

BROKER_ROOMS = (
    "capacity",
    "records",
    "tables",
    "effects",
    "routers",
    "requests",
    "segments",
    "operators",
    "tree",
)
"""Each may import those before it; what lies outside the rooms composes them.

A further folder is that of a capability, which may import all rooms, and no other capability.
"""

COMPOSERS = {"gridstat/broker/leaf_broker.py", "gridstat/broker/tree/components.py"}
"""Files that list the capabilities of a kind of broker: the only ones that import their folders."""

REGISTRATIONS = {"gridstat.broker.leaf_capability", "gridstat.broker.tree.tree_capability"}
"""Modules of which the folder of a capability imports one, to register what it brings."""

ONLY_UNDER: dict[str, str] = {
    "benchmarks": "gridstat/console/cli/",
    "fastapi": "gridstat/console/web/",
    "lab": "gridstat/console/cli/",
    "psycopg": "gridstat/broker/records/",
    "pydantic": "gridstat/console/",
    "pydantic_settings": "gridstat/console/",
    "pyspark": "gridstat/pipeline/",
    "rich": "gridstat/console/",
    "starlette": "gridstat/console/web/",
    "tests": "nowhere",
    "typer": "gridstat/console/",
    "uvicorn": "gridstat/console/web/",
}
"""Outside packages that belong to one corner of ours."""

IMPURE = {"asyncio", "multiprocessing", "os", "select", "socket", "subprocess", "threading", "time"}
"""Modules that a pure model must not import."""


def layer_violations(root: Path) -> list[str]:
    known = {*MAY_IMPORT, COMPOSES_EVERYTHING}
    return [
        f"{path.relative_to(root)} imports gridstat.{target}"
        for path in _package_files(root)
        if (package := path.relative_to(root / "gridstat").parts[0]) in MAY_IMPORT
        for target in sorted(_own_packages(path))
        if target in known - MAY_IMPORT[package] - {package}
    ]


def unknown_packages(root: Path) -> list[str]:
    known = {*MAY_IMPORT, COMPOSES_EVERYTHING}
    folders = {path.relative_to(root / "gridstat").parts[0] for path in _package_files(root)}
    return sorted(name for name in folders - known if not name.endswith((".py", ".pyi")))


def room_violations(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)} imports gridstat.broker.{target}"
        for path, room in _files_in_rooms(root)
        if room in BROKER_ROOMS and str(path.relative_to(root)) not in COMPOSERS
        for target in sorted(_rooms_of(path))
        if target in BROKER_ROOMS[BROKER_ROOMS.index(room) + 1 :]
    ]


def capability_folders(root: Path) -> set[str]:
    """Folders beyond the rooms of the broker that register a capability."""
    return {
        room
        for path, room in _files_in_rooms(root)
        if room not in BROKER_ROOMS
        and any(found.target.startswith(tuple(REGISTRATIONS)) for found in imports_of(path))
    }


def unknown_rooms(root: Path) -> list[str]:
    folders = {room for _, room in _files_in_rooms(root)}
    return sorted(folders - set(BROKER_ROOMS) - capability_folders(root))


def importers_of_capabilities(root: Path) -> list[str]:
    """Files outside the folder of a capability that import it and compose no broker."""
    folders, rooms = capability_folders(root), dict(_files_in_rooms(root))
    return [
        f"{path.relative_to(root)} imports gridstat.broker.{target}"
        for path in _package_files(root)
        if str(path.relative_to(root)) not in COMPOSERS
        for target in sorted(_rooms_of(path) & folders - {rooms.get(path, "")})
    ]


def _files_in_rooms(root: Path) -> list[tuple[Path, str]]:
    """Files in the folders of the broker, each with the name of the folder."""
    broker = root / "gridstat" / "broker"
    return [
        (path, path.relative_to(broker).parts[0])
        for path in _package_files(root)
        if path.is_relative_to(broker) and path.parent != broker
    ]


def corner_violations(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{found.line} imports {found.target}"
        for path in _package_files(root)
        for found in imports_of(path)
        if (top := found.target.partition(".")[0]) in ONLY_UNDER
        and not str(path.relative_to(root)).startswith(ONLY_UNDER[top])
    ]


def impure_words(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{found.line} imports {found.target}"
        for path in _package_files(root)
        if path.is_relative_to(root / "gridstat" / "model")
        for found in imports_of(path)
        if found.target.partition(".")[0] in IMPURE
    ]


def unexplained_inner_imports(root: Path) -> list[str]:
    """Imports inside functions with no comment on the line or right above."""
    return [
        f"{path.relative_to(root)}:{found.line} imports {found.target} inside a function"
        for path in code_files(root, ".py", ".pyx")
        for found in imports_of(path)
        if found.is_in_function and not _is_explained(lines_of(path), found.line)
    ]


def _package_files(root: Path) -> list[Path]:
    package = root / "gridstat"
    return [
        path
        for path in code_files(root, ".py", ".pyi", ".pyx")
        if path.is_relative_to(package) and path.parent != package
    ]


def _own_packages(path: Path) -> set[str]:
    dotted = [found.target.split(".") for found in imports_of(path)]
    return {parts[1] for parts in dotted if parts[0] == "gridstat" and len(parts) > 1}


def _rooms_of(path: Path) -> set[str]:
    dotted = [found.target.split(".") for found in imports_of(path)]
    return {parts[2] for parts in dotted if parts[:2] == ["gridstat", "broker"] and len(parts) > 2}


def _is_explained(lines: list[str], number: int) -> bool:
    above = lines[number - 2].strip() if number > 1 else ""
    comment = lines[number - 1].partition("#")[2] or above.removeprefix("#") * above.startswith("#")
    return bool(comment.split("noqa")[0].strip())


def test_no_package_imports_above_or_beside_itself() -> None:
    assert_none(layer_violations(ROOT))


def test_every_package_has_a_place_in_the_layers() -> None:
    assert_none(unknown_packages(ROOT))


def test_no_room_of_the_broker_imports_a_later_one() -> None:
    assert_none(room_violations(ROOT))


def test_every_room_of_the_broker_has_a_place_in_their_order() -> None:
    assert_none(unknown_rooms(ROOT))


def test_only_the_lists_of_capabilities_import_the_folder_of_one() -> None:
    assert "floods" in capability_folders(ROOT)
    assert_none(importers_of_capabilities(ROOT))


def test_outside_packages_stay_in_their_corner() -> None:
    assert_none(corner_violations(ROOT))


def test_words_and_laws_touch_no_clock_thread_or_socket() -> None:
    assert_none(impure_words(ROOT))


def test_no_import_cycle() -> None:
    assert cycle_in(import_graph(ROOT, "gridstat")) == []


def test_an_import_inside_a_function_says_why() -> None:
    assert_none(unexplained_inner_imports(ROOT))


def test_a_law_that_imports_a_socket_layer_is_found(tmp_path: Path) -> None:
    write_sample(tmp_path, "gridstat/model/law.py", "from gridstat.net import clock\n")
    assert layer_violations(tmp_path) == ["gridstat/model/law.py imports gridstat.net"]


def test_siblings_that_import_each_other_are_found(tmp_path: Path) -> None:
    write_sample(tmp_path, "gridstat/broker/a.py", "import gridstat.router.b\n")
    assert layer_violations(tmp_path) == ["gridstat/broker/a.py imports gridstat.router"]


def test_the_cython_door_is_bound_to_the_layers_too(tmp_path: Path) -> None:
    write_sample(tmp_path, "gridstat/core/_core.pyx", "from gridstat.net.codec import event\n")
    assert layer_violations(tmp_path) == ["gridstat/core/_core.pyx imports gridstat.net"]


def test_the_console_may_import_everything(tmp_path: Path) -> None:
    write_sample(tmp_path, "gridstat/console/a.py", "import gridstat.core.rows\n")
    assert layer_violations(tmp_path) == []


def test_a_package_without_a_place_is_found(tmp_path: Path) -> None:
    write_sample(tmp_path, "gridstat/attic/a.py", "")
    assert unknown_packages(tmp_path) == ["attic"]


def test_spark_outside_the_pipeline_is_found(tmp_path: Path) -> None:
    write_sample(tmp_path, "gridstat/broker/a.py", "from pyspark.sql import functions\n")
    found = ["gridstat/broker/a.py:1 imports pyspark.sql.functions"]
    assert corner_violations(tmp_path) == found


def test_a_law_that_reads_the_clock_is_found(tmp_path: Path) -> None:
    write_sample(tmp_path, "gridstat/model/law.py", "import time\n")
    assert impure_words(tmp_path) == ["gridstat/model/law.py:1 imports time"]


def test_a_cycle_of_three_is_found(tmp_path: Path) -> None:
    for here, there in ("ab", "bc", "ca"):
        write_sample(tmp_path, f"gridstat/model/{here}.py", f"from gridstat.model import {there}\n")
    cycle = cycle_in(import_graph(tmp_path, "gridstat"))
    assert cycle == [f"gridstat.model.{name}" for name in "abca"]


def test_a_diamond_is_no_cycle(tmp_path: Path) -> None:
    for here, there in ("a", "bc"), ("b", "d"), ("c", "d"), ("d", ""):
        imported = "".join(f"import gridstat.model.{name}\n" for name in there)
        write_sample(tmp_path, f"gridstat/model/{here}.py", imported)
    assert cycle_in(import_graph(tmp_path, "gridstat")) == []


def test_an_unexplained_import_inside_a_function_is_found(tmp_path: Path) -> None:
    write_sample(tmp_path, "gridstat/model/a.py", "def f():\n    import json  # noqa: E402\n")
    found = ["gridstat/model/a.py:2 imports json inside a function"]
    assert unexplained_inner_imports(tmp_path) == found


def test_an_explained_import_inside_a_function_passes(tmp_path: Path) -> None:
    text = "def f():\n    # pyarrow is an extra.\n    import pyarrow\n"
    write_sample(tmp_path, "gridstat/model/a.py", text)
    assert unexplained_inner_imports(tmp_path) == []


def test_a_package_is_named_by_its_folder(tmp_path: Path) -> None:
    path = write_sample(tmp_path, "gridstat/model/__init__.py", "")
    assert module_name(path, tmp_path) == "gridstat.model"


def test_a_room_that_imports_a_later_one_is_found(tmp_path: Path) -> None:
    write_sample(tmp_path, "gridstat/broker/capacity/a.py", "import gridstat.broker.requests.b\n")
    write_sample(tmp_path, "gridstat/broker/requests/b.py", "import gridstat.broker.capacity.c\n")
    assert room_violations(tmp_path) == [
        "gridstat/broker/capacity/a.py imports gridstat.broker.requests"
    ]


def test_a_room_without_a_place_is_found(tmp_path: Path) -> None:
    write_sample(tmp_path, "gridstat/broker/attic/a.py", "")
    assert unknown_rooms(tmp_path) == ["attic"]


def test_a_file_that_imports_a_capability_and_composes_nothing_is_found(tmp_path: Path) -> None:
    registers = "from gridstat.broker.leaf_capability import LeafCapability\n"
    text = "from gridstat.broker.modes import leaf_modes\n"
    write_sample(tmp_path, "gridstat/broker/modes/leaf_modes.py", registers)
    write_sample(tmp_path, "gridstat/broker/content/a.py", registers + text)
    for name in ("broker/modes/a.py", "broker/tree/b.py", "broker/c.py", "console/d.py"):
        write_sample(tmp_path, f"gridstat/{name}", text)
    for name in COMPOSERS:
        write_sample(tmp_path, name, text)
    assert capability_folders(tmp_path) == {"content", "modes"}
    assert unknown_rooms(tmp_path) == []
    assert sorted(importers_of_capabilities(tmp_path)) == [
        "gridstat/broker/c.py imports gridstat.broker.modes",
        "gridstat/broker/content/a.py imports gridstat.broker.modes",
        "gridstat/broker/tree/b.py imports gridstat.broker.modes",
        "gridstat/console/d.py imports gridstat.broker.modes",
    ]
