"""The `keyedwm` command: what is listed, what is imported, what is said and which code it ends with."""

from __future__ import annotations

import io
import os
import shlex
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from keyedwm.cli.main import COMMANDS, _parser, main
from keyedwm.testing.broker import VARIABLE, answers
from keyedwm.testing.local import free_ports
from keyedwm.testing.registry import VARIABLE as REGISTRY

pytestmark = pytest.mark.starts

ROOT = Path(__file__).parents[2]
KEYEDWM = Path(sys.executable).with_name("keyedwm")
LIMIT_S = 240


def test_every_command_is_a_module_with_help_arguments_and_run():
    for name in COMMANDS.values():
        module = import_module(name)
        assert isinstance(module.HELP, str)
        assert callable(module.add_arguments)
        assert callable(module.run)


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    text = capsys.readouterr().out
    for name, module in COMMANDS.items():
        assert name in text
        assert import_module(module).HELP.split()[0] in text


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_an_example_that_the_command_accepts_and_the_page_that_shows_it(name, capsys):
    module = import_module(COMMANDS[name])
    assert _parser(name).parse_args(shlex.split(module.EXAMPLE)[1:]).command == name
    assert module.EXAMPLE in (ROOT / module.PAGE).read_text()
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    assert capsys.readouterr().out.endswith(f"example:\n  {module.EXAMPLE}\n\npage: {module.PAGE}\n")


@pytest.mark.parametrize("arguments", [[], ["brokr"], ["broker", "--colour"], ["broker", "--way", "cloud"]])
def test_a_wrong_command_line_ends_with_2(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "usage: keyedwm" in capsys.readouterr().err


def test_an_error_of_ours_is_one_sentence_and_2(capsys, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert main(["broker", "--way", "given"]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"keyedwm: way=given, but {VARIABLE} is not set")
    assert message.count("\n") == 1


def test_a_command_imports_no_other_command():
    program = "import sys; from keyedwm.cli.main import COMMANDS, _parser, main; main(['broker', '--way', 'given'])"
    probe = f"{program}; print([name for name in COMMANDS.values() if name in sys.modules], 'pyspark' in sys.modules)"
    clean = {name: value for name, value in os.environ.items() if name != VARIABLE}
    run = subprocess.run([sys.executable, "-c", probe], env=clean, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["['keyedwm.cli.broker']", "False"]


@pytest.mark.parametrize("deadly", [signal.SIGINT, signal.SIGTERM])
def test_broker_prints_its_address_and_ends_quietly(deadly):
    (port,) = free_ports(1)
    command = [KEYEDWM, "broker", "--way", "local", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        address = running.stdout.readline().strip()
        assert address == f"127.0.0.1:{port}"
        assert answers(address)
        running.send_signal(deadly)
        rest, message = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 130
    assert rest == ""
    assert message.startswith("starting a Kafka broker; ")
    assert f"\nKafka 4.1.2 at {address}" in message
    assert message.endswith("Ctrl-C stops it\n")
    assert not answers(address)


def test_broker_prints_the_address_of_a_registry_behind_its_own(monkeypatch):
    monkeypatch.setenv(REGISTRY, "http://registry:8081")
    monkeypatch.setenv(VARIABLE, "localhost:9092")
    monkeypatch.setattr("keyedwm.testing.broker.answers", lambda _: True)
    monkeypatch.setattr(signal, "pause", lambda: os.kill(os.getpid(), signal.SIGINT))
    handler = signal.getsignal(signal.SIGTERM)
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["broker", "--registry"]) == 130
    signal.signal(signal.SIGTERM, handler)
    assert out.getvalue() == "localhost:9092\nhttp://registry:8081\n"


def test_a_reader_that_has_enough_ends_a_command_without_a_traceback(planted, monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert main(["watch", str(planted.directory), "--once", "--json"]) == 1
