"""No queue at all: aioboto3 receives ten, runs them, deletes them."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import aioboto3

from benchmarks.peer import KINDS, Peer

TEN = 10
"""Most messages of one call to SQS."""


class SqsLoop(Peer):
    """One such loop."""

    async def install(self) -> None:
        await self.connect()
        await self._client.create_queue(QueueName=self.place.name)
        await self.aclose()

    async def connect(self) -> None:
        self._opened = AsyncExitStack()
        client = aioboto3.Session().client("sqs", endpoint_url=self.place.url)
        self._client: Any = await self._opened.enter_async_context(client)
        self._queue = f"{self.place.url}/000000000000/{self.place.name}"

    async def aclose(self) -> None:
        await self._opened.aclose()

    async def send(self, kind: str, i: int) -> None:
        await self._client.send_message(QueueUrl=self._queue, MessageBody=_body(kind, i))

    async def send_many(self, kind: str, numbers: range) -> None:
        await self._send_batches(kind, numbers)

    async def send_delayed(self, numbers: range, seconds: float) -> None:
        await self._send_batches("noop", numbers, DelaySeconds=min(900, int(seconds)))

    async def _send_batches(self, kind: str, numbers: range, **more: int) -> None:
        for start in range(0, len(numbers), TEN):
            entries = [
                {"Id": str(i), "MessageBody": _body(kind, i), **more} for i in numbers[start : start + TEN]
            ]
            await self._client.send_message_batch(QueueUrl=self._queue, Entries=entries)

    async def work(self, concurrency: int) -> None:  # noqa: ARG002 - of one receive
        await self.connect()
        await self.receive_and_delete()

    async def receive_and_delete(self) -> None:
        while True:
            answer = await self._client.receive_message(
                QueueUrl=self._queue, MaxNumberOfMessages=TEN, WaitTimeSeconds=1
            )
            messages = answer.get("Messages", [])
            await asyncio.gather(*[_run(message) for message in messages])
            entries = [{"Id": m["MessageId"], "ReceiptHandle": m["ReceiptHandle"]} for m in messages]
            if entries:
                await self._client.delete_message_batch(QueueUrl=self._queue, Entries=entries)


class SqsLoops(SqsLoop):
    """As many of them side by side as fill the slots."""

    async def work(self, concurrency: int) -> None:
        await self.connect()
        async with asyncio.TaskGroup() as loops:
            for _ in range(max(1, concurrency // TEN)):
                loops.create_task(self.receive_and_delete())


def _body(kind: str, i: int) -> str:
    return json.dumps({"kind": kind, "i": i})


async def _run(message: dict[str, Any]) -> None:
    job = json.loads(message["Body"])
    await KINDS[job["kind"]](job["i"])
