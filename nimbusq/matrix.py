"""What each driver can do, as a table: rendered from the capability records, so that it cannot go stale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Final

from nimbusq.driver import Adapter, DriverSettings
from nimbusq.errors import ConfigError, MissingExtra
from nimbusq.loading import driver_names, load_adapter

COLUMNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "driver": "driver",
        "durable": "durable",
        "lease": "lease",
        "fenced": "fenced",
        "coordination": "unique, batch",
        "priorities": "priority",
        "transactions": "tx",
        "cancel": "cancel",
        "delays": "delay",
        "longest_run": "run",
        "largest_job": "job",
    }
)
"""Field of a `Row`: its heading in a narrow terminal."""
_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "durable": "jobs survive the process",
        "lease": "lease",
        "fenced": "a lost run cannot settle",
        "coordination": "unique, overlap, rates per key, batches, chains",
        "priorities": "priorities",
        "transactions": "`using(tx)`",
        "cancel": "cancel a queued job",
        "delays": "delays",
        "longest_run": "longest run",
        "largest_job": "largest job",
    }
)
"""Field of a `Row`: what it means, for the documentation."""

_EXAMPLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sync": "sync://",
        "memory": "sync://",
        "sqlite": "sqlite:///jobs.db",
        "database": "sqlite:///jobs.db",
        "sqs": "sqs://default",
        "kafka": "kafka://localhost:9092",
    }
)
"""A URL for each scheme that wants more than a host; none of them is connected to."""
_ORDER: Final = ("sync", "redis", "database", "sqs", "kafka")
_STORE: Final = "via store"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One driver. "via store": with a redis or database URL in QUEUE_STORE_URL (for a transaction, a database's),
    else refused by name."""

    driver: str
    durable: str
    lease: str
    fenced: str
    coordination: str
    priorities: str
    transactions: str
    cancel: str
    delays: str
    longest_run: str
    largest_job: str


def rows() -> list[Row]:
    """All installed drivers, ours first. One whose client library is missing says which extra to install."""
    found: dict[str, Row] = {}
    for name in driver_names():
        try:
            adapter = load_adapter(_EXAMPLES.get(name, f"{name}://localhost/0"), DriverSettings())
        except MissingExtra as error:
            found.setdefault(str(error), _missing(name, error))
        except ConfigError:
            continue  # somebody else's driver, with URLs of its own
        else:
            found.setdefault(adapter.capabilities.driver, row(adapter))
    return sorted(found.values(), key=lambda one: (_position(one.driver), one.driver))


def row(adapter: Adapter) -> Row:
    """The adapter's record in words."""
    c = adapter.capabilities
    return Row(
        driver=c.driver,
        durable=_yes(c.durable),
        lease=c.lease,
        fenced=_yes(c.fenced),
        coordination=_yes(c.atomic, _STORE),
        priorities=_yes(c.priorities, _STORE),
        transactions=_yes(c.transactional, "no" if c.inline else _STORE),
        cancel=_yes(c.cancellable),
        delays=_delays(adapter),
        longest_run="any" if c.max_lease is None else f"{c.max_lease / 3600:g} h",
        largest_job="any" if c.max_body is None else f"{c.max_body:,} B",
    )


def markdown(table: Sequence[Row] | None = None) -> str:
    """The table for the documentation: one row a property, one column a driver."""
    table = rows() if table is None else table
    lines = [["", *(f"**{one.driver}**" for one in table)], ["---"] * (len(table) + 1)]
    lines += [[text, *(getattr(one, name) for one in table)] for name, text in _PROPERTIES.items()]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _delays(adapter: Adapter) -> str:
    longest, exact = adapter.capabilities.max_delay, adapter.capabilities.exact_delay
    if longest is not None:
        return f"up to {longest:g} s, longer ones {_STORE}"
    return "any" if exact is None else f"any, rough above {exact:g} s"


def _missing(name: str, error: MissingExtra) -> Row:
    unknown = dict.fromkeys((field.name for field in fields(Row)), "?")
    return Row(**{**unknown, "driver": f"{name} ({error})"})


def _yes(can: bool, otherwise: str = "no") -> str:
    return "yes" if can else otherwise


def _position(driver: str) -> int:
    return _ORDER.index(driver) if driver in _ORDER else len(_ORDER)
