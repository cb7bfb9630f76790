"""Upgrade running pipelines: a released version under load is killed in mid-batch, and this checkout continues it.

Run: python -m tests.upgrade --from 0.4.0 --how restart --target delta [--queries tumbling join] [--back]

how: `restart` on the same checkpoint; `savepoint` written by the old version, and a new checkpoint; `new-savepoint`,
written by this checkout. --back: afterwards the same version (or `--back VERSION`) is started on the new checkpoint. A
reader then compares each result with the exact one. --at-once: queries in a session (Spark waits ten seconds for a
Python process, and a loaded host is slower with many); the last row of the table has all. Exits 1 if a row is lost,
doubled or wrong, a query fails, or a rejected downgrade changed a file. Needs Kafka and Spark, some minutes, and the
history of the repository.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)

from tests.e2e.brokers import Brokers, running  # noqa: E402
from tests.upgrade.environments import COMMITS, python_of  # noqa: E402
from tests.upgrade.outcome import Outcome, total  # noqa: E402
from tests.upgrade.queries import QUERIES  # noqa: E402
from tests.upgrade.trial import Trial, upgrade  # noqa: E402

HOWS = ("restart", "savepoint", "new-savepoint")
TARGETS = ("delta", "iceberg", "kafka")
SPARKS_OWN = "sparks_own"
AT_ONCE = 5
SAME = "same"  # the version of the trial
# Savepoints of 0.3.0 do not hold stores.
NOT_IN_SAVEPOINTS_OF = {"0.3.0": {"store", "window_join"}}


def queries_of(version: str, how: str, names: list[str]) -> tuple[str, ...]:
    """The queries of a trial: by default all that can be moved so."""
    immovable = {SPARKS_OWN} if how != "restart" else set()
    immovable |= NOT_IN_SAVEPOINTS_OF.get(version, set()) if how == "savepoint" else set()
    return tuple(names) if names else tuple(name for name in QUERIES if name not in immovable)


def show(outcome: Outcome) -> None:
    """Print a row of the table, and what is wrong or rejected."""
    for name, error in outcome.failures.items():
        print(f"FAILED {name} {error}")
    for name, error in outcome.rejections.items():
        print(f"rejected {name}: {error}")
    for name, files in outcome.changes.items():
        print(f"CHANGED by the rejected {name}: {', '.join(files)}")
    for line in [*outcome.unreached, *outcome.details]:
        print(line)
    if outcome.rejections or outcome.continuations:
        back = f"{len(outcome.rejections)} rejected, {len(outcome.continuations)} continued"
    else:
        back = "not tried"
    print(
        f"| {outcome.version} | {outcome.how} | {outcome.target} | {', '.join(outcome.queries)} | {outcome.records:,} "
        f"| {outcome.in_flight} | {outcome.lost} | {outcome.doubled} | {outcome.wrong} | {back} |", flush=True,
    )  # fmt: skip


def run(outcome: Outcome, brokers: Brokers, back: str | None, seed: int) -> None:
    """Run a trial of some queries. Its directory is kept if something is wrong."""
    directory = Path(tempfile.mkdtemp(prefix="keyedwm-upgrade-"))
    trial = Trial(directory, brokers, outcome, seed)
    try:
        upgrade(trial, outcome.version, outcome.how, back)
    finally:
        trial.kill()
        trial.wait_for_orphans()
    show(outcome)
    if outcome.is_clean:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        print(f"kept: {directory}")


def main() -> int:
    """Run the trials that the arguments name, one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="versions", nargs="+", choices=COMMITS, default=list(COMMITS))
    parser.add_argument("--how", nargs="+", choices=HOWS, default=["restart"])
    parser.add_argument("--target", nargs="+", choices=TARGETS, default=["delta"])
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=[])
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="queries in a session")
    parser.add_argument("--back", nargs="?", choices=[*COMMITS, SAME], const=SAME, help="also try a downgrade")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("KEYEDWM_SEED") or 20240229))
    chosen = parser.parse_args()
    for version in chosen.versions:
        python_of(version)
    outcomes = []
    with running(1) as brokers:
        for version in chosen.versions:
            back = version if chosen.back == SAME else chosen.back
            for how in chosen.how:
                names = queries_of(version, how, chosen.queries)
                for target in chosen.target:
                    groups = [names[first : first + chosen.at_once] for first in range(0, len(names), chosen.at_once)]
                    new = [Outcome(version, how, target, group) for group in groups]
                    for outcome in new:
                        run(outcome, brokers, back, chosen.seed)
                    if len(new) > 1:
                        show(total(new))
                    outcomes += new
    return 0 if all(outcome.is_clean for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
