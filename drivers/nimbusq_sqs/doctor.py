"""What `nimbusq doctor` says of the queues."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from nimbusq.driver import Finding
from nimbusq.errors import StoreError
from nimbusq_sqs.client import QueueMissing, SqsClient
from nimbusq_sqs.limits import MAX_MESSAGE
from nimbusq_sqs.names import Addresses
from nimbusq_sqs.queues import Queues

_ATTRIBUTES: Final = ("RedrivePolicy", "MessageRetentionPeriod", "MaximumMessageSize")
_ATTEMPTS: Final = 4
"""Runs of a job that says nothing of retries."""
_SHORT: Final = 4 * 86_400
"""Retention in seconds below which an outage over a long weekend loses jobs; what SQS gives a new queue."""


async def examine(client: SqsClient, queues: Queues, *, cleartext: bool) -> list[Finding]:
    """Findings over all queues that can be listed or were named."""
    findings = []
    if cleartext:
        findings.append(Finding("warning", "jobs travel to the SQS endpoint in clear text: use https"))
    try:
        urls = await _urls(client, queues)
    except StoreError as error:
        return [
            *findings,
            Finding("warning", f"the queues cannot be listed, so they were not checked: {error}"),
        ]
    if not urls:
        findings.append(Finding("warning", "there are no queues yet: `nimbusq migrate up` makes them"))
    for url in urls:
        findings += await _examine_queue(client, url)
    return findings


async def _urls(client: SqsClient, queues: Queues) -> list[str]:
    addresses: Addresses = queues.addresses
    given = [*addresses.urls.values(), *(queue.url for queue in queues.known)]
    if not addresses.urls and addresses.url_prefix is None:
        given += await _listed(client, f"{addresses.prefix}-")
    return sorted(set(given))


async def _listed(client: SqsClient, prefix: str) -> list[str]:
    urls: list[str] = []
    more: dict[str, Any] = {}
    while True:
        page = await client.call("list_queues", QueueNamePrefix=prefix, MaxResults=1_000, **more)
        urls += page.get("QueueUrls", ())
        if not page.get("NextToken"):
            return urls
        more = {"NextToken": page["NextToken"]}


async def _examine_queue(client: SqsClient, url: str) -> list[Finding]:
    name = url.rpartition("/")[2]
    try:
        reply = await client.call("get_queue_attributes", QueueUrl=url, AttributeNames=list(_ATTRIBUTES))
    except QueueMissing:
        return [Finding("error", f"{name} does not exist: `nimbusq migrate up` makes it")]
    except StoreError as error:
        return [Finding("warning", f"{name} cannot be examined: {error}")]
    return [Finding("ok", f"{name} is there"), *_warnings(name, reply.get("Attributes", {}))]


def _warnings(name: str, attributes: Mapping[str, str]) -> Sequence[Finding]:
    findings = []
    if policy := attributes.get("RedrivePolicy"):
        receives = int(json.loads(policy).get("maxReceiveCount", 0))
        needed = _ATTEMPTS + 1
        text = f"{name} has a redrive policy that moves a message away after {receives} receives"
        if receives < needed:
            findings.append(
                Finding(
                    "warning",
                    f"{text}, before nimbusq has used up its attempts: raise maxReceiveCount above retries + 1 of "
                    f"every job (by default {needed} or more), or remove the policy",
                )
            )
        else:
            findings.append(Finding("ok", f"{text}: enough for jobs with up to {receives - 2} retries"))
    if (retention := int(attributes.get("MessageRetentionPeriod", _SHORT))) < _SHORT:
        findings.append(Finding("warning", f"{name} drops jobs that wait longer than {retention / 3600:g} h"))
    if (limit := int(attributes.get("MaximumMessageSize", MAX_MESSAGE))) < MAX_MESSAGE:
        findings.append(Finding("ok", f"{name} takes messages up to {limit:,} bytes"))
    return findings
