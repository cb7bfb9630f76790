"""Names that were replaced by a word of the field do not come back (docs/reference/glossary.md)."""

from __future__ import annotations

import io
import tokenize
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SHIPPED = sorted(
    path for room in ("keyedwm", "pyspark_wm_source", "pyspark_wm_sink") for path in (ROOT / room).rglob("*.py")
)
# A name that was replaced → the word in its place. Names are compared as a whole.
REPLACED = {
    "BucketNote": "BucketManifest",
    "Inbox": "ChannelTracker",
    "HeldRows": "SideBuffer",
    "HeldStore": "SavedStore",
    "JoinAxis": "JoinWindowBuffer",
    "NoteFormat": "ManifestFormat",
    "Beat": "PaneTimer",
    "Pending": "PendingPanes",
    "Kept": "ContentContext, or the columns that are meant",
    "Came": "MessageLayout",
    "Told": "ProcessorSpec, or what is described",
    "Moving": "StateTakeover",
    "Moved": "RescaledState",
    "Move": "FrameRescale, JoinRescale or ProcessRescale",
    "Begun": "BucketOwner",
    "KeyStanding": "KeyWatermarkSummary",
    "PanesAgain": "RepeatedTotals",
    "StagedStore": "BucketStore",
    "StagedWindowJoin": "BucketWindowJoin",
    "HeldSide": "BufferedAxes",
    "SideState": "JoinInputState",
    "MessageShape": "WindowContent",
    "ShippedSide": "ExchangeSide",
    "given_back": "rejected",
    "looking": "listing",
    "note_with": "manifest_with",
}
# Modules of two rooms with one name for two things, or with a participle in the place of a noun.
GONE = (
    "bucket_move", "bucket_wiring", "declared", "described", "held", "held_store", "inbox", "looking", "note", "staged",
)  # fmt: skip


@cache
def replaced_names(path: Path) -> frozenset[str]:
    """Return the names of REPLACED that the code of a file has, outside texts and comments."""
    text = path.read_text()
    if not any(name in text for name in REPLACED):
        return frozenset()
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return frozenset(token.string for token in tokens if token.type == tokenize.NAME) & REPLACED.keys()


@pytest.mark.parametrize("name", REPLACED)
def test_a_replaced_name_does_not_come_back(name):
    found = [str(path.relative_to(ROOT)) for path in SHIPPED if name in replaced_names(path)]
    assert found == [], f"{name}: call it {REPLACED[name]}"


@pytest.mark.parametrize("name", GONE)
def test_a_file_has_the_name_of_what_it_holds(name):
    assert [str(path.relative_to(ROOT)) for path in SHIPPED if path.stem == name] == []


def test_a_dict_of_settings_options_or_states_is_not_called_told():
    """The word stood for descriptions, manifests, states and sentences alike."""
    as_methods = [path for path in SHIPPED if "def told(" in path.read_text()]
    assert [str(path.relative_to(ROOT)) for path in as_methods] == []


def test_the_state_of_an_operator_is_returned_by_one_name():
    others = [
        str(path.relative_to(ROOT))
        for path in SHIPPED
        if path.is_relative_to(ROOT / "keyedwm" / "operators")
        for name in ("def facts(", "def snapshot(")
        if name in path.read_text()
    ]
    assert others == []
