"""Where the server is, and how to talk to it: URLs and options, checked before anything connects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from nimbusq.errors import ConfigError

_SCHEMES: Final = {
    "redis": "redis",
    "rediss": "rediss",
    "valkey": "redis",
    "valkeys": "rediss",
    "unix": "unix",
}
_TOPOLOGIES: Final = frozenset({"", "sentinel", "cluster"})
_SENTINEL_PORT: Final = 26379


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    """How to reach and use the server. Durations are seconds.

    url: in the form of redis-py (``redis://``, ``rediss://`` or ``unix://``), for a sentinel without its hosts.
    topology: "" for one server, "cluster", or "sentinel" with `sentinels` (host, port) and the master's `service`.
    durability: "replicated" lets push wait until `replicas` replicas have the jobs (WAIT).
    timeout: of every call that has no shorter deadline. sweep_every: between two checks for lost lease entries.
    """

    url: str
    topology: Literal["", "sentinel", "cluster"] = ""
    sentinels: tuple[tuple[str, int], ...] = ()
    service: str = ""
    durability: Literal["local", "replicated"] = "local"
    replicas: int = 1
    timeout: float = 5.0
    sweep_every: float = 60.0

    def __post_init__(self) -> None:
        if self.durability not in {"local", "replicated"}:
            raise ConfigError(f"durability is 'local' or 'replicated', not {self.durability!r}.")
        if self.durability == "replicated" and self.topology == "cluster":
            raise ConfigError(
                "durability='replicated' does not work with redis+cluster:// (WAIT needs the connection that wrote): "
                "set min-replicas-to-write on the servers instead."
            )
        if self.replicas < 1 or self.timeout <= 0 or self.sweep_every <= 0:
            raise ConfigError("replicas must be at least 1, timeout and sweep_every more than 0.")

    @classmethod
    def from_url(cls, url: str, options: Mapping[str, Any]) -> Self:
        """Read a URL, its query and the driver's options (which win). Raises ConfigError.

        The query's parameters that are not ours go to redis-py, such as ``ssl_ca_certs`` and ``protocol``.
        """
        parts = urlsplit(url if ":" in url else "redis://localhost:6379/0")
        scheme, _, topology = parts.scheme.partition("+")
        if scheme not in _SCHEMES or topology not in _TOPOLOGIES:
            known = ", ".join(f"{name}://" for name in _SCHEMES)
            raise ConfigError(
                f"{parts.scheme}:// is no Redis URL: use {known}, redis+sentinel:// or redis+cluster://."
            )
        own, query = _own_options(parts.query)
        own |= options
        if unknown := own.keys() - _OWN.keys():
            raise ConfigError(
                f"the redis driver has no option {', '.join(sorted(unknown))}. It has: {', '.join(_OWN)}."
            )
        if topology == "sentinel":
            own |= _sentinel(parts.netloc.rpartition("@")[2], parts.path)
            account = parts.netloc.rpartition("@")[0]
            parts = parts._replace(netloc=f"{account}@" if account else "", path=_database(parts.path))
        plain = urlunsplit(parts._replace(scheme=_SCHEMES[scheme], query=query))
        if not plain.startswith(f"{_SCHEMES[scheme]}://"):
            plain = plain.replace(":", "://", 1)  # urlunsplit drops the slashes of an empty host
        return cls(url=plain, topology=topology, **own)  # type: ignore[arg-type]  # checked against _TOPOLOGIES


_OWN: Final[dict[str, type]] = {
    "durability": str,
    "replicas": int,
    "timeout": float,
    "sweep_every": float,
}


def _own_options(query: str) -> tuple[dict[str, Any], str]:
    """Our options in the query, and the query without them."""
    own: dict[str, Any] = {}
    rest = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _OWN:
            rest.append((name, value))
            continue
        try:
            own[name] = _OWN[name](value)
        except ValueError:
            raise ConfigError(
                f"the redis URL has {name}={value!r}, which is no {_OWN[name].__name__}."
            ) from None
    return own, urlencode(rest)


def _sentinel(hosts: str, path: str) -> dict[str, Any]:
    service = path.strip("/").partition("/")[0]
    if not hosts or not service:
        raise ConfigError("a sentinel URL reads redis+sentinel://host:26379,host:26379/service/0.")
    return {"sentinels": tuple(_address(host) for host in hosts.split(",")), "service": service}


def _address(host: str) -> tuple[str, int]:
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        return host.strip("[]"), _SENTINEL_PORT
    try:
        return name.strip("[]"), int(port)
    except ValueError:
        raise ConfigError(f"{host!r} is no host:port of a sentinel.") from None


def _database(path: str) -> str:
    return "/" + (path.strip("/").partition("/")[2] or "0")
