"""Stable names for jobs: which class a stored name means in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nimbusq.errors import InvalidJob, UnknownJob

if TYPE_CHECKING:
    from nimbusq.jobs import Job


class Registry:
    """Names and aliases of job classes. Two classes under one name are an error, unless they are one class twice:
    the same qualified name from the same file (``__main__`` and its import, a reload)."""

    def __init__(self) -> None:
        self._jobs: dict[str, type[Job]] = {}
        self.callbacks: dict[str, Mapping[str, Any]] = {}
        """Callbacks that `register_batch` and `register_chain` gave for a name, under "batch:…" and "chain:…"."""

    def add(self, job: type[Job]) -> None:
        """Register a class under its name and aliases. Raises InvalidJob when another class has one of them."""
        names = (job.options.name, *job.options.aliases)
        for name in names:
            other = self._jobs.get(name)
            if other is not None and _origin(other) != _origin(job):
                raise InvalidJob(
                    f"two jobs are called {name!r}: {_shown(other)} and {_shown(job)}. "
                    "Give one of them a name of its own with name='…'."
                )
        self._jobs.update(dict.fromkeys(names, job))

    def get(self, name: str) -> type[Job]:
        """The class of that name or alias. Raises UnknownJob with the near misses."""
        try:
            return self._jobs[name]
        except KeyError:
            raise UnknownJob(
                f"no job is registered as {name!r} in this worker. Import its module in the worker's app "
                f"(nimbusq work --app …). Registered: {', '.join(sorted(self._jobs)) or 'none'}."
            ) from None

    def __contains__(self, name: str) -> bool:
        return name in self._jobs

    def __iter__(self) -> Iterator[type[Job]]:
        return iter(dict.fromkeys(self._jobs.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """Every name and alias, sorted."""
        return tuple(sorted(self._jobs))


def _origin(job: type[Job]) -> tuple[str, str]:
    module = sys.modules.get(job.__module__)
    return getattr(module, "__file__", None) or job.__module__, job.__qualname__


def _shown(job: type[Job]) -> str:
    return f"{job.__module__}.{job.__qualname__}"


registry = Registry()
"""Every job class of this process, filled as classes are made: what Python has imported is what it can run."""
