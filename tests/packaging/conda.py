"""The recipe for conda-forge: what it requires, and its own build command and tests in an environment of pip.

Rule: channels of conda are not needed, as uv installs what the recipe requires.
"""

from __future__ import annotations

import re
import shlex
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.packaging.installs import last_line
from tests.uv import ROOT, run, uv

RECIPE = ROOT / "conda" / "recipe.yaml"
NO_CHANNEL = 3  # exit code of rattler.py


def recipe() -> dict[str, Any]:
    """The recipe, with the values of its context in their places."""
    text = RECIPE.read_text()
    context = yaml.safe_load(text)["context"]
    return yaml.safe_load(re.sub(r"\$\{\{ (\w+) \}\}", lambda name: context.get(name[1], name[0]), text))


def requirements(kind: str) -> list[str]:
    """The packages that the recipe requires, without Python, as pip writes them."""
    return [one.replace(" ", "") for one in recipe()["requirements"][kind] if one.partition(" ")[0] != "python"]


def faults() -> list[str]:
    """Build and test as the recipe says; what goes wrong."""
    text = recipe()
    with tempfile.TemporaryDirectory(prefix="keyedwm-conda-") as home:
        python = Path(home) / "bin" / "python"
        commands = [[uv(), "venv", "--quiet", "--clear", home], [uv(), "pip", "install", "--quiet", "--python", python]]
        commands[1] += requirements("host") + requirements("run")
        build = text["build"]["script"].replace("${{ PYTHON }}", str(python))
        commands.append(shlex.split(build))
        for test in text["tests"]:
            if "script" in test:
                commands += [[Path(home) / "bin" / words[0], *words[1:]] for words in map(shlex.split, test["script"])]
            else:
                names = ", ".join(test["python"]["imports"])
                commands += [[python, "-c", f"import {names}"], [uv(), "pip", "check", "--python", python]]
        for command in commands:
            is_build = command[1:4] == ["-m", "pip", "install"]
            done = run(*command, cwd=RECIPE.parent / text["source"]["path"] if is_build else Path(home))
            if done.returncode:
                return [f"{' '.join(map(str, command))} ended with {done.returncode}: {last_line(done)}"]
    return []
