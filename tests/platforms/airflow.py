"""A real Airflow runs the DAG and the job of docs/how-to/cluster-managers.md: again, and after a kill in a batch.

Airflow, its scheduler, API server and database (SQLite) have an environment of their own in the cache.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from deltalake import DeltaTable

from keyedwm.testing.local import KAFKA_VERSION, free_ports, local_broker
from tests.platforms.parts import CACHE, NotServedError
from tests.tools import Record, make_topic, produce, wait_until

AIRFLOW = "3.3.2"
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "cluster-managers.md"
LIMIT_S = 900.0
RECORDS = 20_000  # of a run: its batch lasts long enough to be killed in


def run(folder: Path) -> str:
    """Raise an error for the first claim that is wrong."""
    home = installed()
    with local_broker() as kafka, running(home, folder) as airflow:
        topic = make_topic(kafka.bootstrap, "orders", 2)
        write_page(folder, kafka.bootstrap)
        airflow.command("dags", "reserialize")
        airflow.command("dags", "unpause", "orders")
        for number, victim in enumerate((None, None, driver_of, task_of)):
            produce(kafka.bootstrap, topic, records(number))
            run_id = airflow.trigger(number)
            if victim is not None:
                kill_in_batch(folder, victim)
            wait_until(lambda run_id=run_id: airflow.ended(run_id), f"the end of {run_id}", LIMIT_S)
            check_rows(folder, number + 1)
            tries = airflow.tries(run_id)
            if (tries > 1) is not (victim is not None):
                raise AssertionError(f"the task of {run_id} has {tries} tries")
    return (
        f"Airflow {AIRFLOW}, Kafka {KAFKA_VERSION}: 4 runs of the page's DAG with exact rows, "
        "one with Spark's driver and one with Airflow's task killed in a batch"
    )


def installed() -> Path:
    """Return the environment with Airflow, made if it is not there."""
    home = CACHE / f"airflow-{AIRFLOW}"
    if not (home / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        command = [home / "bin" / "pip", "install", "--quiet", f"apache-airflow=={AIRFLOW}"]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            raise NotServedError(f"pip could not install apache-airflow {AIRFLOW}")
        (home / "complete").touch()
    return home


def write_page(folder: Path, bootstrap: str) -> None:
    """Write the job and the DAG of the page, with this machine's places and without the DAG's clock."""
    section = PAGE.read_text().partition("## Airflow\n")[2].partition("\n## ")[0]
    job = re.search(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    dag = re.search(r"(?:^    .*\n|^\n)+", section[section.index("    from airflow") :], re.MULTILINE)
    assert job is not None
    assert dag is not None
    places = {
        "localhost:9092": bootstrap,
        '"/data/': f'"{folder}/',
        "/opt/jobs/": f"{folder}/",
        "/opt/keyedwm/bin/": f"{Path(sys.executable).parent}/",
        '"@hourly"': "None",
    }
    (folder / "dags").mkdir(exist_ok=True)
    for path, code in (
        (folder / "orders.py", job[1]),
        (folder / "dags" / "orders.py", re.sub("(?m)^    ", "", dag[0])),
    ):
        for place, here in places.items():
            code = code.replace(place, here)  # noqa: PLW2901
        path.write_text(code)


class Airflow:
    """The commands of a running Airflow, and its runs as they are in its database."""

    def __init__(self, home: Path, folder: Path, variables: dict[str, str]) -> None:
        self._program = home / "bin" / "airflow"
        self._database = folder / "airflow" / "airflow.db"
        self._variables = variables

    def command(self, *arguments: str) -> None:
        """Run one command; raises AssertionError with its last lines."""
        result = subprocess.run(
            [self._program, *arguments], env=self._variables, capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise AssertionError(f"airflow {' '.join(arguments)}: {(result.stdout + result.stderr)[-2_000:]}")

    def trigger(self, number: int) -> str:
        """Start a run and return its id."""
        run_id = f"run-{number}"
        self.command("dags", "trigger", "orders", "--run-id", run_id)
        return run_id

    def ended(self, run_id: str) -> bool:
        """Whether the run succeeded; raises AssertionError if it failed."""
        state = self._value("SELECT state FROM dag_run WHERE run_id = ?", run_id)
        if state == "failed":
            raise AssertionError(f"{run_id} failed")
        return state == "success"

    def tries(self, run_id: str) -> int:
        """Return how many times the run's task was started."""
        return int(self._value("SELECT try_number FROM task_instance WHERE run_id = ?", run_id))

    def _value(self, query: str, run_id: str) -> object:
        with closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True, timeout=60)) as database:
            row = database.execute(query, (run_id,)).fetchone()
        return None if row is None else row[0]


@contextmanager
def running(home: Path, folder: Path) -> Iterator[Airflow]:
    """Run all of Airflow's services on ports of their own, until the context ends."""
    port, worker_port, trigger_port = free_ports(3)
    own = {
        "AIRFLOW_HOME": folder / "airflow",
        "AIRFLOW__CORE__DAGS_FOLDER": folder / "dags",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": 1,
        "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": 1,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__API__PORT": port,
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__WORKERS": 1,
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": worker_port,
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": trigger_port,
        "PYTHONUNBUFFERED": "1",
        "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    variables = os.environ | {name: str(value) for name, value in own.items()}
    log = folder / "airflow.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [home / "bin" / "airflow", "standalone"],
            env=variables, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        wait_until(
            lambda: "Airflow is ready" in log.read_text() or process.poll() is not None, "Airflow is ready", LIMIT_S
        )
        if process.poll() is not None:
            raise AssertionError(f"airflow standalone ended: {log.read_text()[-2_000:]}")
        yield Airflow(home, folder, variables)
    finally:
        with suppress(AssertionError):  # it has a session of its own
            os.kill(driver_of(str(folder / "orders.py")), signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def kill_in_batch(folder: Path, victim: Callable[[str], int]) -> None:
    """Kill a process with SIGKILL between the plan of a batch and its commit."""
    checkpoint = folder / "hourly_orders.checkpoint"
    deadline_s = time.monotonic() + LIMIT_S
    while names(checkpoint / "offsets") <= names(checkpoint / "commits"):
        if time.monotonic() > deadline_s:
            raise AssertionError("no batch was planned")
        time.sleep(0.005)
    os.kill(victim(str(folder / "orders.py")), signal.SIGKILL)
    if names(checkpoint / "offsets") <= names(checkpoint / "commits"):
        raise AssertionError("the batch was committed before the kill")


def driver_of(job: str) -> int:
    """Return the process id of the JVM of Spark's driver."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            program, *arguments = (path / "cmdline").read_bytes().decode().split("\0")
            if job in arguments and program.endswith("java"):
                return int(path.name)
    raise AssertionError(f"no JVM runs {job}")


def task_of(job: str) -> int:
    """Return the process id of Airflow's task; Spark's driver survives its death."""
    process = driver_of(job)
    while True:
        status = Path(f"/proc/{process}/status").read_text()
        if re.search(r"^Name:\s+(java|bash|sh)$", status, re.MULTILINE) is None:
            return process
        process = int(re.findall(r"^PPid:\s+(\d+)$", status, re.MULTILINE)[0])


def names(log: Path) -> set[str]:
    """Return the numbers of the batches in one of the checkpoint's logs."""
    return {path.name for path in log.glob("[0-9]*")}


def records(number: int) -> list[Record]:
    """Return the records of a run, each with a value of its own."""
    start = number * RECORDS
    return [Record(i % 2, 1_700_000_000_000 + i, str(i).encode()) for i in range(start, start + RECORDS)]


def check_rows(folder: Path, runs: int) -> None:
    """Compare the table's events with the records of all runs so far."""
    values = DeltaTable(str(folder / "hourly_orders")).to_pyarrow_table(columns=["value"])["value"]
    rows = Counter(values.to_pylist())
    expected = Counter(record.value for number in range(runs) for record in records(number))
    if rows != expected:
        missing, surplus = expected - rows, rows - expected
        raise AssertionError(f"after {runs} runs {missing.total()} rows are missing, {surplus.total()} are too many")
