"""Answers as they come in from a socket: cut anywhere, they are those that kafka-python's own parser makes of them."""

from __future__ import annotations

import random
import struct
import uuid
from types import SimpleNamespace
from typing import Any

import kafka.errors as wire_errors
import pytest
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse
from kafka.protocol.parser import KafkaProtocol

from keyedwm.kafka.client.framing import LOGIN_BYTES, _Frame, _Parser

KINDS = {kind.API_KEY: kind for kind in (FetchResponse[12], MetadataResponse[9], ApiVersionsResponse[3])}
FETCH, METADATA, VERSIONS = KINDS.values()
NOT_LOGGING_IN = SimpleNamespace(initializing=False)


def fetched(records: bytes | None) -> Any:
    topic = FetchResponse.FetchableTopicResponse
    part = topic.PartitionData(
        partition_index=3, error_code=0, high_watermark=9, last_stable_offset=9, log_start_offset=0,
        aborted_transactions=None, preferred_read_replica=-1, records=records,
    )  # fmt: skip
    return FETCH(throttle_time_ms=0, error_code=0, session_id=0, responses=[topic(topic="t", partitions=[part])])


def metadata() -> Any:
    broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="h\u00e9", port=9092, rack=None)
    return METADATA(throttle_time_ms=0, brokers=[broker], cluster_id="c", controller_id=1, topics=[])


def versions(code: int) -> Any:
    """Decoded by its first version if it has an error: the decoder goes back in the frame."""
    return (ApiVersionsResponse[0] if code else VERSIONS)(error_code=code, api_keys=[])


# Of the fourth more than any answer of a login has.
ANSWERS = [
    fetched(bytes(range(256))), metadata(), fetched(None), fetched(random.Random(1).randbytes(LOGIN_BYTES)),
    versions(0), versions(35), metadata(),
]  # fmt: skip


def answer_bytes() -> bytes:
    """What the broker sends."""
    for correlation_id, answer in enumerate(ANSWERS):
        answer.with_header(correlation_id=correlation_id)
    return b"".join(bytes(answer.encode(header=True, framed=True)) for answer in ANSWERS)


def with_requests(parser: KafkaProtocol) -> KafkaProtocol:
    """The parser, waiting for all answers."""
    for correlation_id, answer in enumerate(ANSWERS):
        key, version = answer.API_KEY, answer.API_VERSION
        parser.in_flight_requests.append(
            SimpleNamespace(
                correlation_id=correlation_id, api_key=key, request_api_key=key, api_version=version,
                request_api_version=version,
                get_response_class=lambda key=key: KINDS[key],
            )
        )  # fmt: skip
    return parser


def parser() -> _Parser:
    parser_under_test = _Parser(NOT_LOGGING_IN, receive_message_max_bytes=1 << 30)
    with_requests(parser_under_test)
    return parser_under_test


def test_a_frame_reads_as_the_librarys_own_one():
    methods = {name for name in vars(KafkaBytes) if not name.startswith("_")}
    own = {"append", "room", "fill"}
    assert methods - {"write"} == {name for name in vars(_Frame) if not name.startswith("_")} - own


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64, 300, 301, 302, 65_536, 1 << 20])
def test_answers_cut_into_pieces_are_those_of_the_librarys_own_parser(size):
    stream_bytes, own_parser = answer_bytes(), parser()
    expected = with_requests(KafkaProtocol()).receive_bytes(stream_bytes)
    answers = []
    for at in range(0, len(stream_bytes), size):
        piece = bytearray(stream_bytes[at : at + size])
        answers += own_parser.receive_bytes(memoryview(piece))
        piece[:] = bytes(len(piece))  # the next bytes from the socket lie in the same place
    assert [one for one, _ in answers] == list(range(len(ANSWERS)))
    assert answers == expected
    assert answers[3][1].responses[0].partitions[0].records == ANSWERS[3].responses[0].partitions[0].records


def test_all_answers_can_come_at_once_and_the_last_one_in_two_halves():
    stream_bytes, own_parser = answer_bytes(), parser()
    assert [one for one, _ in own_parser.receive_bytes(stream_bytes[:-1])] == [0, 1, 2, 3, 4, 5]
    assert [one for one, _ in own_parser.receive_bytes(stream_bytes[-1:])] == [6]


@pytest.mark.parametrize("version", range(4, 14))
def test_long_records_stay_in_their_frame(version):
    """The code that decodes them is the library's, and would copy them."""
    topic = FetchResponse.FetchableTopicResponse
    raw = random.Random(version).randbytes(LOGIN_BYTES)
    part = topic.PartitionData(
        partition_index=3, error_code=0, high_watermark=9, last_stable_offset=9, log_start_offset=0,
        aborted_transactions=None, preferred_read_replica=-1, records=raw,
    )  # fmt: skip
    topic_name = {"topic": "t"} if version < 13 else {"topic_id": uuid.UUID(int=7)}
    kind = FetchResponse[version]
    answer = kind(throttle_time_ms=0, error_code=0, session_id=0, responses=[topic(**topic_name, partitions=[part])])
    answer.with_header(correlation_id=0)
    own_parser = _Parser(NOT_LOGGING_IN, receive_message_max_bytes=1 << 30)
    own_parser.in_flight_requests.append(
        SimpleNamespace(
            correlation_id=0, api_key=1, request_api_key=1, request_api_version=version, get_response_class=lambda: kind
        )
    )
    ((_, answer_read),) = own_parser.receive_bytes(bytes(answer.encode(header=True, framed=True)))
    records = answer_read.responses[0].partitions[0].records
    assert records == raw
    assert isinstance(records, memoryview)
    assert records.readonly


@pytest.mark.parametrize("length", [-1, (1 << 30) + 1])
def test_a_length_that_no_answer_has_ends_the_connection(length):
    with pytest.raises(wire_errors.InvalidReceiveError, match=f"an answer of {length} bytes was announced"):
        parser().receive_bytes(length.to_bytes(4, "big", signed=True) + b"x")


@pytest.mark.parametrize("length", [0, 3, 4, 40, 200])
def test_an_answer_that_ends_too_early_breaks_as_in_the_librarys_own_parser(length):
    stream_bytes = length.to_bytes(4, "big") + answer_bytes()[4 : 4 + length]
    broken = [_broken(one, stream_bytes) for one in (parser(), with_requests(KafkaProtocol()))]
    assert broken[0] == broken[1]


def _broken(reader: KafkaProtocol, stream_bytes: bytes) -> tuple[type[Exception], str]:
    with pytest.raises((wire_errors.KafkaProtocolError, IndexError, struct.error)) as error:
        reader.receive_bytes(stream_bytes)
    return error.type, str(error.value)
