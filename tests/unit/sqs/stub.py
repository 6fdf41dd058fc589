"""SQS in memory, on a fake clock and as strict as AWS, for what servers that stand in for it let pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError

from nimbusq.clock import Clock
from nimbusq.driver import DriverSettings
from nimbusq.testing import FakeClock
from nimbusq_sqs import SqsAdapter


class QueueDoesNotExist(ClientError):
    """As the client makes it from the service's description."""


class RequestThrottled(ClientError):
    """Likewise."""


def error(kind: type[ClientError] = ClientError, code: str = "Invalid", status: int = 400) -> ClientError:
    return kind(
        {"Error": {"Code": code, "Message": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "op"
    )


@dataclass
class Stored:
    """A message on the server."""

    id: str
    entry: Mapping[str, Any]
    sent: float
    visible_at: float
    count: int = 0
    first_received: float = 0.0
    received: float = 0.0
    handle: str = ""


@dataclass
class StubSqs:
    """The client. calls: what was asked, in order. interrupt: called before each call; what it raises is raised.
    refuse: called for each entry of a batch; a text is the code with which that entry fails."""

    clock: Clock
    attributes: Mapping[str, str] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    interrupt: Callable[[str, Mapping[str, Any]], BaseException | None] = lambda operation, asked: None
    refuse: Callable[[str, Mapping[str, Any]], str | None] = lambda operation, entry: None
    queues: dict[str, list[Stored]] = field(default_factory=dict)
    received_handles: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    exceptions: Any = field(
        default_factory=lambda: SimpleNamespace(
            QueueDoesNotExist=QueueDoesNotExist, RequestThrottled=RequestThrottled
        )
    )

    def asked(self, operation: str) -> list[dict[str, Any]]:
        return [parameters for name, parameters in self.calls if name == operation]

    def entries(self, operation: str) -> list[Mapping[str, Any]]:
        return [entry for parameters in self.asked(operation) for entry in parameters["Entries"]]

    def _call(self, operation: str, parameters: dict[str, Any]) -> None:
        self.calls.append((operation, parameters))
        if (trouble := self.interrupt(operation, parameters)) is not None:
            raise trouble

    def _queue(self, url: str) -> list[Stored]:
        if url not in self.queues:
            raise error(QueueDoesNotExist)
        return self.queues[url]

    # --- queues ----------------------------------------------------------------------------------------------

    async def get_queue_url(self, **asked: Any) -> dict[str, Any]:
        self._call("get_queue_url", asked)
        self._queue(url := f"http://stub/{asked['QueueName']}")
        return {"QueueUrl": url}

    async def create_queue(self, **asked: Any) -> dict[str, Any]:
        self._call("create_queue", asked)
        url = f"http://stub/{asked['QueueName']}"
        self.queues.setdefault(url, [])
        return {"QueueUrl": url}

    async def get_queue_attributes(self, **asked: Any) -> dict[str, Any]:
        self._call("get_queue_attributes", asked)
        self._queue(asked["QueueUrl"])
        return {"Attributes": self.attributes}

    async def list_queues(self, **asked: Any) -> dict[str, Any]:
        self._call("list_queues", asked)
        return {"QueueUrls": [url for url in self.queues if asked["QueueNamePrefix"] in url]}

    # --- messages --------------------------------------------------------------------------------------------

    async def send_message_batch(self, **asked: Any) -> dict[str, Any]:
        self._call("send_message_batch", asked)
        queue = self._queue(asked["QueueUrl"])
        sizes = [_size(entry) for entry in asked["Entries"]]
        if len(sizes) > 10 or sum(sizes) > 1_048_576:
            raise error(code="BatchRequestTooLong")
        return self._each("send_message_batch", asked["Entries"], lambda entry: self._store(queue, entry))

    def _store(self, queue: list[Stored], entry: Mapping[str, Any]) -> str | None:
        delay = entry.get("DelaySeconds", 0)
        if not 0 <= delay <= 900:
            return "InvalidParameterValue"
        now = self.clock.time()
        queue.append(Stored(f"m{len(self.calls)}-{entry['Id']}", entry, now, now + delay))
        self.arrived.set()
        return None

    async def receive_message(self, **asked: Any) -> dict[str, Any]:
        self._call("receive_message", asked)
        deadline = self.clock.monotonic() + asked["WaitTimeSeconds"]
        while not (found := self._receive(asked)) and self.clock.monotonic() < deadline:
            await self.clock.sleep(0.5)
        date = format_datetime(datetime.fromtimestamp(int(self.clock.time()), UTC), usegmt=True)
        return {"Messages": found, "ResponseMetadata": {"HTTPHeaders": {"date": date}}}

    def _receive(self, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
        now = self.clock.time()
        ready = [one for one in self._queue(asked["QueueUrl"]) if one.visible_at <= now]
        return [self._hand_out(one, now, asked) for one in ready[: asked["MaxNumberOfMessages"]]]

    def _hand_out(self, one: Stored, now: float, asked: Mapping[str, Any]) -> dict[str, Any]:
        self.received_handles += 1
        one.handle, one.received = f"r{self.received_handles}", now
        one.first_received = one.first_received or now
        one.count += 1
        one.visible_at = now + asked["VisibilityTimeout"]
        attributes = {
            "ApproximateReceiveCount": str(one.count),
            "SentTimestamp": str(round(one.sent * 1000)),
            "ApproximateFirstReceiveTimestamp": str(round(one.first_received * 1000)),
        }
        if group := one.entry.get("MessageGroupId"):
            attributes["MessageGroupId"] = group
        return {
            "MessageId": one.id,
            "ReceiptHandle": one.handle,
            "Body": one.entry["MessageBody"],
            "Attributes": attributes,
            "MessageAttributes": one.entry.get("MessageAttributes", {}),
        }

    async def delete_message_batch(self, **asked: Any) -> dict[str, Any]:
        self._call("delete_message_batch", asked)
        queue = self._queue(asked["QueueUrl"])
        return self._each("delete_message_batch", asked["Entries"], lambda entry: self._delete(queue, entry))

    def _delete(self, queue: list[Stored], entry: Mapping[str, Any]) -> str | None:
        held = _held(queue, entry)
        if held is None:
            return "ReceiptHandleIsInvalid"
        queue.remove(held)
        return None

    async def change_message_visibility_batch(self, **asked: Any) -> dict[str, Any]:
        self._call("change_message_visibility_batch", asked)
        queue = self._queue(asked["QueueUrl"])
        return self._each(
            "change_message_visibility_batch", asked["Entries"], lambda entry: self._hide(queue, entry)
        )

    def _hide(self, queue: list[Stored], entry: Mapping[str, Any]) -> str | None:
        held, now = _held(queue, entry), self.clock.time()
        if held is None:
            return "ReceiptHandleIsInvalid"
        if now + entry["VisibilityTimeout"] > held.received + 43_200:
            return "InvalidParameterValue"
        held.visible_at = now + entry["VisibilityTimeout"]
        return None

    def _each(
        self,
        operation: str,
        entries: Sequence[Mapping[str, Any]],
        act: Callable[[Mapping[str, Any]], str | None],
    ) -> dict[str, Any]:
        reply: dict[str, list[dict[str, Any]]] = {"Successful": [], "Failed": []}
        for entry in entries:
            code = self.refuse(operation, entry)
            sender = code is None
            code = act(entry) if code is None else code
            if code is None:
                reply["Successful"].append({"Id": entry["Id"]})
            else:
                reply["Failed"].append({"Id": entry["Id"], "SenderFault": sender, "Code": code})
        return reply


def _held(queue: list[Stored], entry: Mapping[str, Any]) -> Stored | None:
    return next((one for one in queue if one.handle == entry["ReceiptHandle"]), None)


def _size(entry: Mapping[str, Any]) -> int:
    attributes = entry.get("MessageAttributes", {}).items()
    extra = sum(len(name) + len("String") + len(value["StringValue"].encode()) for name, value in attributes)
    return len(entry["MessageBody"].encode()) + extra


class StubSession:
    """Of the shape that the driver takes."""

    def __init__(self, client: StubSqs) -> None:
        self._client = client

    @asynccontextmanager
    async def client(self, service: str, **arguments: Any) -> AsyncIterator[StubSqs]:
        assert service == "sqs"
        assert arguments["config"].retries == {"total_max_attempts": 1}
        yield self._client


class Desk:
    """An adapter on a stubbed client, with its clock."""

    def __init__(self, clock: FakeClock | None = None, **options: Any) -> None:
        self.clock = clock or FakeClock()
        self.sqs = StubSqs(self.clock, attributes=options.pop("attributes", {}))
        self.adapter = SqsAdapter(
            session=StubSession(self.sqs), settings=DriverSettings(), clock=self.clock, **options
        )
