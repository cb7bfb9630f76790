"""What users call works through Spark Connect: a client there has neither a JVM nor a SparkContext to reach into."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.system.house.parsing import trees_with

ROOT = Path(__file__).parents[3]
# Names that exist only where the session lives beside a JVM of its own.
CLASSIC = {"_jvm", "_jsc", "_jdf", "_jsq", "_jc", "_jsparkSession", "_sc", "_gateway", "sparkContext", "rdd"}
# These ask a JVM, and do without where there is none: a gateway for variables; a frame for its plan, which a client has
# explained; a query for its checkpoint; a session whether it was stopped.
ALLOWED = {
    ("keyedwm/spark/setup/interpreter.py", "_gateway"),
    ("keyedwm/spark/hosting/lineage.py", "_jdf"),
    ("keyedwm/spark/failures/checkpoint_errors.py", "_jsq"),
    ("keyedwm/spark/api/metrics.py", "_sc"),
    ("keyedwm/spark/api/metrics.py", "_jsc"),
}


def reached(tree: ast.Module) -> Iterator[str]:
    """The names of CLASSIC that a module uses: as an attribute, or as a text for getattr; and imports of py4j."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in CLASSIC:
            yield node.attr
        elif isinstance(node, ast.Constant) and node.value in CLASSIC:
            yield str(node.value)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            yield from (name for name in names if name.partition(".")[0] == "py4j")


def test_no_code_that_runs_in_a_query_or_builds_one_reaches_into_a_jvm():
    rooms = [ROOT / "keyedwm", ROOT / "pyspark_wm_source", ROOT / "pyspark_wm_sink"]
    own = {ROOT / "keyedwm" / "cli", ROOT / "keyedwm" / "testing"}  # they start sessions of their own
    files = [path for room in rooms for path in sorted(room.rglob("*.py")) if not own & set(path.parents)]
    assert len(files) > 100
    found = {
        (str(path.relative_to(ROOT)), name)
        for path, tree in trees_with(rf"\b(?:py4j|{'|'.join(CLASSIC)})\b", files)
        for name in reached(tree)
    }
    assert found == ALLOWED


def test_each_way_to_reach_into_a_jvm_is_found():
    text = "import py4j.java_gateway\nspark._jvm.x()\ngetattr(df, '_jdf')\nspark.sparkContext.stop()\nframe.rddx\n"
    assert sorted(reached(ast.parse(text))) == ["_jdf", "_jvm", "py4j.java_gateway", "sparkContext"]
