"""Writing records: acknowledged by all in-sync replicas, each once a producer's life."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaProducer

from nimbusq_kafka.broker_clock import BrokerClock
from nimbusq_kafka.config import DEADLINE, KafkaConfig
from nimbusq_kafka.records import Outgoing
from nimbusq_kafka.troubles import TROUBLES, is_refusal, translating

_HEADROOM = 65_536
"""Bytes beside the body: headers, among them the traceback of a job that failed."""
_BATCH = 262_144


def max_record(config: KafkaConfig) -> int:
    """The greatest record in bytes, for the producer and for the topics."""
    return config.max_body + _HEADROOM


class Outbox:
    """An idempotent producer. Owned by one event loop.

    A producer that could not deliver a batch has a gap in its sequence, which the brokers do not forgive, so it is
    replaced before the next record.
    """

    def __init__(self, config: KafkaConfig, clock: BrokerClock | None = None) -> None:
        self._config = config
        self._clock = clock
        self._producer: Any = None
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Connect. Raises StoreUnavailable."""
        await self._ready()

    async def aclose(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await self._stop(producer)

    async def send(self, records: Sequence[Outgoing]) -> list[BaseException | None]:
        """Write the records and wait; for each None, or what prevented it. Raises StoreUnavailable where none
        was handed to the brokers."""
        producer = await self._ready()
        futures = [await self._hand_over(producer, record) for record in records]
        try:
            async with asyncio.timeout(DEADLINE):
                answers = await asyncio.gather(*futures, return_exceptions=True)
        except TimeoutError as error:
            answers = [error] * len(records)
        errors = [answer if isinstance(answer, BaseException) else None for answer in answers]
        self._learn(answers)
        if any(error is not None and not is_refusal(error) for error in errors):
            await self._replace(producer)
        return errors

    async def _hand_over(self, producer: Any, record: Outgoing) -> asyncio.Future[Any]:
        try:
            async with asyncio.timeout(DEADLINE):
                future: asyncio.Future[Any] = await producer.send(
                    record.topic, record.value, headers=record.headers
                )
        except TROUBLES as error:
            future = asyncio.get_running_loop().create_future()
            future.set_exception(error)
        return future

    def _learn(self, answers: Sequence[Any]) -> None:
        if self._clock is None:
            return
        for answer in answers:
            if not isinstance(answer, BaseException) and answer.timestamp_type == 1:
                self._clock.saw(answer.timestamp / 1000)

    async def _ready(self) -> Any:
        async with self._opening:
            if self._producer is None:
                producer = AIOKafkaProducer(
                    **self._config.for_client(),
                    acks="all",
                    enable_idempotence=True,
                    max_request_size=max_record(self._config),
                    max_batch_size=_BATCH,
                )
                with translating("connecting"):
                    try:
                        async with asyncio.timeout(DEADLINE):
                            await producer.start()
                    except BaseException:
                        await producer.stop()
                        raise
                self._producer = producer
            return self._producer

    async def _replace(self, producer: Any) -> None:
        if self._producer is producer:
            self._producer = None
            await self._stop(producer)

    async def _stop(self, producer: Any) -> None:
        """Without waiting for ever for records whose senders have given up on them."""
        try:
            async with asyncio.timeout(DEADLINE):
                await producer.stop()
        except TROUBLES:
            await producer.client.close()
