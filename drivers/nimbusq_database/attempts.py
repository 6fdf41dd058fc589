"""Running a transaction again where the server has undone it, and knowing when its outcome is open."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, TypeVar

from nimbusq.errors import StoreUnavailable
from nimbusq_database.failures import OutcomeUnknown

T = TypeVar("T")

_PAUSE: Final = 0.01
"""Seconds at most before a transaction that lost a deadlock is run again."""


@dataclass(slots=True)
class Attempt:
    """until: on the loop's clock. commit: it may be under way, so that a lost connection leaves it open."""

    until: float
    commit: bool = False


async def repeat(
    run: Callable[[Attempt], Awaitable[T]],
    *,
    limit: float,
    translated: Callable[[], AbstractContextManager[None]],
    undone: Callable[[Exception], bool],
) -> T:
    """Run until it succeeds, fails for another reason than a deadlock, or `limit` seconds have passed.

    Raises what `translated` makes of an error; OutcomeUnknown where the commit may have taken effect.
    """
    attempt = Attempt(asyncio.get_running_loop().time() + limit)
    try:
        with translated():
            while True:
                attempt.commit = False
                try:
                    return await run(attempt)
                except Exception as error:
                    if not undone(error):
                        raise
                await asyncio.sleep(random.uniform(0, _PAUSE))  # noqa: S311  # parts two that met
    except StoreUnavailable as error:
        if attempt.commit:
            raise OutcomeUnknown(str(error)) from error
        raise
