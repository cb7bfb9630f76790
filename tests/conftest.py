"""What every test can ask for.

`kafka`: a real Kafka · `real_registry`: a schema registry · `secured`: a Kafka with TLS and logins · `topic`,
`new_topic`: fresh topic names · `topic_of`: fresh topics · `open_stream`: the source in this process · `spark`: a real
Spark · `seed`: where chance begins.

With `--quick` only tests run that need no broker, no Spark and no process of their own, in long files with their first
parameters alone: `make check`. With `-n` every
worker process has a broker, a Spark and ports of its own, and the files that take longest come first: `make test`.
Tests marked `cluster` run by `-m cluster` only, `make cluster-test`; of them those marked `every_run` always.
"""

from __future__ import annotations

import gc
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from keyedwm.testing import local
from keyedwm.testing.broker import Broker, broker
from tests.quick_batches import QUICK_BATCHES
from tests.schedule import Recorder, long_ones_first, one_case_each, recorded
from tests.seeds import times
from tests.shared_classes import KAFKA, java_options
from tests.support import kafka_versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.secured import Secured
    from tests.tools import Stream

DEFAULT_SEED = 20240229
BROKERS = pytest.StashKey[list[str]]()
# What takes seconds to start: a test that asks for one of these is not quick.
STARTED_FIXTURES = {"kafka", "real_registry", "secured", "shell", "spark"}
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
MOST_WORKERS = 8

# Set before anything imports pyspark: Spark's workers run the interpreter that runs the tests.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options())
os.environ.setdefault(local.JAVA_OPTIONS, java_options(KAFKA))


def base_seed() -> int:
    """KEYEDWM_SEED, or a fixed one: a failing random test is run again with the seed it printed."""
    return int(os.environ.get("KEYEDWM_SEED") or DEFAULT_SEED)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only tests that start no broker, no Spark and no process")
    parser.addoption("--record-seconds", action="store_true", help="write down how long each file takes")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cluster: needs a Spark cluster of processes; run by -m cluster alone")
    config.addinivalue_line("markers", "every_run: one of `cluster` that runs without -m cluster, too")
    config.addinivalue_line("markers", "starts: starts processes of its own or takes long, so --quick leaves it out")
    # kafka-python 3.0 reads its schemas with importlib.resources.read_text, deprecated in Python 3.11 and 3.12 only.
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
    # No deadline: compiled functions compile inside the first example, and a busy machine is slow at making examples.
    # The same examples in every run, unless asked.
    settings.register_profile(
        "keyedwm", max_examples=times(40), deadline=None, suppress_health_check=[HealthCheck.too_slow],
        derandomize="KEYEDWM_SEED" not in os.environ,
    )  # fmt: skip
    settings.load_profile("keyedwm")
    config.stash[BROKERS] = []
    if config.getoption("--record-seconds") and not WORKER:
        config.pluginmanager.register(Recorder())
    if WORKER:
        local.PORTS = ports_of(int(WORKER.removeprefix("gw")))


def ports_of(worker: int) -> range:
    """The ports that this worker's brokers choose from: two workers never try the same one."""
    size = len(local.PORTS) // MOST_WORKERS
    return local.PORTS[worker % MOST_WORKERS * size :][:size]


def pytest_collection() -> None:
    """Thousands of tests stay to the end: looking through them for garbage takes half a second each time."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if WORKER:
        long_ones_first(items, recorded())
    if "cluster" not in config.option.markexpr:
        marker = pytest.mark.every_run.name
        left_out = [one for one in items if one.get_closest_marker("cluster") and not one.get_closest_marker(marker)]
        _deselect(left_out, items, config)
    if not config.getoption("--quick"):
        return
    quick = [one for one in items if not (STARTED_FIXTURES & set(one.fixturenames) or one.get_closest_marker("starts"))]
    first_cases = set(one_case_each(quick, recorded()))
    _deselect([one for one in items if one not in first_cases], items, config)


def _deselect(left_out: list[pytest.Item], items: list[pytest.Item], config: pytest.Config) -> None:
    """Remove tests from `items` in place, and report the removed tests as deselected."""
    removed = set(left_out)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [one for one in items if one not in removed]


def pytest_report_header() -> str:
    return f"keyedwm: seed base {base_seed()} (KEYEDWM_SEED)"


def pytest_sessionfinish(session: pytest.Session) -> None:
    if WORKER:
        session.config.workeroutput["brokers"] = session.config.stash[BROKERS]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Collect which brokers a worker process used; one that died tells nothing."""
    node.config.stash[BROKERS] += getattr(node, "workeroutput", {}).get("brokers", [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    brokers = "; ".join(config.stash[BROKERS]) or "no broker was needed"
    terminalreporter.write_line(f"keyedwm: {brokers}; seed base {base_seed()}")


def _must_be_marked(request: pytest.FixtureRequest) -> None:
    """A fixture that is asked for at run time is not seen when tests are chosen."""
    if request.config.getoption("--quick"):
        pytest.fail(f"a test that asks for {request.fixturename} by name must be marked `starts`")


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """One running Kafka for the whole session; topics are not created by themselves."""
    _must_be_marked(request)
    from tests.tools import make_internal_topics

    version = os.environ.get(kafka_versions.VARIABLE)
    with kafka_versions.broker_of(version) if version else broker() as running:
        request.config.stash[BROKERS].append(running.describe())
        make_internal_topics(running.bootstrap)
        yield running


@pytest.fixture(scope="session")
def real_registry(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a real schema registry for the whole session; a test skips where none is to be had."""
    _must_be_marked(request)
    from keyedwm.core.errors import UnavailableError
    from keyedwm.testing.java import JavaError
    from keyedwm.testing.registry import registry

    with ExitStack() as started:
        try:
            running = started.enter_context(registry())
        except (JavaError, UnavailableError) as error:
            pytest.skip(f"no real schema registry here: {error.message}")
        yield running.url


@pytest.fixture(scope="module", autouse=True)
def _connections() -> Iterator[None]:
    """Connections end with their module: those of a broker that has ended would be tried anew for ever."""
    yield
    if "keyedwm.kafka.requests.cluster" in sys.modules:
        sys.modules["keyedwm.kafka.requests.cluster"].close_shared()


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One broker with TLS, logins and ACLs for the whole session."""
    from tests.secured import secured_broker

    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture
def topic(new_topic: Callable[[], str]) -> str:
    """A topic name that nobody used before (the topic is not created)."""
    return new_topic()


@pytest.fixture(scope="session")
def new_topic() -> Callable[[], str]:
    """A maker of such names, for tests that need several."""
    return lambda: f"t-{uuid.uuid4().hex[:16]}"


@pytest.fixture(scope="session")
def topic_of(kafka: Broker, new_topic: Callable[[], str]) -> Callable[..., str]:
    """A maker of new topics with so many partitions; their settings are written with underscores."""
    # Not at the top: kafka-python may be imported only once its deprecation is let pass.
    from tests.tools import make_topic

    return lambda partitions=1, **config: make_topic(kafka.bootstrap, new_topic(), partitions, **config)


@pytest.fixture
def open_stream(kafka) -> Callable[..., Stream]:
    """A stream of a topic from its beginning, in this process; further options by name, or as a mapping."""
    from tests.tools import Stream

    def make(topic: str, options: dict[str, str] | None = None, **more: str) -> Stream:
        defaults = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        return Stream(**(defaults | (options or {}) | more))

    return make


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed base of this run; derive every random choice from it and print what a failing case used."""
    return base_seed()


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One real Spark for the whole session: two cores, UTC, no UI."""
    from tests.tools import register_where_spark_cannot_find

    _must_be_marked(request)
    from pyspark.sql import SparkSession

    home: Path = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("keyedwm tests")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.python.daemon.module", "keyedwm.daemon")
        .config(map=dict(QUICK_BATCHES))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    register_where_spark_cannot_find(session)
    yield session
    session.stop()
