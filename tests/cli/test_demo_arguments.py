"""The lengths of the demo: a short one to look at, the year for those who ask for it."""

from __future__ import annotations

import argparse
import sys

import pytest

from keyedwm.cli import demo
from keyedwm.cli.main import main
from keyedwm.core.errors import OptionError


def played(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, int]:
    """Days and steps that the command would play."""
    from examples.demo import show

    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    options = {}
    monkeypatch.setattr(show, "show", lambda **more: options.update(more) or 0)
    assert demo.run(parser.parse_args(arguments)) == 0
    return options["days"], options["step_count"]


def test_the_demo_is_short_unless_the_year_is_asked_for(monkeypatch):
    assert played(monkeypatch) == (4, 24)
    assert played(monkeypatch, "--year") == (365, 50)
    assert played(monkeypatch, "--year", "--steps", "7") == (365, 7)
    assert played(monkeypatch, "--days", "2", "--steps", "4") == (2, 4)


@pytest.mark.parametrize(
    "arguments", [("--days", "2", "--year"), ("--year", "--devices"), ("--days", "2", "--devices", "5")]
)
def test_two_lengths_at_once_are_refused(monkeypatch, capsys, arguments):
    with pytest.raises(SystemExit):
        played(monkeypatch, *arguments)
    assert "not allowed with argument" in capsys.readouterr().err


def test_values_are_json_unless_avro_is_asked_for_and_devices_have_none(monkeypatch):
    from examples.demo import show

    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    formats = []
    monkeypatch.setattr(show, "show", lambda **arguments: formats.append(arguments["is_avro"]) or 0)
    for options in ([], ["--format", "avro"]):
        assert demo.run(parser.parse_args(options)) == 0
    assert formats == [False, True]
    with pytest.raises(OptionError, match="--format avro: the events of --devices have no values"):
        demo.run(parser.parse_args(["--format", "avro", "--devices"]))


def test_without_the_checkout_the_command_says_in_one_sentence_what_it_needs(monkeypatch, capsys):
    for name in [name for name in sys.modules if name.partition(".")[0] == "examples"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "examples", None)  # as if it could not be found
    assert main(["demo"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "needs the folder examples/ of the source repository" in line
