"""Chains: jobs one after another, each queued by the step that completes the one before."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

from nimbusq.builder import Dispatch
from nimbusq.building import build
from nimbusq.callbacks import AnyCallback, CallbackJob, call_in_process, callback_envelope, disarm, taken
from nimbusq.calling import call_to_its_end
from nimbusq.envelope import Callback, ChainRest, Envelope
from nimbusq.errors import InvalidOption, JobFailed
from nimbusq.ids import derived_id, new_id
from nimbusq.jobs import Job
from nimbusq.manager import Manager, get_manager
from nimbusq.names import check_name
from nimbusq.options import check_queue
from nimbusq.registry import registry

Link: TypeAlias = Job | Dispatch[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    id: str
    name: str = ""
    queue: str | None = None
    on_failure: AnyCallback | None = None


@dataclass(frozen=True, slots=True)
class SentChain:
    """A stored chain. `first` is the id of its first link; `link_id` tells those of the others."""

    id: str
    name: str
    length: int

    @property
    def first(self) -> str:
        return self.link_id(0)

    def link_id(self, index: int) -> str:
        """The job id of link `index` (0 is the first)."""
        return derived_id(self.id, index)


class Chain:
    """``await Chain(Fetch(), Transform(), Load()).named("etl").on_failure(job).send()``.

    A link that fails for good ends the chain: the rest is skipped and `on_failure` (a Job or `@job` function that
    may take ``error``) is queued. Retrying the failed link from the failed store continues the chain. Every call
    returns a copy.
    """

    def __init__(self, *links: Link, id: str | None = None) -> None:  # noqa: A002  # the chain's id, as everywhere
        self._links = links
        self._plan = _Plan(id=id or new_id())
        disarm(links)

    def _with(self, **changes: Any) -> Self:
        copy = type(self)(*self._links)
        copy._plan = replace(self._plan, **changes)
        return copy

    @property
    def id(self) -> str:
        return self._plan.id

    def named(self, name: str) -> Self:
        """A name for people; the callback registered under it (`register_chain`) fills a missing one."""
        return self._with(name=check_name("chain", name))

    def on_queue(self, queue: str) -> Self:
        """The queue of all links that do not ask for one of their own."""
        return self._with(queue=check_queue(queue))

    def on_failure(self, callback: AnyCallback) -> Self:
        """Once, when a link has failed for good."""
        return self._with(on_failure=callback)

    async def send(self, manager: Manager | None = None) -> SentChain:
        """Queue the first link. An empty chain is stored nowhere. The inline driver runs the links first, and raises
        the error of the one that failed.

        Raises UnsupportedByDriver where the driver has no chains and no store is set.
        """
        manager = manager or get_manager()
        sent = SentChain(self.id, self._plan.name, len(self._links))
        if self._links:
            await manager.push([self.first_link(manager, chain_id=self.id)])
        return sent

    def first_link(self, manager: Manager, *, chain_id: str, batch_id: str | None = None) -> Envelope:
        """The envelope of the first link, which carries the others."""
        if not self._links:
            raise InvalidOption("an empty chain cannot be a member of a batch.")
        links = [self._link(link, derived_id(chain_id, n), manager) for n, link in enumerate(self._links)]
        rest = ChainRest(
            id=chain_id,
            name=self._plan.name,
            rest=tuple(link.to_text() for link in links[1:]),
            on_failure=self._failure(chain_id, manager),
        )
        return replace(links[0], chain=rest, batch_id=batch_id)

    def _link(self, link: Link, link_id: str, manager: Manager) -> Envelope:
        job, asked = taken(link, "a chain's link")
        return build(job, replace(asked, queue=asked.queue or self._plan.queue), manager, job_id=link_id)

    def _failure(self, chain_id: str, manager: Manager) -> str | None:
        callback = self._plan.on_failure or registry.callbacks.get(f"chain:{self._plan.name}", {}).get(
            "on_failure"
        )
        if callback is None:
            return None
        mark = Callback(kind="on_failure", of=chain_id)
        return callback_envelope(callback, mark, derived_id(chain_id, "on_failure"), manager).to_text()

    async def run(self) -> None:
        """Run the links in this task, one after another; nothing is stored and nothing retried.

        The first error ends it: `on_failure` is called (it may be a plain callable), and the error is raised.
        """
        for link in self._links:
            job, _ = taken(link, "a chain's link")
            try:
                await call_to_its_end(job)
            except Exception as error:
                if self._plan.on_failure is not None:
                    failed = JobFailed("", f"{job.options.name}: {error}")
                    await call_in_process(self._plan.on_failure, job=job, error=failed)
                raise


def register_chain(name: str, on_failure: CallbackJob | None) -> None:
    """The failure callback of every chain of that name that does not bring its own; None removes it
    (the seed's RegisterChain). It is stored with the chain when it is sent."""
    key = f"chain:{check_name('chain', name)}"
    if on_failure is None:
        registry.callbacks.pop(key, None)
    else:
        registry.callbacks[key] = {"on_failure": on_failure}
