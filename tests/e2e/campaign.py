"""Break a running pipeline in every way, again and again, and count what a reader finds lost, doubled or out of order.

Run: python -m tests.e2e.campaign --kills 40 --seed 7   (as many kills for each target, on three brokers)
     --where cluster: on a Spark cluster of two workers that share nothing, whose executors and hosts are lost, too

Everything random comes from the seed; only where exactly a kill falls depends on the machine.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)

from keyedwm.core.errors import KeyedwmError  # noqa: E402
from tests.e2e.faults import CLUSTER, FAULTS, LOCAL  # noqa: E402
from tests.e2e.feed import Findings  # noqa: E402
from tests.e2e.targets import TARGETS  # noqa: E402
from tests.e2e.world import world  # noqa: E402

SPARK_WORKERS = {LOCAL: 0, CLUSTER: 2}


@dataclass
class Outcome:
    """What came of one target's kills."""

    target: str
    kinds: Counter
    seconds: float
    notes: Counter
    findings: Findings
    failure: str = ""

    @property
    def clean(self) -> bool:
        return self.findings.clean and not self.failure

    def told(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in self.kinds.most_common())
        kills = self.kinds.total()
        pace = f"{self.seconds / max(kills, 1):.1f} s a kill"
        notes = "; ".join(f"{count} {note}" for note, count in self.notes.items())
        return "; ".join(filter(None, [f"{self.target}: kills {kills} ({kinds}), {self.findings.told()}", notes, pace]))


def drawn(target: str, kills: int, seed: int, only: Sequence[str], where: str = LOCAL) -> list[str]:
    """Which faults, in which order: each kind once if there is room, the rest by weight."""
    rng = random.Random(f"{seed} {target} faults")
    is_of = target.removesuffix("-avro")
    there = {kind: fault for kind, fault in FAULTS.items() if is_of in fault.targets and where in fault.where}
    kinds = [kind for kind in there if not only or kind in only]
    rng.shuffle(kinds)
    rest = rng.choices(kinds, [FAULTS[kind].weight for kind in kinds], k=max(0, kills - len(kinds)))
    order = [*kinds[:kills], *rest]
    rng.shuffle(order)
    return order


def campaign(
    target: str, kills: int, seed: int, directory: Path, only: Sequence[str] = (), brokers: int = 1, where: str = LOCAL
) -> Outcome:
    """Strike one target; a round that fails ends it."""
    outcome = Outcome(target, Counter(), 0.0, Counter(), Findings())
    with world(directory, target, seed, brokers, SPARK_WORKERS[where]) as at:
        outcome.findings = at.target.findings
        began = time.monotonic()
        try:
            at.begin()
            for number, kind in enumerate(drawn(target, kills, seed, only, where), 1):
                outcome.kinds[kind] += 1
                struck = time.monotonic()
                at.round(number, FAULTS[kind].strike, FAULTS[kind].expected)
                took = f"{time.monotonic() - struck:5.1f} s"
                print(f"{target:>6} {number:3}/{kills} {kind:12} {took}  {at.target.findings.told()}", flush=True)
            at.finish()
        except (AssertionError, KeyedwmError) as error:
            outcome.failure = f"seed {seed}, {target}, kill {outcome.kinds.total()}: {error}\n{at.post_mortem()}"
        outcome.seconds, outcome.notes = time.monotonic() - began, at.notes
    return outcome


def run(
    targets: Sequence[str], kills: int, seed: int, only: Sequence[str] = (), brokers: int = 1, where: str = LOCAL
) -> list[Outcome]:
    """Share the kills among the targets; a failed one's directory is kept."""
    outcomes = []
    for number, target in enumerate(targets):
        directory = Path(tempfile.mkdtemp(prefix=f"keyedwm-campaign-{target}-"))
        share = kills // len(targets) + (number < kills % len(targets))
        outcomes.append(campaign(target, share, seed, directory, only, brokers, where))
        if outcomes[-1].clean:
            shutil.rmtree(directory, ignore_errors=True)
    return outcomes


def summed(outcomes: Sequence[Outcome]) -> str:
    kills = sum(outcome.kinds.total() for outcome in outcomes)
    findings = [outcome.findings for outcome in outcomes]
    total = Findings(
        sum(f.lost for f in findings), sum(f.doubled for f in findings), sum(f.reordered for f in findings)
    )
    return f"kills {kills}, {total.told()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("KEYEDWM_SEED") or 20240229))
    parser.add_argument("--targets", nargs="+", choices=sorted(TARGETS), default=sorted(TARGETS))
    parser.add_argument("--faults", nargs="+", choices=sorted(FAULTS), default=(), help="only these")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=3, help="three replicate to each other")
    parser.add_argument("--where", choices=sorted(SPARK_WORKERS), default=LOCAL, help="in one process, or on workers")
    arguments = parser.parse_args()
    if elsewhere := [kind for kind in arguments.faults if arguments.where not in FAULTS[kind].where]:
        parser.error(f"--faults {' '.join(elsewhere)}: not with --where {arguments.where}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that nothing is left behind
    print(f"seed {arguments.seed}", flush=True)
    outcomes = run(
        arguments.targets, arguments.kills, arguments.seed, arguments.faults, arguments.brokers, arguments.where
    )
    for outcome in outcomes:
        print(outcome.failure, *outcome.findings.other, sep="\n")
        print(outcome.told())
    print(summed(outcomes))
    return 0 if all(outcome.clean for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
