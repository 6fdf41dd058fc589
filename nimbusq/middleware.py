"""Code around every push and every run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext

from nimbusq.context import JobContext
from nimbusq.envelope import Envelope


class Middleware:
    """Override one or both with an async context manager (`contextlib.asynccontextmanager`).

    What `around_run` raises before it yields fails the run; an exception of the handler passes through it.
    What `around_push` raises before it yields refuses the dispatch.
    """

    def around_push(self, envelopes: Sequence[Envelope]) -> AbstractAsyncContextManager[None]:  # noqa: ARG002  # for overriding
        return nullcontext()

    def around_run(self, context: JobContext) -> AbstractAsyncContextManager[None]:  # noqa: ARG002  # for overriding
        return nullcontext()


class Stack:
    """The middleware of one manager, outermost first."""

    def __init__(self, middleware: Sequence[Middleware] = ()) -> None:
        self._push = [m.around_push for m in middleware if type(m).around_push is not Middleware.around_push]
        self._run = [m.around_run for m in middleware if type(m).around_run is not Middleware.around_run]

    @property
    def around_pushes(self) -> bool:
        """There is something to enter around a push."""
        return bool(self._push)

    @property
    def around_runs(self) -> bool:
        """There is something to enter around a run."""
        return bool(self._run)

    def around_push(self, envelopes: Sequence[Envelope]) -> AbstractAsyncContextManager[None]:
        return _Nested([enter(envelopes) for enter in self._push])

    def around_run(self, context: JobContext) -> AbstractAsyncContextManager[None]:
        return _Nested([enter(context) for enter in self._run])


class _Nested(AbstractAsyncContextManager[None]):
    def __init__(self, managers: Sequence[AbstractAsyncContextManager[None]]) -> None:
        self._managers = managers
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> None:
        await self._stack.__aenter__()
        try:
            for manager in self._managers:
                await self._stack.enter_async_context(manager)
        except BaseException:
            await self._stack.aclose()
            raise

    async def __aexit__(self, *error: object) -> bool | None:
        return await self._stack.__aexit__(*error)  # type: ignore[arg-type]  # the triple is passed on as it came
