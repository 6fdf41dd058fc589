"""What type checkers must make of the public API: mypy and pyright both read this file, nothing runs it.

A line that must be refused carries both checkers' ignores; they complain of an ignore that is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_type

from nimbusq import Job, Receipt, dispatch, dispatch_many, job


class SendEmail(Job, queue="mail", retries=5, timeout=30):
    user_id: int
    subject: str = ""

    async def handle(self) -> str:
        return self.subject


@job(queue="reports")
async def build_report(tenant: int, day: str = "today") -> str:
    return f"{tenant} {day}"


@job
async def count(words: Sequence[str]) -> int:
    return len(words)


async def functions_keep_their_types() -> None:
    assert_type(await build_report(7), str)
    assert_type(await count(["a"]), int)
    assert_type(await dispatch(build_report, tenant=7).send(), Receipt[str])
    assert_type(await (await dispatch(count, ["a"]).send()).result(timeout=1), int)


async def arguments_are_checked() -> None:
    SendEmail(user_id="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    dispatch(build_report, tenant="x")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    dispatch(build_report)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    dispatch(count, [1])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


async def builders_chain() -> None:
    receipt = await dispatch(build_report, 7).on_queue("slow").priority(1).retries(3).delay(minutes=5).send()
    assert_type(receipt.id, str)
    assert_type(await receipt.result(), str)


async def many_keep_their_order() -> None:
    receipts = await dispatch_many([SendEmail(user_id=1), dispatch(build_report, 7)])
    assert_type(receipts[0], Receipt[Any])
