"""Pushes that come at once share calls; see tests/unit/test_push_groups.py for how."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from nimbusq.envelope import Envelope, Unique
from tests.drivers.redis_env import redis_env


@pytest.mark.redis
async def test_each_push_hears_who_holds_its_key(redis_url: str) -> None:
    async with redis_env(redis_url, testing=False) as env:
        sent = [
            Envelope(id=str(uuid.uuid4()), name="Probe", queue="mail", unique=Unique(key=str(n % 50)))
            for n in range(100)
        ]
        answers = await asyncio.gather(*(env.adapter.push([envelope]) for envelope in sent))
        assert [answer[0].id for answer in answers] == [envelope.id for envelope in sent]
        assert [answer[0].holder for answer in answers] == [None] * 50 + [
            envelope.id for envelope in sent[:50]
        ]
