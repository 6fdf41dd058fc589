"""taskiq on a Redis list, which forgets a job as it takes it, and on a stream, which keeps it."""

from __future__ import annotations

from taskiq import AsyncBroker
from taskiq_redis import ListQueueBroker, RedisStreamBroker

from benchmarks.peers.taskiq import TaskiqPeer


class TaskiqList(TaskiqPeer):
    def make_broker(self) -> AsyncBroker:
        return ListQueueBroker(self.place.url)


class TaskiqStream(TaskiqPeer):
    def make_broker(self) -> AsyncBroker:
        return RedisStreamBroker(self.place.url)
