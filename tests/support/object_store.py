"""An object store with the interface of S3, as a process of its own: moto, which keeps all in memory.

Rule: KEYEDWM_S3=http://host:port/bucket names another server, with its keys in AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY, which is then neither started nor stopped. Else moto is installed once, by pip and with the
hashes of object_store.txt, into the user cache, never into the environment that runs. When the context ends, the
process and all objects are gone. Never a proof of what a real store does under faults: none is made here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from keyedwm.core.errors import OptionError, UnavailableError
from keyedwm.testing.guard import Guard
from keyedwm.testing.ivy import cache_dir, kept_once
from keyedwm.testing.local import free_ports
from tests.support.proxy import LOOPBACK

VARIABLE = "KEYEDWM_S3"
BUCKET = "keyedwm"
REGION = "eu-west-1"
_REQUIREMENTS = Path(__file__).with_name("object_store.txt")
_SERVER = Path(__file__).with_name("object_store_server.py")
_INSTALL_LIMIT_S = 600.0
_START_LIMIT_S = 180.0
_ANSWER_LIMIT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class ObjectStore:
    """A running store: its bucket, and how each kind of client reaches it. log: of its process, or None."""

    endpoint: str
    bucket: str = BUCKET
    access_key: str = "keyedwm"
    secret_key: str = field(default="any-key-is-taken", repr=False)
    log: Path | None = None

    @property
    def storage_options(self) -> Mapping[str, str]:
        """What `deltalake` takes, and the Delta sink with `storage.` before each name."""
        return {
            "aws_endpoint_url": self.endpoint,
            "aws_allow_http": "true",
            "aws_region": REGION,
            "aws_access_key_id": self.access_key,
            "aws_secret_access_key": self.secret_key,
            "aws_conditional_put": "etag",
        }

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment in which Arrow's file systems reach it, so the ledger of the Kafka sink."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def spark_conf(self) -> Mapping[str, str]:
        """Settings with which Spark's S3A (`tests.support.s3a`) reaches it: checkpoint and state at s3a://BUCKET/."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.access.key": self.access_key,
            "spark.hadoop.fs.s3a.secret.key": self.secret_key,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": str(self.endpoint.startswith("https:")).lower(),
        }

    def describe(self) -> str:
        """One line for people; no key."""
        how = "moto in a process of its own, objects in memory" if self.log else f"given by {VARIABLE}"
        return f"an S3-like object store at {self.endpoint}, bucket {self.bucket} ({how})"


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A store with an empty bucket for the time of the `with`, or the one that KEYEDWM_S3 names.

    Raises UnavailableError if moto can be neither found nor installed, or does not come up.
    """
    if os.environ.get(VARIABLE):
        yield _parse_address(os.environ[VARIABLE])
        return
    packages = moto_packages()
    home = Path(tempfile.mkdtemp(prefix="keyedwm-s3-"))
    try:
        with _running(packages, home) as store:
            yield store
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _parse_address(address: str) -> ObjectStore:
    parts = urlsplit(address)
    bucket = parts.path.strip("/")
    if parts.scheme not in {"http", "https"} or not parts.netloc or not bucket or "/" in bucket:
        raise OptionError(f"{VARIABLE}={address} is not http://host:port/bucket")
    missing = [name for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if not os.environ.get(name)]
    if missing:
        raise OptionError(f"{VARIABLE} names a server, and {' and '.join(missing)} is not set: set both to its keys")
    return ObjectStore(
        endpoint=f"{parts.scheme}://{parts.netloc}",
        bucket=bucket,
        access_key=os.environ["AWS_ACCESS_KEY_ID"],
        secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
    )


@contextmanager
def _running(packages: Path, home: Path) -> Iterator[ObjectStore]:
    (port,) = free_ports(1)
    store = ObjectStore(endpoint=f"http://{LOOPBACK}:{port}", log=home / "log")
    with (home / "log").open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-I", "-W", "ignore", _SERVER, packages, LOOPBACK, str(port), BUCKET],
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=home, start_new_session=True,
        )  # fmt: skip
    guard = Guard("process", str(process.pid), str(home))
    try:
        _wait_for(store, process)
        yield store
    finally:
        process.kill()
        process.wait()
        guard.dismiss()


def _wait_for(store: ObjectStore, process: subprocess.Popen) -> None:
    """Ask until it serves; its bucket is there before that."""
    limit = time.monotonic() + _START_LIMIT_S
    while (why := _refusal(store)) is not None:
        if process.poll() is not None or time.monotonic() > limit:
            log_lines = store.log.read_text(errors="replace").strip().splitlines() if store.log else []
            raise UnavailableError(
                f"the object store did not start at {store.endpoint}: {[why, *log_lines][-1].strip()}"
            )
        time.sleep(0.05)


def _refusal(store: ObjectStore) -> str | None:
    """Why it does not answer yet, None if it does."""
    try:
        # Never by a proxy: the server is on this machine.
        build_opener(ProxyHandler({})).open(f"{store.endpoint}/moto-api/", timeout=_ANSWER_LIMIT_S).close()
    except OSError as error:
        return str(error)
    return None


def moto_packages() -> Path:
    """The directory with moto and what it needs, filled if it is not there."""
    fingerprint = _REQUIREMENTS.read_bytes() + f"{sys.implementation.cache_tag} {sys.platform}".encode()
    return kept_once(cache_dir() / "python" / f"moto-{hashlib.sha256(fingerprint).hexdigest()[:8]}", _install)


def _install(target: Path) -> None:
    print(f"installing the object store of the tests (once; kept in {cache_dir()})", file=sys.stderr)
    command = (
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input",
        "--require-hashes", "--no-deps", "--target", target, "-r", _REQUIREMENTS,
    )  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_INSTALL_LIMIT_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"pip had not installed moto after {_INSTALL_LIMIT_S:g} s") from error
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.strip()] or ["it said nothing"]
        raise UnavailableError(
            f"pip could not install moto, the object store of the tests: {errors[-1].strip()}; {VARIABLE} names another"
        )
