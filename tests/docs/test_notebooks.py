"""The notebooks show what comes out."""

from __future__ import annotations

import gc

import pytest

from tests.docs.notebooks import notebooks, run, told


@pytest.mark.starts
def test_notebooks_show_what_comes_out():
    stored = notebooks()
    fresh = run(stored)
    gc.collect()  # a socket that is left open is told here, not in another test
    assert {path.name: told(one) for path, one in fresh.items()} == {
        path.name: told(one) for path, one in stored.items()
    }


def test_a_notebook_is_stored_with_its_outputs_and_a_picture():
    for path, one in notebooks().items():
        shown = [text for cell in told(one) for text in cell]
        assert "picture" in shown, path.name
        assert len(shown) > 1, path.name
