"""The object store of the tests: who may write an object, what stays behind, and another server by name."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from keyedwm.core.errors import OptionError, UnavailableError
from tests.support import object_store as module
from tests.support.object_store import VARIABLE, object_store

AT_ONCE = 16
# Moto looks at no signature, but a request without any is a stranger's, who may not overwrite.
SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=a/20200101/eu-west-1/s3/aws4_request, Signature=b"}
SIGNED |= {"Content-Type": "application/octet-stream"}  # urllib's own type would be read as a form
starts = pytest.mark.starts


@pytest.fixture(autouse=True)
def _none_is_given(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


def ask(address: str, method: str, data: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    request = Request(address, data, SIGNED | more, method=method)  # noqa: S310
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=60) as answer:
            return answer.status, answer.read()
    except HTTPError as error:
        with error:
            return error.code, error.read()


@starts
def test_of_many_who_create_an_object_at_once_one_succeeds():
    with object_store() as store, ThreadPoolExecutor(AT_ONCE) as pool:
        for number in range(10):
            address = f"{store.endpoint}/{store.bucket}/{number}"
            tries = [pool.submit(ask, address, "PUT", b"%d" % who, If_None_Match="*") for who in range(AT_ONCE)]
            codes = [one.result()[0] for one in tries]
            assert Counter(codes) == {200: 1, 412: AT_ONCE - 1}
            assert ask(address, "GET") == (200, b"%d" % codes.index(200))


@starts
def test_a_client_that_asks_before_it_sends_is_told_once_to_go_on():
    with object_store() as store:
        host, _, port = store.endpoint.removeprefix("http://").rpartition(":")
        head = (
            f"PUT /{store.bucket}/asked HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 3\r\nConnection: close\r\n"
        )
        signed = "".join(f"{name}: {value}\r\n" for name, value in SIGNED.items())
        with socket.create_connection((host, int(port)), timeout=60) as wire:
            wire.sendall(f"{head}{signed}Expect: 100-continue\r\n\r\n".encode())
            answer = wire.recv(1_000)
            wire.sendall(b"abc")
            while more := wire.recv(1_000):
                answer += more
        assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"100", b"200"]
        assert ask(f"{store.endpoint}/{store.bucket}/asked", "GET") == (200, b"abc")


@starts
def test_nothing_of_a_store_is_left_at_its_end():
    with object_store() as store:
        home = store.log.parent
        assert home.exists()
        assert store.describe().endswith("(moto in a process of its own, objects in memory)")
        assert store.secret_key not in repr(store) + store.describe()
    assert not home.exists()
    with pytest.raises(OSError, match="refused"):
        ask(f"{store.endpoint}/{store.bucket}", "GET")


@starts
def test_a_holder_that_is_killed_leaves_no_store():
    program = (
        "from tests.support.object_store import object_store\n"
        "with object_store() as store: print(store.endpoint, store.log.parent, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        endpoint, home = holder.stdout.readline().split()
        assert ask(endpoint + "/keyedwm", "GET")[0] == 200
        holder.kill()
        holder.wait()
    while Path(home).exists():  # the time limit of every test ends this
        pass
    with pytest.raises(OSError, match=r"refused|reset"):
        ask(endpoint + "/keyedwm", "GET")


@starts
def test_a_package_that_pip_cannot_give_is_one_sentence_and_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("KEYEDWM_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "_REQUIREMENTS", tmp_path / "wrong.txt")
    (tmp_path / "wrong.txt").write_text("moto==0.0.0 --hash=sha256:" + "0" * 64)
    # No registry is asked.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with (
        pytest.raises(UnavailableError, match=r"pip could not install moto, .*KEYEDWM_S3 names"),
        object_store(),
    ):
        pass
    assert [path.suffix for path in (tmp_path / "python").iterdir()] == [".lock"]


@starts
def test_a_server_that_does_not_come_up_is_one_sentence(monkeypatch, tmp_path):
    (tmp_path / "moto.py").write_text("raise ImportError('no moto')")
    monkeypatch.setattr(module, "moto_packages", lambda: tmp_path)
    with (
        pytest.raises(UnavailableError, match=r"the object store did not start at http://127.*no moto"),
        object_store(),
    ):
        pass


def test_another_server_is_named_by_the_environment(monkeypatch):
    word = "hush"
    monkeypatch.setenv(VARIABLE, "http://10.0.0.1:9000/mine")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "name")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", word)
    with object_store() as store:
        assert (store.endpoint, store.bucket, store.log) == ("http://10.0.0.1:9000", "mine", None)
        assert store.storage_options["aws_secret_access_key"] == store.variables["AWS_SECRET_ACCESS_KEY"] == word
        assert store.spark_conf["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
        assert word not in repr(store) + store.describe()


@pytest.mark.parametrize("address", ["10.0.0.1:9000/mine", "http://10.0.0.1:9000", "http://10.0.0.1/a/b", "s3://mine"])
def test_a_name_that_is_no_address_of_a_bucket_is_refused(monkeypatch, address):
    monkeypatch.setenv(VARIABLE, address)
    with pytest.raises(OptionError, match="is not http://host:port/bucket"), object_store():
        pass


def test_another_server_needs_its_keys(monkeypatch):
    monkeypatch.setenv(VARIABLE, "http://10.0.0.1:9000/mine")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    with pytest.raises(OptionError, match="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is not set"), object_store():
        pass
