"""Settings: code over environment over default, under the names that the seed documents use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from nimbusq.driver import DriverSettings
from nimbusq.errors import ConfigError
from nimbusq.limit import RateLimit
from nimbusq.names import check_name

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _from_env(*names: str) -> Any:
    return AliasChoices(*names)


def _split(value: object) -> object:
    return (
        tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value
    )


class Settings(BaseSettings):
    """Everything that can be set. Durations are seconds; the environment's names stand beside each field.

    A bad value is always an error (the seed ignores some). `strict` turns these warnings into errors: send with
    no manager, unsafe durability, cleartext to another host, needs that no driver meets at boot.
    """

    model_config = SettingsConfigDict(
        extra="forbid",
        populate_by_name=True,
        frozen=True,
        env_ignore_empty=True,
        env_file=None,
        hide_input_in_errors=True,
    )

    driver: str = Field("sync", validation_alias=_from_env("QUEUE_DRIVER"))
    """A driver's name (sync, redis, database, sqs, kafka) or a URL."""
    store: str | None = Field(None, validation_alias=_from_env("QUEUE_STORE_URL"))
    """URL of a redis or database driver that coordinates beside sqs or kafka."""
    redis_url: str = Field("redis://localhost:6379", validation_alias=_from_env("REDIS_URL"))
    database_url: str | None = Field(None, validation_alias=_from_env("DATABASE_URL"))
    redis_visibility_timeout: Seconds = Field(
        60.0, validation_alias=_from_env("QUEUE_REDIS_VISIBILITY_TIMEOUT_SECONDS")
    )
    database_lease: Seconds = Field(120.0, validation_alias=_from_env("QUEUE_DB_LEASE_SECONDS"))
    lease: Seconds | None = Field(None, validation_alias=_from_env("NIMBUSQ_LEASE_SECONDS"))
    """The lease of any driver; None takes the two above, or 60 s."""
    strict: bool = Field(False, validation_alias=_from_env("QUEUE_BOOT_STRICT"))
    sqs_queue_url: Annotated[Mapping[str, str] | str | None, NoDecode] = Field(
        None, validation_alias=_from_env("SQS_QUEUE_URL")
    )
    """One queue's URL, a URL that ends in a prefix and ``*``, or a map of queue names to URLs."""
    sqs_endpoint_url: str | None = Field(None, validation_alias=_from_env("SQS_ENDPOINT_URL"))
    kafka_brokers: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)] = Field(
        (), validation_alias=_from_env("KAFKA_BROKERS")
    )
    kafka_topic: str = Field("nimbus-queue", validation_alias=_from_env("KAFKA_TOPIC"))
    kafka_group_id: str = Field("nimbus-queue", validation_alias=_from_env("KAFKA_GROUP_ID"))
    prefix: str = Field("nimbusq", validation_alias=_from_env("NIMBUSQ_PREFIX"))
    """Isolates everything that one program stores."""
    app: str | None = Field(None, validation_alias=_from_env("NIMBUSQ_APP"))
    """The module that defines the jobs, for the command line."""
    rate_limit_per_sec: float | None = Field(
        None, gt=0, allow_inf_nan=False, validation_alias=_from_env("QUEUE_RATE_LIMIT_PER_SEC")
    )
    """Starts per second of every queue that `rate_limits` does not name."""
    rate_limit_burst: int = Field(10, ge=1, validation_alias=_from_env("QUEUE_RATE_LIMIT_BURST"))
    rate_limits: dict[str, RateLimit] = Field(default_factory=dict)
    max_body: int = Field(256 * 1024, ge=16 * 1024, validation_alias=_from_env("NIMBUSQ_MAX_BODY_BYTES"))
    """Greatest size of one job on the wire in bytes, where the driver itself allows more."""
    result_ttl: Seconds = Field(3600.0, validation_alias=_from_env("NIMBUSQ_RESULT_TTL_SECONDS"))
    max_result: int = Field(64 * 1024, gt=0)
    history_limit: int = Field(10_000, ge=0, validation_alias=_from_env("NIMBUSQ_HISTORY_LIMIT"))
    """Finished jobs to remember; 0 keeps none."""
    history_ttl: Seconds = Field(86_400.0, validation_alias=_from_env("NIMBUSQ_HISTORY_TTL_SECONDS"))
    shutdown_timeout: float = Field(
        25.0, ge=0, allow_inf_nan=False, validation_alias=_from_env("NIMBUSQ_SHUTDOWN_TIMEOUT")
    )
    """How long a stopping worker lets its jobs run on."""
    cancel_grace: float = Field(3.0, ge=0, allow_inf_nan=False)
    """How long a cancelled handler may clean up before it is abandoned."""
    stall_limit: Seconds = Field(300.0, validation_alias=_from_env("NIMBUSQ_STALL_LIMIT_SECONDS"))
    """How long the event loop may be blocked before its worker counts as dead."""
    durability: str = Field("default", pattern="^(default|replicated)$")
    options: dict[str, Any] = Field(default_factory=dict)
    """Further settings of the driver, by its own names."""
    store_options: dict[str, Any] = Field(default_factory=dict)
    """The same for the store beside it."""

    @field_validator("prefix")
    @classmethod
    def _check_prefix(cls, value: str) -> str:
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,31}", value):
            raise ValueError("use 1 to 32 of a-z 0-9 _ and begin with a letter")
        return value

    @field_validator("rate_limits")
    @classmethod
    def _check_queues(cls, value: dict[str, RateLimit]) -> dict[str, RateLimit]:
        for queue in value:
            check_name("queue", queue)
        return value

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()
            )
            raise ConfigError(f"the settings cannot be used: {problems}.") from None

    @property
    def url(self) -> str:
        """The driver as a URL, with the seed's variables filled in."""
        match self.driver.lower():
            case "redis":
                return self.redis_url
            case "database":
                if not self.database_url:
                    raise ConfigError(
                        "QUEUE_DRIVER=database needs DATABASE_URL, for example sqlite:///jobs.db."
                    )
                return self.database_url
            case "kafka":
                if not self.kafka_brokers:
                    raise ConfigError("QUEUE_DRIVER=kafka needs KAFKA_BROKERS, for example localhost:9092.")
                return "kafka://" + ",".join(self.kafka_brokers)
            case "sqs":
                if not (self.sqs_queue_url or self.sqs_endpoint_url):
                    raise ConfigError("QUEUE_DRIVER=sqs needs SQS_QUEUE_URL, or a URL such as sqs://default.")
                return "sqs://default"
            case _:
                return self.driver

    def lease_for(self, driver: str) -> float:
        """The lease in seconds that workers of that driver take."""
        defaults = {"redis": self.redis_visibility_timeout}
        if driver in ("sqlite", "postgresql", "mysql", "database"):
            defaults[driver] = self.database_lease
        return self.lease or defaults.get(driver, 60.0)

    def rate_of(self, queue: str) -> RateLimit | None:
        """The rate limit of a queue, or None."""
        if queue in self.rate_limits:
            return self.rate_limits[queue]
        if self.rate_limit_per_sec is None:
            return None
        return RateLimit(per_second=self.rate_limit_per_sec, burst=self.rate_limit_burst)

    def for_driver(self, url: str, *, beside: bool = False, testing: bool = False) -> DriverSettings:
        """What the driver of that URL is told: the common settings, its own of these, and its options.

        beside: it is the store beside another driver.
        """
        scheme = url.partition(":")[0].lower()
        own: dict[str, Any] = {}
        if scheme == "sqs":
            own = {"sqs_queue_url": self.sqs_queue_url, "sqs_endpoint_url": self.sqs_endpoint_url}
        elif scheme == "kafka":
            own = {"kafka_topic": self.kafka_topic, "kafka_group_id": self.kafka_group_id}
        elif self.durability != "default":
            own = {"durability": self.durability}
        return DriverSettings(
            prefix=self.prefix,
            history_limit=self.history_limit,
            history_ttl=self.history_ttl,
            testing=testing,
            options={**own, **(self.store_options if beside else self.options)},
        )
