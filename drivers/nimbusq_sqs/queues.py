"""The queues on the server: found by URL or by name, made where they are missing, asked for their limit once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nimbusq.driver import Depth
from nimbusq.errors import StoreError
from nimbusq_sqs.client import QueueMissing, SqsClient
from nimbusq_sqs.limits import MAX_MESSAGE, RETENTION
from nimbusq_sqs.names import Address, Addresses

_COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """max_message: bytes of one message with its attributes."""

    name: str
    url: str
    fifo: bool = False
    max_message: int = MAX_MESSAGE


class Queues:
    """Remembers what it has found. Owned by the adapter's event loop; `_lock` keeps two from making one queue."""

    def __init__(self, client: SqsClient, addresses: Addresses) -> None:
        self._client = client
        self.addresses = addresses
        self._found: dict[Address, Queue] = {}
        self._lock = asyncio.Lock()

    def open(self) -> None:
        """Begin anew, in the event loop that calls."""
        self._found.clear()
        self._lock = asyncio.Lock()

    @property
    def known(self) -> Sequence[Queue]:
        """The queues that were used so far."""
        return list(self._found.values())

    async def get(self, queue: str) -> Queue:
        """Find the queue, or make it. Raises StoreError where neither can be done."""
        return await self._get(self.addresses.of(queue))

    async def failed_of(self, queue: str) -> Queue:
        """The queue that takes the failed jobs of `queue`."""
        return await self._get(self.addresses.failed_of(queue))

    async def _get(self, address: Address) -> Queue:
        found = self._found.get(address)
        if found is not None and found.url not in self._client.missing:
            return found
        async with self._lock:
            found = self._found.get(address)
            if found is None or found.url in self._client.missing:
                found = self._found[address] = await self._find(address) or await self._make(address)
                self._client.missing.discard(found.url)
        return found

    async def _find(self, address: Address) -> Queue | None:
        url = address.url or await self._url_of(address.name)
        return await self._look(address, url) if url else None

    async def _look(self, address: Address, url: str) -> Queue | None:
        """Ask the queue for its limit; None where there is none of that URL."""
        try:
            reply = await self._client.call(
                "get_queue_attributes", QueueUrl=url, AttributeNames=["MaximumMessageSize"]
            )
        except QueueMissing:
            return None
        except StoreError as error:
            if not _is_refusal(error):
                raise
            reply = {}  # a role that may only send need not be allowed to ask
        return _queue(address, url, reply.get("Attributes", {}))

    async def _url_of(self, name: str) -> str | None:
        try:
            url: str = (await self._client.call("get_queue_url", QueueName=name))["QueueUrl"]
        except QueueMissing:
            return None
        return url

    async def _make(self, address: Address) -> Queue:
        attributes = {"MessageRetentionPeriod": str(RETENTION)}
        if address.fifo:
            attributes["FifoQueue"] = "true"
        try:
            reply = await self._client.call("create_queue", QueueName=address.name, Attributes=attributes)
        except StoreError as error:
            if not _is_refusal(error):
                raise
            raise StoreError(
                f"queue {address.queue} is not there ({address.name}) and may not be made from here: "
                f"run `nimbusq migrate up` with a role that may. {error}"
            ) from error
        url = address.url or reply["QueueUrl"]
        return await self._look(address, url) or _queue(address, url, {})  # SQS may take a second to know it

    async def depth(self, queue: str) -> Depth:
        """Approximate, as all that SQS tells of a queue; a queue that is not there is empty, and stays so.

        A job that waits for its retry is invisible like one that runs, and is counted as running.
        """
        address = self.addresses.of(queue)
        known = self._found.get(address)
        url = known.url if known else address.url or await self._url_of(address.name)
        counts: Mapping[str, Any] = {}
        if url is not None:
            try:
                reply = await self._client.call(
                    "get_queue_attributes", QueueUrl=url, AttributeNames=list(_COUNTS)
                )
                counts = reply.get("Attributes", {})
            except QueueMissing:
                pass
        pending, delayed, running = (int(counts.get(name, 0)) for name in _COUNTS)
        return Depth(queue=queue, pending=pending, delayed=delayed, running=running)


def _queue(address: Address, url: str, attributes: Mapping[str, str]) -> Queue:
    limit = int(attributes.get("MaximumMessageSize", MAX_MESSAGE))
    return Queue(name=address.queue, url=url, fifo=address.fifo, max_message=min(limit, MAX_MESSAGE))


def _is_refusal(error: StoreError) -> bool:
    return type(error) is StoreError
