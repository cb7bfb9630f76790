"""The dashboard and the alert rules of monitoring/ ask for what is exported, and alerts fire where they must."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from keyedwm.spark.metrics.catalogue import METRICS

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs"
MONITORING = ROOT / "monitoring"
RULES = MONITORING / "prometheus" / "keyedwm-alerts.yml"
DASHBOARD = MONITORING / "grafana" / "dashboards" / "keyedwm.json"
PLAYED = Path(__file__).with_name("alerts.yml")
PROMTOOL = shutil.which("promtool")
LABELS = {metric.prometheus: set(metric.labels) for metric in METRICS}
OF_SCRAPES = {"job", "instance"}

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (apt-get install prometheus)")


def expressions() -> Iterator[str]:
    """Every query of the dashboard, with its variables filled in."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$__rate_interval", "5m").replace("$query", ".*")


def alerts() -> list[str]:
    return re.findall(r"- alert: (\w+)", RULES.read_text())


@pytest.mark.parametrize("path", [RULES, DASHBOARD, PLAYED], ids=lambda path: path.name)
def test_only_metrics_that_are_exported_are_asked_for(path):
    named = set(re.findall(r"\bkeyedwm_\w+", path.read_text()))
    assert len(named) > 5
    assert named - LABELS.keys() == set()


def test_only_labels_that_are_exported_are_shown():
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            known = OF_SCRAPES.union(*(LABELS[name] for name in re.findall(r"\bkeyedwm_\w+", target["expr"])))
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            joined = set(re.findall(r"[\w]+", " ".join(re.findall(r"\b(?:by|on) \(([^)]*)\)", target["expr"]))))
            assert (shown | joined) - known == set(), panel["title"]


def test_every_panel_has_a_place_of_its_own():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    taken = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_every_alert_is_played():
    assert set(alerts()) == set(re.findall(r"Keyedwm\w+", PLAYED.read_text()))


def promtool(*words: object) -> str:
    done = subprocess.run([str(PROMTOOL), *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_promtool
def test_prometheus_takes_its_configuration_and_rules():
    found = promtool("check", "config", MONITORING / "prometheus" / "prometheus.yml")
    assert f"SUCCESS: {len(alerts())} rules found" in found


@needs_promtool
def test_each_alert_fires_where_it_must_and_not_where_it_must_not(tmp_path):
    shutil.copy(RULES, tmp_path)
    shutil.copy(PLAYED, tmp_path)
    promtool("test", "rules", tmp_path / PLAYED.name)


@needs_promtool
def test_prometheus_understands_every_query_of_the_dashboard(tmp_path):
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(expressions())]
    assert len(rules) > 15
    file = tmp_path / "panels.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))  # YAML reads JSON
    assert f"{len(rules)} rules found" in promtool("check", "rules", file)


def test_the_page_lists_every_metric_as_the_code_has_it():
    """The table of docs/reference/metrics.md is these lines."""
    page = (PAGES / "reference" / "metrics.md").read_text()
    found = page[page.index("<!-- metrics: begin -->") : page.index("<!-- metrics: end -->")].splitlines()[3:]
    assert found == [
        f"| `{one.prometheus}` | {one.kind.value} | {', '.join(f'`{label}`' for label in one.labels)} | {one.help} |"
        for one in METRICS
    ]


def test_the_page_tells_of_every_alert_and_no_other():
    assert re.findall(r"^\| `(Keyedwm\w+)` \|", (PAGES / "how-to" / "monitor.md").read_text(), re.MULTILINE) == alerts()
