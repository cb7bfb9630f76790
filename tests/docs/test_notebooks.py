"""The notebooks show what comes out."""

from __future__ import annotations

import gc

import pytest

from tests.docs.notebooks import list_outputs, notebooks, run


@pytest.mark.starts
def test_notebooks_show_what_comes_out():
    stored = notebooks()
    fresh = run(stored)
    gc.collect()  # a socket that is left open is told here, not in another test
    assert {path.name: list_outputs(one) for path, one in fresh.items()} == {
        path.name: list_outputs(one) for path, one in stored.items()
    }


def test_a_notebook_is_stored_with_its_outputs_and_a_picture():
    for path, one in notebooks().items():
        outputs = [text for cell in list_outputs(one) for text in cell]
        assert "picture" in outputs, path.name
        assert len(outputs) > 1, path.name
