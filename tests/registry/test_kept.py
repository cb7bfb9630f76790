"""Schemas on disk: a known id goes on while the registry is away, and a file that is damaged is asked for anew."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import pytest

from keyedwm.core.errors import UnavailableError
from keyedwm.core.schemas import NamedSchema
from keyedwm.registry import cache
from tests.registry.conftest import Clock, Connect
from tests.support.fake_registry import FakeRegistry, reply

TEXT = '"string"'
AWAY = reply(503, b"")


def files(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if path.is_file()]


def test_another_process_asks_nothing_while_the_registry_is_away(
    fake: FakeRegistry, connect: Connect, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake.add("base", '"int"')
    schema_id = fake.add("s", TEXT, references=[{"name": "base", "subject": "base", "version": 1}])
    known = connect(cache=str(tmp_path)).schema(schema_id)
    fake.rule = lambda _method, _path: AWAY
    later = connect(cache=str(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert later.schema(schema_id) == known
    assert known.references == (NamedSchema("base", '"int"'),)
    assert "schemas kept on disk are used" in caplog.text
    with pytest.raises(UnavailableError):
        later.schema(77)


def test_a_registry_that_answers_is_asked_once_whether_it_is_still_the_same(
    fake: FakeRegistry, connect: Connect, tmp_path: Path
) -> None:
    ids = [fake.add("s", text) for text in (TEXT, '"int"', '"long"')]
    for schema_id in ids:
        connect(cache=str(tmp_path)).schema(schema_id)
    fake.requests.clear()
    later = connect(cache=str(tmp_path))
    assert [later.schema(schema_id).text for schema_id in ids] == [TEXT, '"int"', '"long"']
    assert fake.requests == ["GET /schemas/ids/1"]


def test_a_registry_that_was_made_anew_gives_its_own_schemas(
    fake: FakeRegistry, connect: Connect, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for text in (TEXT, '"int"'):
        connect(cache=str(tmp_path)).schema(fake.add("s", text))
    fake.schemas = [{"schema": '"double"'}, {"schema": '"bytes"'}]
    later = connect(cache=str(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert [later.schema(1).text, later.schema(2).text] == ['"double"', '"bytes"']
    assert f"the schema registry at {fake.url} was recreated" in caplog.text
    assert connect(cache=str(tmp_path)).schema(2).text == '"bytes"'


def test_the_schema_of_an_id_that_was_deleted_since_is_known(
    fake: FakeRegistry, connect: Connect, tmp_path: Path
) -> None:
    connect(cache=str(tmp_path)).schema(fake.add("s", TEXT))
    fake.schemas.clear()
    assert connect(cache=str(tmp_path)).schema(1).text == TEXT


def test_a_registry_that_is_away_is_waited_for_once(
    fake: FakeRegistry, connect: Connect, clock: Clock, tmp_path: Path
) -> None:
    for text in (TEXT, '"int"'):
        connect(cache=str(tmp_path)).schema(fake.add("s", text))
    fake.rule = lambda _method, _path: AWAY
    later = connect(cache=str(tmp_path))
    later.schema(1)
    asked = len(fake.requests)
    later.schema(2)
    assert len(fake.requests) == asked
    assert clock.now_s <= 2


@pytest.mark.parametrize("damage", [b"", b"x", None])
def test_a_damaged_file_is_noticed_and_asked_for_anew(
    fake: FakeRegistry, connect: Connect, tmp_path: Path, damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    cache._warn.cache_clear()
    schema_id = fake.add("s", TEXT)
    connect(cache=str(tmp_path)).schema(schema_id)
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"string", b"strinG") if damage is None else damage)
    with caplog.at_level(logging.WARNING):
        assert connect(cache=str(tmp_path)).schema(schema_id).text == TEXT
    assert "hold a damaged file: the schema registry is asked instead" in caplog.text
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"{}", b'{"format":1,"id":1,"kind":"XML","text":"","references":[]}', b"[" * 100_000,
        b'{"format":1,"id":1,"kind":"AVRO","text":5,"references":[]}',
    ],
)  # fmt: skip
def test_a_file_of_another_form_is_asked_for_again(
    fake: FakeRegistry, connect: Connect, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Others may write to a directory that is shared."""
    cache._warn.cache_clear()
    schema_id = fake.add("s", TEXT)
    connect(cache=str(tmp_path)).schema(schema_id)
    (path,) = files(tmp_path)
    path.write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
    with caplog.at_level(logging.WARNING):
        assert connect(cache=str(tmp_path)).schema(schema_id).text == TEXT
    assert "hold a file of another form: the schema registry is asked instead" in caplog.text


def test_a_file_that_cannot_be_written_stays_nowhere(fake: FakeRegistry, connect: Connect, tmp_path: Path) -> None:
    schema_id = fake.add("s", TEXT)
    connect(cache=str(tmp_path)).schema(schema_id)
    (path,) = files(tmp_path)
    path.unlink()
    path.mkdir()
    assert connect(cache=str(tmp_path)).schema(schema_id).text == TEXT
    assert files(tmp_path) == []


def test_a_directory_that_cannot_be_written_costs_questions_only(
    fake: FakeRegistry, connect: Connect, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        assert connect(cache=str(tmp_path / "file")).schema(fake.add("s", TEXT)).text == TEXT
    assert "Not a directory" in caplog.text


def test_without_the_option_a_directory_of_this_user_alone_is_used_and_none_keeps_nothing(
    fake: FakeRegistry, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    connect(cache="none").schema(fake.add("s", TEXT))
    assert files(tmp_path) == []
    registry = connect(cache="")
    registry.schema(1)
    (path,) = files(tmp_path / "keyedwm" / "schemas")
    assert (tmp_path / "keyedwm" / "schemas").stat().st_mode & 0o777 == 0o700
    assert path.name == "1.json"
