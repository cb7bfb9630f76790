"""What Python does until a session's windowed queries have their first results: one flame graph of all its processes.

Run: python -m benchmarks.start_flames --py-spy PATH --name after [--tree CHECKOUT] [--into docs/figures]
py-spy (`pip install py-spy`) takes the stacks of the driver and all processes below it that are on a CPU, a hundred
times a second, while the driver of `benchmarks.start` runs three queries in a session. CHECKOUT: of another version.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from benchmarks.flame import Stack, draw
from benchmarks.measure import load_hundred_bytes, scratch
from benchmarks.windows import KEYEDWM
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.testing.broker import broker

SAMPLES_A_SECOND = 100
RECORDS = 1_000
LEAST_PIXELS = 4  # thinner frames would make a megabyte
_PROCESS = re.compile(r'process \d+:"(.*?)"(?=;)', re.DOTALL)
_MODULE = re.compile(r"-m ([\w.]+)")
_FRAME = re.compile(r"(?P<name>.+) \((?P<file>[^:()]+)(:\d+)?\)$")


def stack_of(line: str) -> tuple[Stack, int]:
    """A line of py-spy's raw format: the process by its module, then function and file; and how often it was seen."""
    frames, _, count = line.rpartition(" ")
    stack = ["driver"]
    for process in _PROCESS.finditer(frames):
        module = _MODULE.search(process[1])
        stack = [module[1] if module else stack[0]]
    for frame in _PROCESS.sub("", frames).split(";"):
        if frame and "<frozen importlib" not in frame:  # a module that is imported stands under the one that imports it
            frame_match = _FRAME.match(frame)
            stack.append(f"{frame_match['name']} {frame_match['file']}" if frame_match else frame)
    return tuple(stack), int(count)


def sampled_stacks(tool: Path, tree: Path, bootstrap: str, topic: str) -> Counter[Stack]:
    """Run the driver under py-spy; the stacks in CPU seconds."""
    with scratch() as place:
        raw = Path(place, "raw")
        command = [
            str(tool), "record", "--subprocesses", "-r", str(SAMPLES_A_SECOND), "-f", "raw", "-o", str(raw), "--",
            sys.executable, "-W", "ignore", "-m", "benchmarks.start", "--one", KEYEDWM, "windows", bootstrap, topic,
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=tree, env=environment)
        if '"first_s"' not in process.stdout:  # py-spy ends well also where its program failed
            raise SystemExit("the queries did not get to their ends: no picture")
        stacks: Counter[Stack] = Counter()
        for line in re.split(r"\n(?=process )", raw.read_text(encoding="utf-8").rstrip("\n")):  # commands have lines
            stack, count = stack_of(line)
            stacks[stack] += count / SAMPLES_A_SECOND  # type: ignore[assignment]  # seconds, not a count
    return stacks


def main() -> None:
    """Draw one graph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--py-spy", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--into", type=Path, default=Path("docs", "figures"))
    options = parser.parse_args()
    with broker() as kafka:
        cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap}))
        topic = f"bench-start-{time.time_ns()}"
        load_hundred_bytes(cluster, topic, RECORDS)
        cluster.close()
        stacks = sampled_stacks(options.py_spy, options.tree.resolve(), kafka.bootstrap, topic)
    whole_s = sum(stacks.values())
    by_process: Counter[str] = Counter()
    for stack, seconds in stacks.items():
        by_process[stack[0]] += seconds  # type: ignore[assignment]
    for process, seconds in by_process.most_common():
        print(f"{seconds:8.2f} s  {process}", flush=True)
    path = options.into / f"first-windows-{options.name}.svg"
    title = f"Three windowed queries of a session, {options.name}: {whole_s:.1f} s of CPU in Python"
    draw(stacks, title, path, LEAST_PIXELS)
    print(path, flush=True)


if __name__ == "__main__":
    main()
