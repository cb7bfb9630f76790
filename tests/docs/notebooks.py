"""The notebooks are run, all in one kernel and one Spark; `python -m tests.docs.notebooks` writes their outputs anew.

Rule: texts must come out as they are stored; of a picture it counts that there is one, as its bytes differ by machine.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

from tests.shared_classes import java_options

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
LIMIT_S = 600
PICTURE = "image/png"


def notebooks() -> dict[Path, NotebookNode]:
    """The notebooks as they are stored."""
    return {path: nbformat.read(path, as_version=4) for path in sorted(FOLDER.glob("*.ipynb"))}


def run(stored: dict[Path, NotebookNode]) -> dict[Path, NotebookNode]:
    """The notebooks with fresh outputs: one kernel runs one after another, so that Spark starts once."""
    fresh = {path: nbformat.from_dict(one) for path, one in stored.items()}
    for one in fresh.values():
        for cell in one.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
    # Their kernel: this interpreter, whatever else is installed for this user.
    with tempfile.TemporaryDirectory() as home:
        names = KernelSpecManager(kernel_dirs=[home], ensure_native_kernel=True)
        manager = KernelManager(kernel_name="python3", kernel_spec_manager=names)
        own = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SUBMIT_OPTS": java_options()}
        manager.start_kernel(env=own, cwd=home)
        try:
            for path, one in fresh.items():
                client = NotebookClient(one, km=manager, timeout=LIMIT_S, resources={"metadata": {"path": home}})
                try:
                    client.execute()
                finally:
                    if client.kc is not None:
                        client.kc.stop_channels()  # left open where the kernel is not the client's own
                _without_noise(one, path)
        finally:
            manager.shutdown_kernel(now=False)
    return fresh


def list_outputs(one: NotebookNode) -> list[list[str]]:
    """What each code cell shows: its texts, and `picture` for one."""
    return [[_describe_output(output) for output in cell.outputs] for cell in one.cells if cell.cell_type == "code"]


def _describe_output(output: NotebookNode) -> str:
    if output.output_type == "stream":
        return output.text
    return "picture" if PICTURE in output.data else output.data["text/plain"]


def _without_noise(one: NotebookNode, path: Path) -> None:
    """Leave out what Spark's Java says while it starts, and times and counters that differ in each run."""
    for number, cell in enumerate(cell for cell in one.cells if cell.cell_type == "code"):
        cell.metadata.pop("execution", None)
        cell.execution_count = number + 1
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = number + 1
            if PICTURE in output.get("data", {}):
                output.data["text/plain"] = f"picture of {path.stem}"


def main() -> int:
    """Run the notebooks and write them."""
    for path, one in run(notebooks()).items():
        nbformat.write(one, path)
        print(path.name, list_outputs(one))
    return 0


if __name__ == "__main__":
    sys.exit(main())
