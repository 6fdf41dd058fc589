"""A job as an SQS message: what is sent, and what is received."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any, Final

from nimbusq.envelope import Envelope, Unreadable, decode
from nimbusq_sqs.body import UNSAFE, from_text, to_text
from nimbusq_sqs.limits import RESERVED, whole
from nimbusq_sqs.trail import TRAIL, Trail

ERROR: Final = "error"
"""Name of the attribute that says, in a queue of failed jobs, why they are there."""
SYSTEM_ATTRIBUTES: Final = (
    "ApproximateReceiveCount",
    "SentTimestamp",
    "ApproximateFirstReceiveTimestamp",
    "MessageGroupId",
)
_DEFAULT_ATTEMPTS: Final = 4
"""Of a message whose header cannot be read."""
_NO_TRAIL: Final = Trail()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message to send. delay: whole seconds. group: for a FIFO queue. key: what makes a repeated send one."""

    body: str
    delay: int = 0
    trail: Trail | None = None
    error: str = ""
    group: str = ""
    key: str = ""

    @property
    def attributes(self) -> dict[str, str]:
        texts = {TRAIL: self.trail.to_attribute() if self.trail else "", ERROR: self.error}
        return {name: text for name, text in texts.items() if text}

    @property
    def size(self) -> int:
        """Bytes as SQS counts them: the body, and the name, type and value of each attribute."""
        attributes = sum(
            len(name) + len("String") + len(text.encode()) for name, text in self.attributes.items()
        )
        return len(self.body.encode()) + attributes

    def entry(self, *, fifo: bool) -> dict[str, Any]:
        """As `SendMessageBatch` takes it. The delay is always said, since a queue may have one of its own."""
        entry: dict[str, Any] = {"MessageBody": self.body}
        if fifo:
            entry |= {"MessageGroupId": self.group, "MessageDeduplicationId": self.key}
        else:
            entry["DelaySeconds"] = self.delay
        if attributes := self.attributes:
            entry["MessageAttributes"] = {
                name: {"DataType": "String", "StringValue": text} for name, text in attributes.items()
            }
        return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A received message. Times are seconds since the epoch on the server's clock, but for received_at.

    count: receives of this message. received_at: on this process's monotonic clock. left: seconds by which it is
    still too early, because the delay is longer than SQS holds a message back.
    """

    queue: str
    url: str
    fifo: bool
    handle: str
    raw: bytes
    envelope: Envelope | Unreadable
    id: str
    trail: Trail
    count: int
    sent_at: float
    first_received_at: float
    server_time: float
    received_at: float
    group: str = ""
    left: float = 0.0

    @property
    def header(self) -> Envelope | None:
        return self.envelope.header if isinstance(self.envelope, Unreadable) else self.envelope

    @property
    def attempt(self) -> int:
        """Which run this is, if the job is run now."""
        return self.trail.attempts + self.count

    @property
    def max_attempts(self) -> int:
        return self.header.max_attempts if self.header else _DEFAULT_ATTEMPTS

    @property
    def fence(self) -> int:
        return self.trail.fence + self.count

    @property
    def pushed_at(self) -> float:
        return self.sent_at if self.trail.pushed is None else self.trail.pushed

    @property
    def run_at(self) -> float:
        return self.sent_at + _delay_of(self.trail, self.header)

    @property
    def expired(self) -> bool:
        header = self.header
        if header is None or header.expires_in is None:
            return False
        return self.server_time - self.pushed_at >= header.expires_in

    def copy(self, *, delay: float, longest_delay: int, attempts: int, releases: int) -> Outgoing:
        """The same job as another message, not before `delay` seconds; `longest_delay` is the most that SQS may
        be asked to hold it back. Its trail remembers what the receive count of this message cannot."""
        trail = replace(
            self.trail,
            attempts=attempts,
            releases=releases,
            fence=self.fence,
            delay=delay,
            pushed=self.pushed_at,
            id=None if self.header else self.id,
        )
        return Outgoing(
            body=to_text(self.raw),
            delay=min(whole(delay), longest_delay),
            trail=trail,
            group=self.group or self.queue,
            key=f"{self.id}:{self.fence}",
        )


def first_message(envelope: Envelope, *, longest_delay: int, group: str) -> Outgoing:
    """A job's first message."""
    return Outgoing(
        body=to_text(envelope.to_wire()),
        delay=min(whole(envelope.delay), longest_delay),
        group=group,
        key=envelope.id,
    )


def failed_message(raw: bytes, *, job_id: str, error: str, limit: int) -> Outgoing:
    """A job for the queue of failed ones, its error beside it as far as there is room."""
    message = Outgoing(body=to_text(raw), trail=Trail(id=job_id), key=job_id)
    room = min(1_000, limit + RESERVED - message.size - len(ERROR) - len("String"))
    text = UNSAFE.sub("\ufffd", error).encode("utf-8", "replace")[: max(0, room)].decode("utf-8", "ignore")
    return replace(message, error=text)


def server_time(reply: Mapping[str, Any]) -> float:
    """The server's clock by the reply's Date header, in whole seconds; 0 where there is none."""
    date = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return parsedate_to_datetime(date).timestamp() if date else 0.0


def received(
    found: Mapping[str, Any],
    *,
    queue: str,
    url: str,
    fifo: bool,
    longest_delay: int,
    now: float,
    received_at: float,
) -> Message:
    """Read one entry of a `ReceiveMessage` reply; `now` is the `server_time` of that reply."""
    attributes = found.get("Attributes", {})
    own = found.get("MessageAttributes", {}).get(TRAIL, {})
    trail = Trail.from_attribute(own["StringValue"]) if own.get("StringValue") else _NO_TRAIL
    raw = from_text(found.get("Body", ""))
    envelope = decode(raw)
    header = envelope.header if isinstance(envelope, Unreadable) else envelope
    sent_at = int(attributes.get("SentTimestamp", 0)) / 1000
    first = int(attributes.get("ApproximateFirstReceiveTimestamp", 0)) / 1000
    now = max(first, now)
    delay = _delay_of(trail, header)
    return Message(
        queue=queue,
        url=url,
        fifo=fifo,
        handle=found["ReceiptHandle"],
        raw=raw,
        envelope=envelope,
        id=header.id if header else trail.id or found["MessageId"],
        trail=trail,
        count=int(attributes.get("ApproximateReceiveCount", 1)),
        sent_at=sent_at,
        first_received_at=first,
        server_time=now,
        received_at=received_at,
        group=attributes.get("MessageGroupId", ""),
        left=max(0.0, delay - (now - sent_at)) if delay > longest_delay else 0.0,
    )


def _delay_of(trail: Trail, header: Envelope | None) -> float:
    if trail.delay is not None:
        return trail.delay
    return header.delay if header else 0.0
