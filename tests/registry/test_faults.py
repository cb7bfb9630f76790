"""A registry that is away, refuses, or answers something else: each in one sentence, as the right kind of error."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from keyedwm.core.errors import KeyedwmError, UnavailableError
from keyedwm.core.schemas import SchemaKind, UnknownSchemaError
from keyedwm.registry import client
from keyedwm.registry.answers import RegistryAccessError
from keyedwm.registry.http import MOST_BYTES
from keyedwm.testing.local import free_ports
from tests import tokens
from tests.registry.conftest import Clock, Connect
from tests.support.fake_registry import PATH, FakeRegistry, Reply, fake_registry, reply

TEXT = '"string"'
PAGE = b"<html>Sign in</html>"
# The answer, the kind of error, what is said, and whether the question is asked again.
ANSWERS = {
    "login": (reply(401, {"message": tokens.SECRET}), RegistryAccessError, r"rejected the login \(401\)", False),
    "rights": (reply(403, PAGE, "text/html"), RegistryAccessError, r"denies the operation .* \(403\)", False),
    "fault": (reply(500, {"error_code": 50001, "message": "store"}), UnavailableError, "it answers 500: store", True),
    "busy": (reply(429, b""), UnavailableError, "it answers 429", True),
    "proxy": (reply(503, PAGE, "text/html"), UnavailableError, "503, text/html in place of JSON", True),
    "page": (reply(200, PAGE, "text/html"), UnavailableError, "200, text/html in place of JSON", False),
    "path": (reply(404, PAGE, "text/html"), UnavailableError, "such as /apis/ccompat/v7", False),
    "route": (reply(404, {"error_code": 404, "message": "HTTP 404"}), UnavailableError, "no such path", False),
    "redirect": (
        reply(302, b"", Location=f"https://u:{tokens.SECRET}@sso/?code=1"), UnavailableError,
        r"it redirects to https://\*\*\*@sso/\?code=1 \(302\), which is not followed", False,
    ),
    "huge": (reply(200, b"[" + b" " * MOST_BYTES), UnavailableError, f"more than {MOST_BYTES} bytes", False),
    "other": (reply(200, {"hello": "world"}), UnavailableError, "its answer is no schema", False),
    "list": (reply(200, []), UnavailableError, "its answer is no schema", False),
    "kind of no text": (
        reply(200, {"schema": "x", "schemaType": ["AVRO"]}), UnavailableError, "its answer is no schema", False,
    ),
    "version": (
        reply(200, {"schema": "x", "references": [{"name": "a", "subject": "b", "version": float("inf")}]}),
        UnavailableError, "its answer has no version", False,
    ),
    "half a surrogate pair": (
        reply(200, {"schema": "x", "references": [{"name": "a", "subject": "\ud800", "version": 1}]}),
        UnavailableError, "its answer is no schema", False,
    ),
    "kind": (reply(200, {"schema": "x", "schemaType": "XML"}), UnknownSchemaError, "has a schema of a language", False),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_each_answer_that_is_no_schema_is_one_sentence_of_the_right_kind(
    fake: FakeRegistry, connect: Connect, clock: Clock, name: str
) -> None:
    answer, kind, sentence, again = ANSWERS[name]
    fake.rule = lambda _method, _path: answer
    with pytest.raises(kind, match=sentence) as caught:
        connect().schema(1)
    assert type(caught.value) is kind
    assert tokens.SECRET not in str(caught.value)
    assert (len(fake.requests) > 1) is again
    assert bool(clock.pauses) is again


@pytest.mark.parametrize(
    "answer",
    [
        reply(500, {"message": f"no {tokens.SECRET} here"}),
        reply(422, {"message": f"no {tokens.SECRET} here"}),
        reply(302, b"", Location=f"/login?{tokens.SECRET}"),
        reply(200, b"no JSON", f"text/{tokens.SECRET.lower()}"),
    ],
)
def test_a_registry_that_repeats_the_login_gets_it_into_no_error(
    fake: FakeRegistry, connect: Connect, answer: Reply
) -> None:
    fake.rule = lambda _method, _path: answer
    for login in ({"user": "boss", "password": tokens.SECRET}, {"token": tokens.SECRET}):
        with pytest.raises(KeyedwmError, match=r"\*\*\*|text/") as caught:
            connect(**login).schema(1)
        assert tokens.SECRET not in str(caught.value)


def test_a_login_that_is_repeated_as_it_was_sent_shows_in_no_error(fake: FakeRegistry, connect: Connect) -> None:
    fake.rule = lambda _method, _path: reply(500, {"message": f"bad header {fake.logins[-1]}"})
    with pytest.raises(UnavailableError, match=r"bad header Basic \*\*\*$|bad header Basic \*\*\* "):
        connect(user="boss", password=tokens.SECRET).schema(1)


@pytest.mark.parametrize("text", ["a", "a:/:", "a='", "x:/y:"])
def test_the_words_of_a_fault_are_looked_through_once(fake: FakeRegistry, connect: Connect, text: str) -> None:
    fake.rule = lambda _method, _path: reply(404, {"message": text * 400_000, "error_code": 9})
    with pytest.raises(UnavailableError):
        connect().schema(1)
    fake.rule = lambda _method, _path: reply(422, {"message": text * 400_000})
    with pytest.raises(KeyedwmError, match="does not accept the schema") as caught:
        connect().schema(1)
    assert len(str(caught.value)) < 600


REFERENCES = [{"name": f"n{number}", "subject": f"s{number}", "version": 1} for number in range(60)]


def test_what_a_schema_refers_to_is_bounded_in_size_and_in_time(
    fake: FakeRegistry, connect: Connect, clock: Clock
) -> None:
    def answer(_method: str, path: str) -> Reply:
        text, others = (TEXT, REFERENCES) if "/ids/" in path else ("x" * 1_000_000, [])
        return reply(200, {"schema": text, "references": others})

    fake.rule = answer
    with pytest.raises(UnavailableError, match=f"refers to have more than {MOST_BYTES} characters"):
        connect().schema(1)
    assert len(fake.requests) < 20

    def slow(_method: str, path: str) -> Reply:
        clock.now_s += 9
        return reply(200, {"schema": '"string"', "references": REFERENCES if "/ids/" in path else []})

    fake.rule = slow
    with pytest.raises(UnavailableError, match=r"were not all answered in 10 times schemaRegistry\.timeout"):
        connect(timeout="10 seconds").schema(1)


def test_long_names_of_references_make_no_long_error(fake: FakeRegistry, connect: Connect) -> None:
    some = [{"name": "n" * 1_000_000, "subject": "s" * 10_000, "version": 1}]
    fake.rule = lambda _m, path: reply(200, {"schema": TEXT, "references": some}) if "/ids/" in path else None
    with pytest.raises(UnavailableError) as caught:
        connect().schema(1)
    assert len(str(caught.value)) < 1_000


def test_pauses_grow_until_the_time_is_over(fake: FakeRegistry, connect: Connect, clock: Clock) -> None:
    fake.rule = lambda _method, _path: reply(500, b"")
    with pytest.raises(UnavailableError, match=r"gave no answer about schema 7: http://127.*: it answers 500"):
        connect(timeout="60 seconds").schema(7)
    assert all(2**i * 0.05 <= pause <= min(2**i * 0.1, 5) for i, pause in enumerate(clock.pauses[:6]))
    assert 50 < clock.now_s <= 60
    assert max(clock.pauses) <= 5


def test_a_registry_that_comes_back_in_time_answers(fake: FakeRegistry, connect: Connect) -> None:
    schema_id = fake.add("s", TEXT)
    faults = [reply(500, b""), reply(503, PAGE, "text/html")]
    fake.rule = lambda _method, _path: faults.pop() if faults else None
    assert connect().schema(schema_id).text == TEXT
    assert len(fake.requests) == 3


def test_an_address_that_is_refused_is_left_for_the_next_one_and_that_stays_first(
    fake: FakeRegistry, connect: Connect, clock: Clock
) -> None:
    first, second = fake.add("s", TEXT), fake.add("s", '"long"')
    closed_url = f"http://127.0.0.1:{free_ports(1)[0]}"
    registry = connect(f"{closed_url},{fake.url}")
    assert [registry.schema(first).text, registry.schema(second).text] == [TEXT, '"long"']
    assert clock.pauses == []
    fake.rule = lambda _method, _path: reply(500, b"")
    with pytest.raises(UnavailableError) as caught:
        registry.schema(99)
    assert f"{fake.url}: it answers 500" in str(caught.value)
    assert f"{closed_url}: Connection refused" in str(caught.value)


def test_an_id_that_one_address_does_not_know_yet_is_asked_of_the_others(fake: FakeRegistry, connect: Connect) -> None:
    """A copy of a registry may be behind the one that gave the id."""
    schema_id = fake.add("s", TEXT)
    with fake_registry() as behind:
        registry = connect(f"{behind.url},{fake.url}")
        assert registry.schema(schema_id).text == TEXT
        with pytest.raises(UnknownSchemaError):
            registry.schema(99)
        assert [behind.requests, fake.requests].count(["GET /schemas/ids/1", "GET /schemas/ids/99"]) == 2


def test_an_id_is_not_unknown_while_an_address_that_may_have_it_is_away(fake: FakeRegistry, connect: Connect) -> None:
    """With onBadValue=null an unknown id makes nulls, so the copy that is behind must not answer for the other."""
    away = f"http://127.0.0.1:{free_ports(1)[0]}"
    for url in (f"{fake.url},{away}", f"{away},{fake.url}"):
        with pytest.raises(UnavailableError) as caught:
            connect(url).schema(1)
        assert f"{fake.url}: it has no such schema" in str(caught.value)
        assert f"{away}: Connection refused" in str(caught.value)


def test_an_address_that_comes_back_says_that_an_id_is_unknown(fake: FakeRegistry, connect: Connect) -> None:
    faults = [reply(503, b"")]
    with fake_registry() as behind:
        fake.rule = lambda _method, _path: faults.pop() if faults else None
        with pytest.raises(UnknownSchemaError):
            connect(f"{behind.url},{fake.url}").schema(1)


@pytest.mark.parametrize("number", [-1, 2**31, True, 1.5, "7", None, float("inf")])
def test_an_id_that_no_head_has_room_for_is_of_no_registry(
    fake: FakeRegistry, connect: Connect, number: object
) -> None:
    fake.rule = lambda _method, _path: reply(200, {"id": number, "version": 1, "schema": TEXT})
    registry = connect()
    questions: list[Callable[[], object]] = [
        lambda: registry.register("s", SchemaKind.AVRO, TEXT),
        lambda: registry.lookup("s", SchemaKind.AVRO, TEXT),
        lambda: registry.latest("s"),
    ]
    for question in questions:
        with pytest.raises(UnavailableError, match="gave no answer about subject 's': its answer is of another form"):
            question()


@contextmanager
def dripping(first: bytes) -> Iterator[str]:
    """A server that answers some bytes, then one for each that is read, and never ends; the address of it."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            with suppress(OSError):
                other, _ = server.accept()
                with closing(other):
                    other.sendall(first)
                    while True:
                        other.sendall(b" " * 1_024)
                        done.wait(0.001)

        done = threading.Event()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        done.set()
    thread.join()


@pytest.mark.parametrize("first", [b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_an_answer_that_never_ends_is_cut_off_in_time(connect: Connect, first: bytes) -> None:
    with dripping(first) as url, pytest.raises(UnavailableError, match="gave no answer about schema 1: http"):
        connect(url, timeout="100 milliseconds").schema(1)


def test_an_answer_that_is_not_whole_in_time_keeps_no_thread(connect: Connect) -> None:
    """Of a connection that is closed behind it the answer alone has the socket."""
    with dripping(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 999999999\r\n\r\n") as url:
        with pytest.raises(UnavailableError):
            connect(url, timeout="100 milliseconds").schema(1)
        for thread in threading.enumerate():
            if thread.name.startswith(f"keyedwm: schema registry {url}"):
                thread.join(2)
                assert not thread.is_alive()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://no-such-host.invalid", "the name does not resolve"),
        ("https://{host}", "it does not answer in TLS: is it http?"),
    ],
)
def test_an_address_that_is_none_is_said(fake: FakeRegistry, connect: Connect, url: str, sentence: str) -> None:
    host = fake.url.removeprefix("http://").removesuffix(PATH)
    with pytest.raises(UnavailableError, match=sentence):
        connect(url.format(host=host), timeout="1 second").schema(1)


def test_an_unknown_id_is_asked_for_again_after_a_time_only(fake: FakeRegistry, connect: Connect, clock: Clock) -> None:
    registry = connect()
    for _ in range(2):
        with pytest.raises(UnknownSchemaError, match=f"the schema registry at {fake.url} has no schema with the id 1"):
            registry.schema(1)
    assert fake.requests == ["GET /schemas/ids/1"]
    fake.add("s", TEXT)
    clock.now_s += client.UNKNOWN_FOR_S
    assert registry.schema(1).text == TEXT


@pytest.mark.parametrize("schema_id", [-1, 2**31, 2**32 - 1])
def test_four_bytes_that_no_registry_can_have_given_are_no_question(
    fake: FakeRegistry, connect: Connect, schema_id: int
) -> None:
    with pytest.raises(UnknownSchemaError):
        connect().schema(schema_id)
    assert fake.requests == []


def test_references_come_in_the_order_of_need_and_one_that_is_missing_is_a_fault(
    fake: FakeRegistry, connect: Connect
) -> None:
    fake.add("base", '"int"')
    fake.add("middle", '"long"', references=[{"name": "base", "subject": "base", "version": 1}])
    both = [{"name": "middle", "subject": "middle", "version": 1}, {"name": "base", "subject": "base", "version": 1}]
    registry = connect()
    schema = registry.schema(fake.add("top", TEXT, references=both))
    assert [reference.name for reference in schema.references] == ["base", "middle"]
    orphan_id = fake.add("lost", '"double"', references=[{"name": "x.proto", "subject": "x", "version": 3}])
    with pytest.raises(
        UnavailableError, match=r"it has no version 3 of subject 'x', which is referred to as 'x.proto'"
    ):
        registry.schema(orphan_id)


def test_schemas_that_refer_to_each_other_end(fake: FakeRegistry, connect: Connect) -> None:
    fake.add("a", '"int"', references=[{"name": "b", "subject": "b", "version": 1}])
    fake.add("b", '"long"', references=[{"name": "a", "subject": "a", "version": 1}])
    assert {reference.name for reference in connect().schema(1).references} == {"a", "b"}


def test_a_chain_of_references_that_is_too_long_is_a_fault(fake: FakeRegistry, connect: Connect) -> None:
    def rule(_method: str, path: str) -> Reply:
        number = 0 if "/ids/" in path else int(path.split("/subjects/")[1].split("/", maxsplit=1)[0])
        reference = {"name": f"n{number + 1}", "subject": f"{number + 1}", "version": 1}
        return reply(200, {"schema": TEXT, "references": [reference]})

    fake.rule = rule
    with pytest.raises(UnavailableError, match="a schema refers to more than 50 others in a chain"):
        connect().schema(1)


def test_what_one_thread_asked_for_no_other_asks_again(fake: FakeRegistry, connect: Connect) -> None:
    schema_id, registry = fake.add("s", TEXT), connect()
    threads = [threading.Thread(target=registry.schema, args=(schema_id,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fake.requests == [f"GET /schemas/ids/{schema_id}"]


@pytest.mark.parametrize(
    ("options", "login"),
    [
        ({}, None),
        ({"user": "alice", "password": "s3cret"}, "Basic YWxpY2U6czNjcmV0"),
        ({"token": "abc.def"}, "Bearer abc.def"),
    ],
)
def test_the_login_stands_in_every_question(
    fake: FakeRegistry, connect: Connect, options: dict[str, str], login: str | None
) -> None:
    connect(**options).schema(fake.add("s", TEXT))
    assert fake.logins == [login]


def test_the_token_provider_is_asked_for_a_token_of_the_moment(fake: FakeRegistry, connect: Connect) -> None:
    connect(token_provider="tests.tokens:good").schema(fake.add("s", TEXT))  # noqa: S106 (a function's name)
    assert str(fake.logins[0]).startswith(f"Bearer {tokens.BEGINNING}")


@pytest.mark.parametrize(
    ("provider", "sentence"),
    [("failing", "raised ConnectionError"), ("empty", "gave no token: a bearer token as a string is expected")],
)
def test_a_provider_without_a_token_fails_at_once_in_one_sentence(
    fake: FakeRegistry, connect: Connect, provider: str, sentence: str
) -> None:
    with pytest.raises(RegistryAccessError, match=f"the token provider tests.tokens:{provider} {sentence}") as caught:
        connect(token_provider=f"tests.tokens:{provider}").schema(1)
    assert tokens.SECRET not in str(caught.value)
    assert fake.requests == []


def test_a_refused_login_names_the_option_that_gave_it(fake: FakeRegistry, connect: Connect) -> None:
    fake.rule = lambda _method, _path: reply(401, b"")
    for options, sentence in (
        ({}, "of which none is set"),
        ({"user": "a", "password": "b"}, r"check schemaRegistry\.user and schemaRegistry\.password"),
        ({"token": "abc"}, r"check schemaRegistry\.token"),
    ):
        with pytest.raises(RegistryAccessError, match=sentence):
            connect(**options).schema(1)


def test_the_words_of_a_registry_stand_on_one_line_without_control_characters(
    fake: FakeRegistry, connect: Connect
) -> None:
    fake.rule = lambda _method, _path: reply(422, {"message": "no\n\x1b[31m password=hunter2 " + "x" * 1_000})
    with pytest.raises(KeyedwmError) as caught:
        connect().schema(1)
    assert "hunter2" not in caught.value.message
    assert "\n" not in caught.value.message
    assert "\x1b" not in caught.value.message
    assert len(caught.value.message) < 500
