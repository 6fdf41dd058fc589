"""The redis driver on TLS, behind sentinels, on a cluster, and with replicas: each starts its own servers."""

from __future__ import annotations

import asyncio
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from nimbusq.driver import Done, DriverSettings, Lane, Settlement, SettleStatus, Want
from nimbusq.envelope import Envelope, Overlap, Unique
from nimbusq.errors import ConfigError, StoreUnavailable
from nimbusq.testing.suite import DriverSuite
from nimbusq_redis import RedisAdapter, RedisOptions
from tests.drivers.redis_env import RedisEnv, opened, redis_env
from tests.drivers.redis_servers import free_port, redis_process, redis_server, sentinel_process

pytestmark = pytest.mark.redis


def job(**fields: object) -> Envelope:
    return Envelope(**{"id": str(uuid.uuid4()), "name": "Probe", "queue": "mail", **fields})  # type: ignore[arg-type]


def want(**fields: object) -> Want:
    lanes = (Lane(queue="mail", limit=10),)
    return Want(**{"token": uuid.uuid4().hex, "limit": 10, "lease": 30.0, "lanes": lanes, **fields})  # type: ignore[arg-type]


async def runs_jobs(adapter: RedisAdapter) -> None:
    """A job goes through, and one that is pushed while a claim waits."""
    await adapter.push([job(unique=Unique(key="k"), overlap=Overlap(key="o"))])
    (claim,) = (await adapter.claim(want())).claims
    (settled,) = await adapter.settle([Settlement(claim=claim, outcome=Done(b"1"))])
    assert settled.status is SettleStatus.SETTLED
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        waiting = group.create_task(adapter.claim(want(wait=4.0)))
        await asyncio.sleep(0.1)
        await adapter.push([job()])
    assert len(waiting.result().claims) == 1


class TestTls:
    @pytest.fixture
    def certificate(self, tmp_path: Path) -> Path:
        path = tmp_path / "server"
        subprocess.run(
            [
                *(
                    "openssl",
                    "req",
                    "-x509",
                    "-newkey",
                    "rsa:2048",
                    "-nodes",
                    "-days",
                    "2",
                    "-subj",
                    "/CN=localhost",
                ),
                *("-addext", "subjectAltName=DNS:localhost"),
                *("-keyout", f"{path}.key", "-out", f"{path}.crt"),
            ],
            check=True,
            capture_output=True,
        )
        return path

    @pytest.fixture
    async def port(self, tmp_path: Path, certificate: Path) -> AsyncIterator[int]:
        tls = free_port()
        flags = (
            "--tls-port",
            str(tls),
            "--tls-cert-file",
            f"{certificate}.crt",
            "--tls-key-file",
            f"{certificate}.key",
        )
        async with redis_server(tmp_path, *flags, "--tls-auth-clients", "no"):
            yield tls

    async def test_a_certificate_that_is_trusted(self, port: int, certificate: Path) -> None:
        url = f"rediss://localhost:{port}/0?ssl_ca_certs={certificate}.crt"
        async with redis_env(url, testing=False) as env:
            await runs_jobs(env.adapter)

    async def test_one_that_is_not_is_refused(self, port: int) -> None:
        adapter = RedisAdapter.from_url(f"rediss://localhost:{port}/0", DriverSettings())
        with pytest.raises(StoreUnavailable, match="certificate"):
            await adapter.open()

    async def test_one_for_another_host_is_refused(self, port: int, certificate: Path) -> None:
        url = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificate}.crt"
        with pytest.raises(StoreUnavailable, match="certificate"):
            await RedisAdapter.from_url(url, DriverSettings()).open()


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[int, Redis]]:
    """A master's port, and another server that can become its replica."""
    for name in ("master", "replica"):
        (tmp_path / name).mkdir()
    async with (
        redis_server(tmp_path / "master") as master,
        redis_server(tmp_path / "replica") as port,
        Redis(port=port) as replica,
    ):
        yield master, replica


async def test_sentinels_lead_to_the_master_and_to_the_next_one(
    tmp_path: Path, pair: tuple[int, Redis]
) -> None:
    master, replica = pair
    await replica.replicaof("127.0.0.1", str(master))
    with sentinel_process(tmp_path, master) as watching:
        url = f"redis+sentinel://127.0.0.1:{watching}/jobs/0"
        async with redis_env(url, testing=False, dropped=False) as env:
            await env.adapter.push([job()])
            await _until_replicated(replica)
            await _fail_over(watching)
            async with asyncio.timeout(20):
                while (await replica.info("replication"))["role"] != "master":
                    await asyncio.sleep(0.1)
                async with Redis(port=master) as old:  # what it takes now is lost: the window of a failover
                    await old.shutdown(nosave=True)
                while not (claims := await _claims_if_it_can(env.adapter)):
                    await asyncio.sleep(0.1)
            assert len(claims) == 1
            assert await replica.hlen(env.adapter.link.key("running")) == 1


async def _until_replicated(replica: Redis) -> None:
    async with asyncio.timeout(15):
        while (await replica.info("replication")).get("master_link_status") != "up":
            await asyncio.sleep(0.05)


async def _fail_over(port: int) -> None:
    async with Redis(port=port) as client, asyncio.timeout(15):
        while (await client.sentinel_master("jobs"))["num-slaves"] < 1:
            await asyncio.sleep(0.1)
        await client.execute_command("SENTINEL", "FAILOVER", "jobs")


async def _claims_if_it_can(adapter: RedisAdapter) -> list[object]:
    try:
        return list((await adapter.claim(want())).claims)
    except StoreUnavailable:
        return []


async def _stored(adapter: RedisAdapter, envelope: Envelope) -> bool:
    try:
        return (await adapter.push([envelope]))[0].holder is None
    except StoreUnavailable:
        return False


async def test_replicated_durability_waits_for_the_replica(pair: tuple[int, Redis]) -> None:
    master, replica = pair
    options = {"durability": "replicated", "timeout": 1.0}
    async with redis_env(f"redis://127.0.0.1:{master}/0", testing=False, options=options) as env:
        alone = job()
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            await env.adapter.push([alone])
        await replica.replicaof("127.0.0.1", str(master))
        async with asyncio.timeout(15):
            while not await _stored(env.adapter, alone):
                await asyncio.sleep(0.1)
        await env.adapter.link.client.script_flush()
        await env.adapter.push([job()])
        (depth,) = await env.adapter.depth(["mail"])
        assert depth.pending == 2
        assert await replica.hlen(env.adapter.link.key("jobs")) == 2


@pytest.fixture(scope="module")
def cluster_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """One node that owns all slots: it refuses what crosses slots as a larger cluster does."""
    flags = (
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        str(free_port()),
    )  # by default the port plus 10,000
    with redis_process(tmp_path_factory.mktemp("cluster"), *flags) as port:
        with SyncRedis(port=port) as node:
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            while node.cluster("info")["cluster_state"] != "ok":
                time.sleep(0.05)
        yield port


class TestCluster(DriverSuite):
    """The whole suite, on a cluster."""

    @pytest.fixture
    async def env(self, cluster_port: int) -> AsyncIterator[RedisEnv]:
        async with redis_env(f"redis+cluster://127.0.0.1:{cluster_port}") as env:
            yield env

    test_any_order_of_calls = None  # a minute that TestRedis spends already


class TestOptions:
    """URLs and options are checked before anything connects."""

    @pytest.mark.parametrize(
        ("url", "expected"),
        [
            ("redis", RedisOptions(url="redis://localhost:6379/0")),
            ("valkey://h:1/2", RedisOptions(url="redis://h:1/2")),
            (
                "rediss://u:p@h/0?ssl_ca_certs=/a.crt",
                RedisOptions(url="rediss://u:p@h/0?ssl_ca_certs=%2Fa.crt"),
            ),
            (
                "redis://h/0?timeout=2&sweep_every=5",
                RedisOptions(url="redis://h/0", timeout=2.0, sweep_every=5.0),
            ),
            ("unix:///run/redis.sock?db=1", RedisOptions(url="unix:///run/redis.sock?db=1")),
            ("redis+cluster://h:7000", RedisOptions(url="redis://h:7000", topology="cluster")),
            (
                "redis+sentinel://u:p@a:26379,b/jobs/3?durability=replicated&replicas=2",
                RedisOptions(
                    url="redis://u:p@/3",
                    topology="sentinel",
                    sentinels=(("a", 26379), ("b", 26379)),
                    service="jobs",
                    durability="replicated",
                    replicas=2,
                ),
            ),
        ],
    )
    def test_urls(self, url: str, expected: RedisOptions) -> None:
        assert RedisOptions.from_url(url, {}) == expected

    @pytest.mark.parametrize(
        ("url", "options", "message"),
        [
            ("http://h", {}, "no Redis URL"),
            ("redis+ring://h", {}, "no Redis URL"),
            ("redis://h?timeout=soon", {}, "timeout='soon'"),
            ("redis://h", {"retries": 3}, "no option retries"),
            ("redis://h", {"durability": "strong"}, "'local' or 'replicated'"),
            ("redis+cluster://h", {"durability": "replicated"}, "min-replicas-to-write"),
            ("redis+sentinel://h:26379", {}, "redis\\+sentinel://host"),
            ("redis+sentinel://h:x/jobs", {}, "no host:port"),
            ("redis://h", {"timeout": 0}, "more than 0"),
        ],
    )
    def test_what_cannot_be_used(self, url: str, options: dict[str, object], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            RedisAdapter.from_url(url, DriverSettings(options=options))

    async def test_a_parameter_that_redis_py_does_not_know(self) -> None:
        with pytest.raises(ConfigError, match="does not take"):
            await RedisAdapter.from_url("redis://h?colour=red", DriverSettings()).open()

    def test_a_prefix_that_could_leave_its_slot(self) -> None:
        with pytest.raises(ConfigError, match="prefix"):
            RedisAdapter.from_url("redis://h", DriverSettings(prefix="a}b"))

    async def test_the_clock_moves_in_testing_mode_only(self) -> None:
        adapter = RedisAdapter.from_url("redis://h", DriverSettings())
        with pytest.raises(ConfigError, match="testing mode"):
            await adapter.advance(1)
        with pytest.raises(ConfigError, match="testing mode"):
            await adapter.audit()


async def test_the_password_is_in_no_message(tmp_path: Path) -> None:
    async with redis_server(tmp_path, "--requirepass", "right") as port:
        adapter = RedisAdapter.from_url(f"redis://:hunter2@127.0.0.1:{port}/0", DriverSettings())
        with pytest.raises(StoreUnavailable) as caught:
            await adapter.open()
        assert "hunter2" not in str(caught.value)
        async with opened(
            RedisAdapter.from_url(f"redis://:right@127.0.0.1:{port}/0", DriverSettings())
        ) as other:
            await other.depth(["mail"])
