"""What `make release-check` makes of what its tools say; the tools themselves run there."""

from __future__ import annotations

import json

from tests.packaging.release import audited, by_licence


def test_a_package_with_a_known_vulnerability_is_wrong_and_named_with_the_cure():
    fault = {"id": "PYSEC-1", "fix_versions": ["2.1", "3.0"]}
    told = {
        "dependencies": [{"name": "a", "version": "1", "vulns": [fault]}, {"name": "b", "version": "2", "vulns": []}]
    }
    found = audited(json.dumps(told), "")
    assert (found.passed, found.lines) == (False, ("a 1: PYSEC-1, fixed in 2.1, 3.0", "2 packages"))


def test_without_an_answer_of_the_index_nothing_was_audited_and_nothing_is_wrong():
    found = audited("", "ERROR: long\nConnectionError: no route to host")
    assert found.passed is None
    assert found.lines[0].endswith("got no answer of the package index: ConnectionError: no route to host")


def test_packages_stand_under_their_licence():
    components = [
        {"name": "b", "licenses": [{"license": {"id": "MIT"}}]},
        {"name": "a", "licenses": [{"license": {"id": "MIT"}}]},
        {"name": "c", "licenses": [{"expression": "Apache-2.0 OR BSD-3-Clause"}]},
        {"name": "d"},
    ]
    assert by_licence(components) == ["Apache-2.0 OR BSD-3-Clause: c", "MIT: a, b", "none is said: d"]
