"""SeaweedFS as a store with the interface of S3, and its catalog of Iceberg tables that is reached by REST.

Rule: one version, with the checksum of its module; built once with Go into the cache of `tests.platforms.parts`. All
data lies in a folder, so a killed server that starts again has what it had answered for.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from keyedwm.testing.local import free_ports
from tests.platforms.parts import CACHE, NotServedError
from tests.support.foreign_server import ForeignServer
from tests.support.object_store import ObjectStore

MODULE = "github.com/seaweedfs/seaweedfs@v0.0.0-20261109003541-7506e5f91cd6"
VERSION = "4.53 of 2026-11-09"
TABLES = "lake"  # the bucket of the catalog
SECRET = "a-secret-of-the-trials"  # noqa: S105 - of a server on this machine
_SUM = "h1:LOYZFToHq9F7pSR6lkPGfkM8RmHlVFrzndKdhmNZjrU="
_PROGRAM = CACHE / "bin" / "weed"
_BUILD_LIMIT_S = 3_600


def program() -> Path:
    """Return the program, built where it is missing, by 15 minutes of CPU time. Raises NotServedError."""
    if _PROGRAM.exists():
        return _PROGRAM
    if shutil.which("go") is None:
        raise NotServedError("SeaweedFS is built with Go, which is not installed")
    _PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    download = subprocess.run(
        ["go", "mod", "download", "-json", MODULE], capture_output=True, text=True, check=False, cwd=CACHE.parent
    )
    answer = json.loads(download.stdout or "{}")
    if download.returncode or answer.get("Sum") != _SUM:
        raise NotServedError(f"the Go module {MODULE} is not served with the checksum {_SUM}: {answer.get('Error')}")
    aside = _PROGRAM.with_suffix(".new")
    build = subprocess.run(
        ["go", "build", "-o", str(aside), "./weed"], cwd=answer["Dir"], timeout=_BUILD_LIMIT_S, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    if build.returncode:
        raise NotServedError(f"SeaweedFS could not be built: {build.stderr.strip().splitlines()[-1:]}")
    aside.rename(_PROGRAM)
    return _PROGRAM


class SeaweedFS(ForeignServer):
    """A server whose data lies in `home`; store: how it is reached, catalog: the address of its REST catalog."""

    def __init__(self, home: Path, variables: Mapping[str, str] | None = None) -> None:
        parts = ("master", "volume", "filer", "s3", "admin")
        ports = free_ports(2 * len(parts) + 3)
        pairs = [f"-{part}.port{kind}={ports.pop()}" for part in parts for kind in ("", ".grpc")]
        s3, catalog = next(pair for pair in pairs if pair.startswith("-s3.port=")), ports.pop()
        self.store = ObjectStore(endpoint=f"http://127.0.0.1:{s3.partition('=')[2]}", secret_key=SECRET)
        self.catalog = f"http://127.0.0.1:{catalog}"
        command = [
            program(), "mini", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={home}", "-webdav=false", *pairs,
            f"-s3.port.iceberg={catalog}", "-s3.port.lance=0", "-admin.port.legacy=0", "-master.telemetry=false",
            f"-bucket={self.store.bucket}", f"-tableBucket={TABLES}",
        ]  # fmt: skip
        login = {"AWS_ACCESS_KEY_ID": self.store.access_key, "AWS_SECRET_ACCESS_KEY": self.store.secret_key}
        super().__init__("seaweedfs", command, home, self._answers, login | dict(variables or {}))

    def _answers(self) -> bool:
        """Whether store and catalog answer, and the buckets are there."""
        try:
            for address in (f"{self.store.endpoint}/healthz", f"{self.catalog}/v1/config"):
                urlopen(address, timeout=5).close()  # noqa: S310 - of this machine
        except (URLError, OSError):
            return False
        return True
