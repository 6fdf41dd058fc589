"""Who is measured: every peer with its driver, its file, what its environment holds and how it does best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Driver = Literal["redis", "postgres", "sqlite", "mariadb", "kafka", "sqs"]
DRIVERS: Final[tuple[Driver, ...]] = ("redis", "postgres", "sqlite", "mariadb", "kafka", "sqs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One peer.

    target: "module:class" under benchmarks.peers. environment: the folder of its virtual environment, None for
    nimbusq's own. best: the concurrency at which it drains quickest, found by trying. low: what it takes for a
    concurrency of 10. jobs: how many make a measurement of about a second. recovers: by default another worker
    gets the jobs of one that was killed. serial: runs one job or batch after the other, whatever the concurrency,
    so that jobs that wait say nothing about it. default: measured unless other peers are named.
    """

    name: str
    driver: Driver
    target: str
    environment: str | None = None
    requires: tuple[str, ...] = ()
    best: int = 100
    low: int = 10
    jobs: int = 5000
    recovers: bool = True
    serial: bool = False
    default: bool = False

    @property
    def ours(self) -> bool:
        return self.environment is None


_REDIS_PEERS: Final = (
    Entry(
        name="repid",
        driver="redis",
        target="repid:RepidPeer",
        environment="repid",
        requires=("repid[redis]==2.1.4", "hiredis==3.5.0", "typing_extensions"),
        jobs=20_000,
        recovers=False,
        default=True,
    ),
    Entry(
        name="taskiq-stream",
        driver="redis",
        target="taskiq_redis:TaskiqStream",
        environment="taskiq",
        requires=("taskiq==0.13.0", "taskiq-redis==1.2.4", "hiredis==3.5.0"),
        default=True,
    ),
    Entry(
        name="taskiq-list",
        driver="redis",
        target="taskiq_redis:TaskiqList",
        environment="taskiq",
        requires=("taskiq==0.13.0", "taskiq-redis==1.2.4", "hiredis==3.5.0"),
        recovers=False,
    ),
    Entry(
        name="saq",
        driver="redis",
        target="saq:SaqRedis",
        environment="saq",
        requires=("saq[redis,postgres]==0.26.4", "hiredis==3.5.0", "psycopg[binary]", "psycopg-pool"),
        default=True,
    ),
    Entry(
        name="streaq",
        driver="redis",
        target="streaq:Streaq",
        environment="streaq",
        requires=("streaq==7.2.0",),
        default=True,
    ),
    Entry(
        name="dramatiq",
        driver="redis",
        target="dramatiq:DramatiqRedis",
        environment="dramatiq",
        requires=("dramatiq[redis]==2.2.1", "hiredis==3.5.0"),
        best=8,
    ),
    Entry(
        name="tinyjobs-redis",
        driver="redis",
        target="tinyjobs:TinyJobsPeer",
        environment="tinyjobs",
        requires=("tinyjobs[redis]==0.7.1", "hiredis==3.5.0"),
        best=32,
    ),
    Entry(
        name="arq",
        driver="redis",
        target="arq:Arq",
        environment="arq",
        requires=("arq==0.28.0", "hiredis==3.5.0"),
        jobs=3000,
    ),
    Entry(
        name="rq",
        driver="redis",
        target="rq:Rq",
        environment="rq",
        requires=("rq==3.0.0", "hiredis==3.5.0"),
        best=1,
        low=1,
        jobs=1000,
    ),
    Entry(
        name="docket",
        driver="redis",
        target="docket:DocketPeer",
        environment="docket",
        requires=("pydocket==0.27.0", "hiredis==3.5.0"),
        best=50,
        jobs=1000,
    ),
    Entry(
        name="celery",
        driver="redis",
        target="celery:CeleryPeer",
        environment="celery",
        requires=("celery[redis]==5.7.0", "hiredis==3.5.0"),
        best=2,
        low=2,
        jobs=2000,
        recovers=False,
    ),
)

_POSTGRES_PEERS: Final = (
    Entry(
        name="pgqueuer",
        driver="postgres",
        target="pgqueuer:PgQueuerPeer",
        environment="pgqueuer",
        requires=("pgqueuer[asyncpg]==1.6.0",),
        best=1000,
        jobs=20_000,
        default=True,
    ),
    Entry(
        name="oban",
        driver="postgres",
        target="oban:ObanPeer",
        environment="oban",
        requires=("oban==0.7.0", "psycopg[binary]", "psycopg-pool"),
        default=True,
    ),
    Entry(
        name="chancy",
        driver="postgres",
        target="chancy:ChancyPeer",
        environment="chancy",
        requires=("chancy==0.26.0", "psycopg[binary]"),
        jobs=20_000,  # it acknowledges once a second, and that is to be in the measurement
        default=True,
    ),
    Entry(
        name="procrastinate",
        driver="postgres",
        target="procrastinate:ProcrastinatePeer",
        environment="procrastinate",
        requires=("procrastinate==3.10.0", "psycopg[binary]"),
        jobs=1500,
        recovers=False,
    ),
    Entry(
        name="saq-pg",
        driver="postgres",
        target="saq:SaqPostgres",
        environment="saq",
        requires=("saq[redis,postgres]==0.26.4", "hiredis==3.5.0", "psycopg[binary]", "psycopg-pool"),
        jobs=2000,
    ),
    Entry(
        name="dramatiq-pg",
        driver="postgres",
        target="dramatiq_pg:DramatiqPostgres",
        environment="dramatiq-pg",
        requires=("dramatiq-pg==0.12.0", "psycopg2-binary"),
        best=8,
        jobs=2000,
    ),
)

_SQLITE_PEERS: Final = (
    Entry(
        name="huey",
        driver="sqlite",
        target="huey:Huey",
        environment="huey",
        requires=("huey==3.5.4",),
        best=1,
        recovers=False,
        default=True,
    ),
    Entry(
        name="tinyjobs",
        driver="sqlite",
        target="tinyjobs:TinyJobsPeer",
        environment="tinyjobs",
        requires=("tinyjobs[redis]==0.7.1", "hiredis==3.5.0"),
        best=32,
        default=True,
    ),
    Entry(
        name="qler",
        driver="sqlite",
        target="qler:Qler",
        environment="qler",
        requires=("qler==0.5.1", "pydantic>=2"),
        best=32,
        jobs=1500,
        default=True,
    ),
    Entry(
        name="pulse-queue",
        driver="sqlite",
        target="pulse_queue:PulseQueue",
        environment="pulse-queue",
        requires=("pulse-queue==0.1.0",),
        best=10,
        jobs=2000,
    ),
)

_KAFKA_PEERS: Final = (
    Entry(
        name="taskiq-kafka",
        driver="kafka",
        target="taskiq_kafka:TaskiqKafka",
        environment="taskiq-kafka",
        requires=("taskiq==0.13.0", "taskiq-aio-kafka==1.0.0", "kafka-python<2.3"),
        recovers=False,
        default=True,
    ),
    Entry(
        name="aiokafka-loop",
        driver="kafka",
        target="aiokafka_loop:KafkaLoop",
        environment="taskiq-kafka",
        requires=("taskiq==0.13.0", "taskiq-aio-kafka==1.0.0", "kafka-python<2.3"),
        jobs=100_000,
        serial=True,
        default=True,
    ),
    Entry(
        name="aiokafka-polls",
        driver="kafka",
        target="aiokafka_loop:KafkaPolls",
        environment="taskiq-kafka",
        requires=("taskiq==0.13.0", "taskiq-aio-kafka==1.0.0", "kafka-python<2.3"),
        jobs=20_000,
        default=True,
    ),
)

_SQS_PEERS: Final = (
    Entry(
        name="sqs-loop",
        driver="sqs",
        target="sqs_loop:SqsLoop",
        environment="sqs-loop",
        requires=("aioboto3>=15.5",),
        jobs=3000,
        serial=True,
        default=True,
    ),
    Entry(
        name="sqs-loops",
        driver="sqs",
        target="sqs_loop:SqsLoops",
        environment="sqs-loop",
        requires=("aioboto3>=15.5",),
        jobs=3000,
        default=True,
    ),
)

_OURS_BEST: Final[dict[Driver, int]] = {"redis": 300, "postgres": 500, "kafka": 500}
_OURS_JOBS: Final[dict[Driver, int]] = {"mariadb": 10_000, "sqs": 3000}
_OURS: Final = tuple(
    Entry(
        name="nimbusq",
        driver=driver,
        target="nimbusq:Nimbusq",
        best=_OURS_BEST.get(driver, 100),
        jobs=_OURS_JOBS.get(driver, 20_000),
        default=True,
    )
    for driver in DRIVERS
)

PEERS: Final[tuple[Entry, ...]] = (
    *_OURS,
    *_REDIS_PEERS,
    *_POSTGRES_PEERS,
    *_SQLITE_PEERS,
    *_KAFKA_PEERS,
    *_SQS_PEERS,
)

FEATURES: Final[dict[str, str]] = {
    "unique": "nimbusq_features:Unique",
    "overlap": "nimbusq_features:Overlap",
    "batch": "nimbusq_features:BatchMembers",
    "rate": "nimbusq_features:Rated",
    "no history": "nimbusq_features:WithoutHistory",
}
"""nimbusq with one feature in use each; see the workload "features"."""


def choose(driver: Driver, names: Sequence[str] = ()) -> list[Entry]:
    """nimbusq and those peers of a driver that are named; with no names its default ones, with "all" every one."""
    known = [entry for entry in PEERS if entry.driver == driver]
    if not names:
        return [entry for entry in known if entry.default]
    return [entry for entry in known if entry.ours or entry.name in names or "all" in names]
