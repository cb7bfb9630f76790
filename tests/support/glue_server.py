"""The process of moto's server with Glue and S3, and with two things of the real Glue that moto 5.2.5 lacks.

Run: python -m tests.support.glue_server PACKAGES HOST PORT BUCKET   (as `object_store_server`)

- An UpdateTable with a VersionId that is not the table's is rejected: moto ignores the VersionId.
- The answer to every LOST_EVERY-th UpdateTable is lost, after the update: the client repeats it by itself.
"""

from __future__ import annotations

import sys
from itertools import count
from typing import Any

from tests.support import object_store_server

LOST_EVERY = 4


def main(packages: str, host: str, port: str, bucket: str) -> None:
    """Serve until the process is ended."""
    sys.path.insert(0, packages)
    from moto.glue.exceptions import GlueClientError
    from moto.glue.responses import GlueResponse

    real, numbers = GlueResponse.update_table, count(1)

    def update_table(self: Any) -> Any:
        parameters = self.parameters
        table = self.glue_backend.get_table(parameters["DatabaseName"], parameters["TableInput"]["Name"])
        if parameters.get("VersionId", "") not in {"", table.as_dict()["VersionId"]}:
            raise GlueClientError("ConcurrentModificationException", "the table has another version")
        answer = real(self)
        if next(numbers) % LOST_EVERY == 0:
            raise RuntimeError("an answer that is lost")
        return answer

    GlueResponse.update_table = update_table
    object_store_server.main(packages, host, port, bucket)


if __name__ == "__main__":
    main(*sys.argv[1:])
