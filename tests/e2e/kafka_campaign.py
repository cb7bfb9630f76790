"""Kill -9 of a Kafka to Kafka pipeline at random points, restart, and count what a read_committed reader finds wrong.

Run: python -m tests.e2e.kafka_campaign --kills 100 --seed 7   (KEYEDWM_BOOTSTRAP names a running Kafka)

The Python workers of a killed driver are not killed with it: for a moment they are zombies that write on.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from keyedwm.testing.broker import broker
from tests.e2e.kafka_pipeline import NAME
from tests.e2e.kill_campaign import PARTITIONS, ROOT, Campaign, Outcome, _numbered
from tests.sink.conftest import records_of
from tests.tools import make_topic, produce


class KafkaCampaign(Campaign):
    """One source topic, one target topic, one directory, one seed."""

    reordered = 0

    def run(self, kills: int) -> Outcome:
        self.records = [record._replace(key=b"%d" % record.partition) for record in self.records]
        self.target = make_topic(self.bootstrap, f"{self.topic}-out", PARTITIONS + 1)
        make_topic(self.bootstrap, self.topic, PARTITIONS)
        produce(self.bootstrap, self.topic, self.records)
        for _ in range(kills):
            self._start_and_kill()
            self.outcome.kills += 1
        self._finish()
        self._compare()
        return self.outcome

    def told(self) -> str:
        return f"{self.outcome.told()}, reordered {self.reordered}"

    def _start(self, mode: str) -> subprocess.Popen:
        arguments = [self.bootstrap, self.topic, str(self.directory), mode]
        with (self.directory / "log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "tests.e2e.kafka_pipeline", *arguments],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _batches(self) -> int:
        return len(_numbered(self.directory / f"{NAME}.checkpoint" / "offsets"))

    def _compare(self) -> None:
        found = records_of(self.bootstrap, self.target)
        for partition in range(PARTITIONS):
            sent = [r.value for r in self.records if r.partition == partition]
            came = [value for _, key, value, _ in found if key == b"%d" % partition]
            self.outcome.lost += len(set(sent) - set(came))
            self.outcome.doubled += Counter(came).total() - len(set(came))
            self.reordered += _reordered(sent, list(dict.fromkeys(came)))
            assert set(came) <= set(sent), "records came that were never sent"


def _reordered(sent: Sequence[bytes], came: Sequence[bytes]) -> int:
    place = {value: number for number, value in enumerate(sent)}
    return sum(place[one] > place[following] for one, following in itertools.pairwise(came))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("KEYEDWM_SEED") or 20240229))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with broker() as running, tempfile.TemporaryDirectory(prefix="keyedwm-kills-") as directory:
        campaign = KafkaCampaign(running.bootstrap, Path(directory), given.seed)
        campaign.run(given.kills)
    print(campaign.told())
    return 0 if campaign.outcome.clean and not campaign.reordered else 1


if __name__ == "__main__":
    sys.exit(main())
