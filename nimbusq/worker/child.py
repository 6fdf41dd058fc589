"""The program of a handler's own process; see `nimbusq.worker.processes`. It ends when its parent does."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import queue
import struct
import sys
import threading
import traceback
from typing import Any, BinaryIO

from nimbusq import context as contexts
from nimbusq.codec import JsonCodec
from nimbusq.driver import Claim
from nimbusq.envelope import Envelope
from nimbusq.errors import Fail, Release
from nimbusq.jobs import Job, result_adapter
from nimbusq.registry import registry

_LENGTH = struct.Struct(">I")


def main() -> None:
    """Answer requests one by one. What handlers print goes to stderr, since stdout carries the answers."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, requests), daemon=True).start()
    while True:
        body = json.dumps(_serve(requests.get())).encode()
        answers.write(_LENGTH.pack(len(body)) + body)
        answers.flush()


def _listen(stream: BinaryIO, requests: queue.Queue[dict[str, Any]]) -> None:
    """The end of the stream is the parent's end: a handler must not outlive its lease unseen."""
    while header := stream.read(_LENGTH.size):
        requests.put(json.loads(stream.read(_LENGTH.unpack(header)[0])))
    os._exit(0)


def _serve(request: dict[str, Any]) -> dict[str, Any]:
    options = None
    try:
        job, claim = _load(request)
        options = type(job).options
        value = asyncio.run(_run(job, claim))
        encoded = None if value is None else result_adapter(type(job)).dump_json(value).decode()
    except Release as release:
        return {"release": release.delay}
    except Fail as failure:
        return {"fail": str(failure.reason)}
    except BaseException as error:  # noqa: BLE001  # whatever a handler raises is its answer
        final = options is not None and isinstance(error, options.dont_retry)
        trace = "".join(traceback.format_exception(error))
        return {
            "error": {"kind": type(error).__name__, "text": str(error), "traceback": trace, "final": final}
        }
    return {"result": encoded}


def _load(request: dict[str, Any]) -> tuple[Job, Claim]:
    sys.path[:] = request["path"]
    _import(request["module"], request["file"])
    envelope = Envelope.from_text(request["wire"])
    assert isinstance(envelope, Envelope)  # the parent read it
    claim = Claim(
        id=envelope.id,
        queue=envelope.queue,
        envelope=envelope,
        attempt=request["attempt"],
        token="",
        releases=request["releases"],
        fence=request["fence"],
    )
    return JsonCodec().decode(registry.get(envelope.name), envelope.body), claim


def _import(module: str, file: str | None) -> None:
    """The module that defines the job; a program's ``__main__`` by its file, under another name."""
    if module != "__main__":
        importlib.import_module(module)
        return
    if "__nimbusq_main__" in sys.modules or file is None:
        return
    spec = importlib.util.spec_from_file_location("__nimbusq_main__", file)
    assert spec is not None  # a Python file, since it runs as one
    assert spec.loader is not None
    sys.modules["__nimbusq_main__"] = loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)


async def _run(job: Job, claim: Claim) -> Any:
    envelope = claim.envelope
    assert isinstance(envelope, Envelope)  # made by _load
    contexts.enter(contexts.JobContext(claim, envelope))
    answer = job.handle()
    return await answer if asyncio.iscoroutine(answer) else answer


if __name__ == "__main__":
    main()
