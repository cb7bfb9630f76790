"""Both ways to a full disk are real: a process that writes is refused by its kernel, and can write again afterwards."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.e2e.disk import Disk, disk

pytestmark = pytest.mark.starts

WRITER = """
import sys
for line in sys.stdin:
    try:
        with open(line.strip(), "wb") as file:
            file.write(bytes(100_000))
        print("written", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"""


@pytest.fixture(params=["mounted", "limited"])
def place(request, tmp_path):
    with disk(tmp_path / "disk") as volume:
        if request.param == "mounted" and not volume.mounted:
            pytest.skip("this machine lets us mount nothing")
        yield Disk(volume.path, mounted=request.param == "mounted")


def test_a_full_disk_takes_nothing_until_it_is_freed(place):
    with subprocess.Popen(
        [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as p:

        def write(name: str) -> str:
            p.stdin.write(f"{place.path / name}\n")
            p.stdin.flush()
            return p.stdout.readline().strip()

        assert write("a") == "written"
        place.fill(lambda: [p.pid])
        assert write("b") == ("No space left on device" if place.mounted else "File too large")
        place.free(lambda: [p.pid])
        assert write("c") == "written"
        p.stdin.close()
