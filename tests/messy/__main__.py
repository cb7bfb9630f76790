"""Play seeds: `python -m tests.messy --seeds 10000 --from 1`, of all families in turn or of `--only` one."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
import warnings

from tests.messy.families import FAMILIES, again, play


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.messy", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--from", dest="first", type=int, default=1)
    parser.add_argument("--only", choices=FAMILIES, help="one family")
    parser.add_argument("--quiet", action="store_true", help="the last line of an error only")
    arguments = parser.parse_args()
    warnings.simplefilter("error")
    logging.disable(logging.WARNING)  # late rows are told
    families = [arguments.only] if arguments.only else list(FAMILIES)
    compared = dict.fromkeys(families, 0)
    failed: list[tuple[str, int]] = []
    began = time.process_time()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        family = families[seed % len(families)]
        try:
            compared[family] += play(family, seed)
        except Exception as error:  # noqa: BLE001  whatever it is, the seed is told and the others go on
            failed.append((family, seed))
            text = str(error) if arguments.quiet else traceback.format_exc()
            print(
                f"{type(error).__name__}: {text.strip()[: 300 if arguments.quiet else None]}\n  {again(family, seed)}",
                flush=True,
            )
        if (seed - arguments.first + 1) % 500 == 0:
            print(f"{seed - arguments.first + 1} seeds, {compared}, {len(failed)} failed", flush=True)
    print(f"{arguments.seeds} seeds, {time.process_time() - began:.0f} s, {compared}, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
