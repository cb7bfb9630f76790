"""What works with the requests that brokers offer: the table of docs/reference/versions.md, asked of a cluster.

Rule: the version of the brokers decides nothing: servers that are no Kafka offer some newer requests and not others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from keyedwm.cli.doctor.finding import Finding, fail, ok, warn
from keyedwm.kafka.requests import versions
from keyedwm.kafka.requests.versions import LOSSES, Use

_FIX = "use brokers that offer newer requests, or do without: docs/reference/versions.md"


def capabilities(offered: Mapping[int, int], uses: Mapping[Use, bool]) -> Iterator[Finding]:
    """Check each use and each of its checks; uses: whether the query needs it.

    offered: the newest version of each request, by API key.
    """
    for use, is_needed in uses.items():
        absent = versions.absent_sentence(use, offered)
        if absent is not None:
            yield fail(use.value, absent, _FIX) if is_needed else warn(use.value, absent, _FIX)
            continue
        lost = versions.losses(use, offered)
        yield ok(use.value, "all requests that it needs are offered")
        for check in dict.fromkeys(loss.check for loss in LOSSES if loss.use is use):
            found = [loss.consequence for loss in lost if loss.check == check]
            yield warn(check, "; ".join(found), _FIX) if found else ok(check, "works with these brokers")
