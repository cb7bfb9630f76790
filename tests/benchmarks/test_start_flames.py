"""Stacks that py-spy took: whose they are."""

from __future__ import annotations

from benchmarks.start_flames import stack_of


def test_a_stack_stands_under_the_module_of_its_own_process() -> None:
    line = (
        'process 7:"python -m benchmarks.start --one";process 9:"python -m keyedwm.daemon 4";'
        "<module> (keyedwm/daemon.py:80);_find_and_load (<frozen importlib._bootstrap>:1176);"
        "work (keyedwm/runtime/worker.py:70) 12"
    )
    assert stack_of(line) == (("keyedwm.daemon", "<module> keyedwm/daemon.py", "work keyedwm/runtime/worker.py"), 12)


def test_a_process_of_no_module_counts_with_the_one_that_started_it() -> None:
    line = 'process 7:"python -m benchmarks.start";process 8:"/usr/bin/java -cp x";process 9:"cat";read (native) 3'
    assert stack_of(line) == (("benchmarks.start", "read native"), 3)


def test_a_command_may_have_semicolons_and_lines() -> None:
    line = 'process 7:"python -m benchmarks.start";process 8:"python -c \'a = 1; b\nc\'";work (a.py:1);rest (b.py:2) 5'
    assert stack_of(line) == (("benchmarks.start", "work a.py", "rest b.py"), 5)
