"""A real Iceberg catalog that is reached by REST: the server of Iceberg's own compatibility kit, over a file of SQLite.

Run: python -m tests.support.iceberg_server DIRECTORY   (until Ctrl-C; tables lie in the directory)

Rule: exactly these jars, from Maven Central, and those of PySpark, which have the rest of what the server needs. It
keeps no login: for tests on one machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from keyedwm.testing.ivy import fetch_jars, read_hashes
from keyedwm.testing.java import find_java
from keyedwm.testing.local import free_ports
from tests.support.standalone import spark_home
from tests.tools import wait_until

_HASHES = read_hashes(Path(__file__).with_name("other_jars.txt"))
ICEBERG, _JETTY = "1.11.0", "12.1.5"
SQLITE = "org.xerial:sqlite-jdbc:3.54.1.0"
_JARS = (
    *(f"org.apache.iceberg:iceberg-{part}:{ICEBERG}" for part in ("api", "bundled-guava", "common", "core")),
    *(f"org.eclipse.jetty:jetty-{part}:{_JETTY}" for part in ("http", "io", "security", "server", "session", "util")),
    *(f"org.eclipse.jetty.compression:jetty-compression-{part}:{_JETTY}" for part in ("common", "gzip", "server")),
    f"org.eclipse.jetty.ee10:jetty-ee10-servlet:{_JETTY}",
    "com.github.ben-manes.caffeine:caffeine:2.9.3",
    "org.apache.httpcomponents.client5:httpclient5:5.6.1",
    "org.apache.httpcomponents.core5:httpcore5:5.4",
    "org.apache.httpcomponents.core5:httpcore5-h2:5.4",
    SQLITE,
)
_FIXTURES = (
    f"org.apache.iceberg:iceberg-core:{ICEBERG}:tests",
    f"org.apache.iceberg:iceberg-open-api:{ICEBERG}:test-fixtures",
)
_MAIN = "org.apache.iceberg.rest.RESTCatalogServer"
_LIMIT_S = 900.0


@contextmanager
def iceberg_server(directory: Path) -> Iterator[str]:
    """The address of a server whose tables lie in the directory; raises UnavailableError if its jars cannot be had."""
    jars = [
        *fetch_jars("iceberg-rest-fixtures", _FIXTURES, transitive=False, hashes=_HASHES),
        *fetch_jars("iceberg-rest", _JARS, transitive=False, hashes=_HASHES),
    ]
    (port,) = free_ports(1)
    of_catalog = {
        "CATALOG_REST_PORT": f"{port}", "CATALOG_WAREHOUSE": f"{directory}",
        "CATALOG_URI": f"jdbc:sqlite:file:{directory}/rest.db",
    }  # fmt: skip
    path = os.pathsep.join([*map(str, jars), f"{spark_home()}/jars/*"])
    with (directory / "server.log").open("w") as log, subprocess.Popen(
        [find_java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", path, _MAIN],
        env=os.environ | of_catalog, stdout=log, stderr=subprocess.STDOUT,
    ) as server:  # fmt: skip
        address = f"http://127.0.0.1:{port}"
        try:
            wait_until(lambda: server.poll() is not None or _answers(address), "the REST catalog", _LIMIT_S)
            assert server.poll() is None, (directory / "server.log").read_text()
            yield address
        finally:
            server.terminate()


def _answers(address: str) -> bool:
    try:
        with urlopen(f"{address}/v1/config", timeout=60) as answer:  # noqa: S310 - of this machine
            return answer.status == 200
    except (URLError, OSError):
        return False


def main() -> None:
    """Say how it is reached, and keep it until Ctrl-C."""
    directory = Path(sys.argv[1]).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    with iceberg_server(directory) as address:
        print(f"catalog.type=rest catalog.uri={address}", flush=True)
        try:
            sys.stdin.read()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
