"""`keyedwm doctor`: what this machine, the settings, the cluster and the registry lack, one line each with the fix.

Rule: it only reads: it sets and commits nothing, and creates nothing except the private cache directory. Ends with 0 if
a query can run, with 1 if a line says FAIL.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from keyedwm.config.secrets import pairs_of, settings_of
from keyedwm.core.errors import OptionError
from keyedwm.core.text import short_repr
from keyedwm.kafka.client.values import check_topics
from keyedwm.registry.options import is_of_registry

HELP = "check machine, settings, cluster and schema registry; print each fix"
EXAMPLE = "keyedwm doctor --bootstrap HOST:PORT --topic NAME"
PAGE = "docs/tutorial/quickstart.md"
_EXAMPLE = "kafka.security.protocol=SASL_SSL"
_SETTING = "spark.sql.shuffle.partitions=4"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--conf, --bootstrap, --option, --topic, --group and --target."""
    parser.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE",
        help="a setting of the session, as for spark-submit (default: the settings of spark-defaults.conf); a secret "
        "as NAME=env:VARIABLE or NAME=file:PATH",
    )  # fmt: skip
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="the Kafka that the query reads")
    parser.add_argument(
        "--option", action="append", default=[], metavar="kafka.NAME=VALUE",
        help="an option of the source or sink: a login's, with secrets as NAME=env:VARIABLE or NAME=file:PATH; "
        "groupIdPrefix or transactionalIdPrefix; schemaRegistry.*, which also checks the registry",
    )  # fmt: skip
    parser.add_argument("--topic", action="append", default=[], help="a topic that the query reads")
    parser.add_argument("--group", metavar="NAME", help="the query's consumer group (default: from the options)")
    parser.add_argument("--target", action="append", default=[], metavar="TOPIC", help="a topic that the query writes")


def run(args: argparse.Namespace) -> int:
    """Print one line for each check."""
    # The variables of the user's shell: importing keyedwm.spark sets missing ones.
    variables = dict(os.environ)
    for name, value, right in (
        ("--bootstrap", args.bootstrap, "host:port of a broker"),
        ("--group", args.group, "a name"),
    ):
        if value is not None and not value.strip():  # a variable of the shell that is not set
            raise OptionError(f"{name} is empty: {right} is expected")
    conf, options = settings_of("--conf", args.conf, _SETTING), pairs_of("--option", args.option, _EXAMPLE)
    if args.bootstrap:
        options["kafka.bootstrap.servers"] = args.bootstrap
    schemas = {name: options.pop(name) for name in [*options] if is_of_registry(name)}
    names = {"--topic": args.topic, "--group": args.group, "--target": args.target}
    for name in (name for name, value in names.items() if value):
        if "kafka.bootstrap.servers" not in options and not (schemas and name != "--group"):
            raise OptionError(f"{name} needs --bootstrap: host:port of a broker is expected")
    table = next((one for one in args.target if "/" in one), None)
    if table is not None:
        raise OptionError(
            f"--target: {short_repr(table)} is a path, a topic is expected; a Delta table needs none: leave it out"
        )
    for name in ("--topic", "--target"):
        check_topics(name, names[name])
    from keyedwm.cli.doctor import cluster, machine
    from keyedwm.cli.doctor import schemas as registry

    findings = [*machine.look(variables), *machine.look_at_settings({**_defaults(variables), **conf})]
    for finding in findings:
        print(finding.line(), flush=True)
    if options:
        for finding in cluster.findings_of(options, args.topic, args.target, args.group):
            print(finding.line(), flush=True)
            findings.append(finding)
    if schemas:
        for finding in registry.look(schemas, [*args.topic, *args.target]):
            print(finding.line(), flush=True)
            findings.append(finding)
    return 1 if any(finding.fails for finding in findings) else 0


def _defaults(variables: dict[str, str]) -> dict[str, str]:
    """Read the settings of spark-defaults.conf, if there is one."""
    home = variables.get("SPARK_CONF_DIR") or (variables.get("SPARK_HOME") and f"{variables['SPARK_HOME']}/conf")
    path = Path(home or "", "spark-defaults.conf")
    if not home or not path.is_file():
        return {}
    pairs = (line.split(None, 1) for line in path.read_text(encoding="utf-8").splitlines())
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2 and not pair[0].startswith("#")}
