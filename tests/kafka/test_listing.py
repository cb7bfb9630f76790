"""The error codes of a listing of transactions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from keyedwm.core.errors import UnavailableError
from keyedwm.kafka.client.errors import AccessError
from keyedwm.kafka.requests import listing, transactions

LOADING, INVALID_REQUEST, DENIED = 14, 42, 31


@pytest.fixture
def list_transactions(monkeypatch):
    """Let one broker give these (error code, ids) answers, and every transaction be open."""
    pauses: list[str] = []

    def of(*answers: tuple[int, list[str]]) -> list[str]:
        pending_answers = [
            SimpleNamespace(error_code=code, transaction_states=[SimpleNamespace(transactional_id=i) for i in ids])
            for code, ids in answers
        ]
        retry = SimpleNamespace(pause=pauses.append)
        monkeypatch.setattr(listing, "brokers", lambda _: [1])
        monkeypatch.setattr(listing, "Retry", lambda *_: retry)
        monkeypatch.setattr(listing, "call_with_retries", lambda *_: pending_answers.pop(0))
        state = SimpleNamespace(transactional_id="q-1", producer_id=1, producer_epoch=0, transaction_state="Ongoing")
        monkeypatch.setattr(transactions, "_describe", lambda *_: state)
        return [
            transaction.transactional_id
            for transaction in transactions.lingering(SimpleNamespace(config=None, connection=None), "q-")
        ]

    of.pauses = pauses
    return of


def test_a_broker_that_still_loads_its_transactions_is_asked_again(list_transactions):
    assert list_transactions((LOADING, []), (0, ["q-1"])) == ["q-1"]
    assert len(list_transactions.pauses) == 1


def test_a_listing_that_is_refused_is_an_error_and_no_empty_list(list_transactions):
    with pytest.raises(AccessError, match="not allowed to list the transactions that broker 1 coordinates"):
        list_transactions((DENIED, []))
    with pytest.raises(UnavailableError, match="the transactions that broker 1 coordinates cannot be listed"):
        list_transactions((INVALID_REQUEST, []))
