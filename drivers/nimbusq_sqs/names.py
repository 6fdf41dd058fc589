"""Which SQS queue stands for a queue: the one whose URL was given, else one whose name is made from the prefix."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import urlsplit

from nimbusq.errors import ConfigError, InvalidName

FIFO: Final = ".fifo"
_FAILED: Final = "-failed"
_MAX_NAME: Final = 80


def escaped(queue: str) -> str:
    """The queue's name in the letters that SQS allows; ``.fifo`` at the end stays, since SQS gives it a meaning.

    Reversible: ``_`` becomes ``__`` and ``.`` becomes ``_d``.
    """
    stem = queue.removesuffix(FIFO)
    suffix = FIFO if stem != queue else ""
    return stem.replace("_", "__").replace(".", "_d") + suffix


def unescaped(name: str) -> str:
    """What `escaped` was given."""
    return re.sub("_([_d])", lambda match: "_" if match[1] == "_" else ".", name)


def failed_queue(queue: str) -> str:
    """The queue that keeps what has failed for good, where there is no store. Never a FIFO queue."""
    return queue.removesuffix(FIFO) + _FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """url is None for a queue that has to be found by its name on the server."""

    queue: str
    name: str
    url: str | None

    @property
    def fifo(self) -> bool:
        return self.name.endswith(FIFO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """prefix: before every name that is not given. urls: by queue. url_prefix: of every queue not among them."""

    prefix: str
    urls: Mapping[str, str] = field(default_factory=dict)
    url_prefix: str | None = None

    @classmethod
    def parse(cls, given: str | Mapping[str, str] | None, *, prefix: str) -> Self:
        """Read the setting ``sqs_queue_url``: the URL of the queue `default`, a URL that ends in ``*``, or a map of
        queue names to URLs (as JSON where it comes from the environment). Raises ConfigError.
        """
        if isinstance(given, str) and given.lstrip().startswith("{"):
            given = _map_from_json(given)
        if given is None or isinstance(given, str):
            if given and given.endswith("*"):
                return cls(prefix=prefix, url_prefix=_checked(given[:-1]))
            given = {"default": given} if given else {}
        urls = {queue: _checked(url) for queue, url in given.items()}
        if len(set(urls.values())) < len(urls):
            raise ConfigError(
                "sqs_queue_url names one URL for two queues: their jobs could not be told apart."
            )
        return cls(prefix=prefix, urls=urls)

    def of(self, queue: str) -> Address:
        """Raises InvalidName where the name gets longer than SQS allows."""
        url = self.urls.get(queue)
        if url is None and self.url_prefix is not None:
            url = self.url_prefix + escaped(queue)
        name = urlsplit(url).path.rpartition("/")[2] if url else f"{self.prefix}-{escaped(queue)}"
        if len(name) > _MAX_NAME:
            raise InvalidName(
                f"queue {queue} would be called {name!r} on SQS, which allows {_MAX_NAME} characters: "
                "use a shorter name or prefix, or name its URL in sqs_queue_url."
            )
        return Address(queue=queue, name=name, url=url)

    def failed_of(self, queue: str) -> Address:
        """Where the failed jobs of `queue` go."""
        failed = failed_queue(queue)
        own = self.urls.get(queue)
        if own is None or failed in self.urls:
            return self.of(failed)
        url = own.removesuffix(FIFO) + _FAILED
        return Address(queue=failed, name=urlsplit(url).path.rpartition("/")[2], url=url)

    def queue_of(self, name: str) -> str | None:
        """The queue that stands behind an SQS name made from the prefix; None for somebody else's."""
        stem = name.removeprefix(f"{self.prefix}-")
        return unescaped(stem) if stem != name else None


def _map_from_json(text: str) -> Mapping[str, str]:
    try:
        urls = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"sqs_queue_url begins like a JSON map but is none: {error}.") from None
    if not all(isinstance(url, str) for url in urls.values()):
        raise ConfigError("sqs_queue_url must map queue names to URLs.")
    return dict(urls)


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        or parts.username
        or not parts.path.strip("/")
    ):
        raise ConfigError(
            f"sqs_queue_url has {parts.scheme or 'no scheme'}://{parts.hostname or ''}{parts.path}, which is not the "
            "URL of a queue: write it as in https://sqs.eu-west-1.amazonaws.com/123456789012/jobs."
        )
    return url
