"""Connections taken over from redis-py: what happens to one that ends, that is forgotten, or that says too much."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hiredis import pack_command

from nimbusq.errors import StoreUnavailable
from nimbusq_redis import RedisAdapter
from nimbusq_redis.client import OneServer
from nimbusq_redis.exchange import Exchange
from tests.drivers.redis_env import redis_env

pytestmark = pytest.mark.redis


@pytest.fixture
async def adapter(redis_url: str) -> AsyncIterator[RedisAdapter]:
    async with redis_env(redis_url) as env:
        yield env.adapter


@pytest.fixture
def server(adapter: RedisAdapter) -> OneServer:
    server = adapter.link._open_server
    assert isinstance(server, OneServer)
    return server


async def connection_id(server: OneServer) -> int:
    """Of the connection at hand."""
    return int(await server.call("CLIENT", "ID"))


async def lost(exchange: Exchange) -> None:
    async with asyncio.timeout(5):
        while not exchange.lost:
            await asyncio.sleep(0.005)


async def test_one_connection_serves_call_after_call(server: OneServer) -> None:
    assert len({await connection_id(server) for _ in range(5)}) == 1


async def test_calls_at_once_have_a_connection_each_and_get_their_own_answers(server: OneServer) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(server.call("ECHO", f"{n}" * 50_000)) for n in range(20)]
    assert [task.result() for task in tasks] == [f"{n}".encode() * 50_000 for n in range(20)]
    assert len(server._idle) == 20


async def test_a_connection_that_ended_while_it_was_idle_is_not_used(
    adapter: RedisAdapter, server: OneServer
) -> None:
    first = await connection_id(server)
    (exchange,) = server._idle
    await adapter.link.client.client_kill_filter(_id=str(first))
    await lost(exchange)
    assert await connection_id(server) != first


async def test_a_connection_that_ends_under_a_call_is_a_store_that_cannot_be_used_now(
    adapter: RedisAdapter, server: OneServer
) -> None:
    first = await connection_id(server)
    waiting = asyncio.ensure_future(adapter.link.command("BLPOP", adapter.link.key("bell:nobody"), 5))
    await asyncio.sleep(0)
    await adapter.link.client.client_kill_filter(_id=str(first))
    with pytest.raises(StoreUnavailable, match="the connection has ended"):
        await waiting


async def test_an_answer_that_nobody_asked_for_ends_the_connection(server: OneServer) -> None:
    """It would be taken for the answer of the next call."""
    first = await connection_id(server)
    (exchange,) = server._idle
    exchange._transport.write(pack_command(("ECHO", "stale")))
    await lost(exchange)
    assert await server.call("ECHO", "fresh") == b"fresh"
    assert await connection_id(server) != first


async def test_a_cancelled_call_leaves_no_answer_behind(server: OneServer) -> None:
    first = await connection_id(server)
    async with asyncio.TaskGroup() as group:
        cut = group.create_task(server.call("ECHO", "stale"))
        await asyncio.sleep(0)
        cut.cancel()
    assert await server.call("ECHO", "fresh") == b"fresh"
    assert await connection_id(server) != first


async def test_an_error_is_an_answer_and_keeps_the_connection(
    adapter: RedisAdapter, server: OneServer
) -> None:
    first = await connection_id(server)
    key = adapter.link.key("bell:text")
    await server.call("SET", key, "no list")
    with pytest.raises(Exception, match="WRONGTYPE"):
        await server.call("ECHO", "not this one", after=("BLPOP", key, 1))
    assert await connection_id(server) == first


async def test_connections_in_use_are_forgotten_when_they_have_been_answered(
    adapter: RedisAdapter, server: OneServer
) -> None:
    """They may lead to a server that is not the master any more."""
    clients = adapter.link.client.client_list
    first = await connection_id(server)
    call = asyncio.ensure_future(server.call("CLIENT", "ID"))
    await asyncio.sleep(0)
    await server.forget()
    assert await call == first
    async with asyncio.timeout(5):
        while str(first) in {client["id"] for client in await clients()}:
            await asyncio.sleep(0.005)
    assert await connection_id(server) != first


async def test_closing_waits_for_the_end_of_each_connection(redis_url: str) -> None:
    """redis-py waits with its own protocol, which must be told; after 5 s it gives up by an error."""
    async with redis_env(redis_url, dropped=False) as env:
        server = env.adapter.link._open_server
        assert isinstance(server, OneServer)
        await connection_id(server)
        (exchange,) = server._idle
    assert exchange.lost


async def test_half_of_the_connections_stay_for_users_of_the_client(redis_url: str) -> None:
    url = f"{redis_url}{'&' if '?' in redis_url else '?'}max_connections=4"
    async with redis_env(url) as env:
        server = env.adapter.link._open_server
        assert isinstance(server, OneServer)
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(server.call("PING"))
        assert await env.adapter.link.client.ping()
