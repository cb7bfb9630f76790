"""What works with the requests that brokers offer: the table of docs/reference/versions.md, asked of a cluster.

Rule: the version of the brokers decides nothing: servers that are no Kafka offer some newer requests and not others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from keyedwm.cli.doctor.finding import Finding, fail, ok, warn
from keyedwm.kafka.requests import versions
from keyedwm.kafka.requests.versions import LOSSES, Use

_FIX = "use brokers that offer newer requests, or do without: docs/reference/versions.md"


def capabilities(api_versions: Mapping[int, int], uses: Mapping[Use, bool]) -> Iterator[Finding]:
    """Check each use and each of its checks; uses: whether the query needs it.

    api_versions: the newest version of each request, by API key.
    """
    for use, is_needed in uses.items():
        absent = versions.absent_sentence(use, api_versions)
        if absent is not None:
            yield fail(use.value, absent, _FIX) if is_needed else warn(use.value, absent, _FIX)
            continue
        losses = versions.losses(use, api_versions)
        yield ok(use.value, "all requests that it needs are offered")
        for check in dict.fromkeys(loss.check for loss in LOSSES if loss.use is use):
            consequences = [loss.consequence for loss in losses if loss.check == check]
            yield warn(check, "; ".join(consequences), _FIX) if consequences else ok(check, "works with these brokers")
