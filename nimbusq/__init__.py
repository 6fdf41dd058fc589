"""nimbusq: an asyncio-native job queue with one API over sync, redis, database, sqs and kafka.

::

    receipt = await dispatch(SendEmail(user_id=12)).delay(minutes=5).send()

What stands here is the public surface; everything else is imported from its own module.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nimbusq.builder import dispatch
from nimbusq.bulk import dispatch_many
from nimbusq.config import Settings
from nimbusq.context import current_job
from nimbusq.driver import BatchState
from nimbusq.errors import (
    BatchNotFound,
    ConfigError,
    DispatchError,
    DuplicateJob,
    Fail,
    JobCancelled,
    JobFailed,
    LeaseLost,
    NimbusqError,
    NoManager,
    Release,
    ResultExpired,
    StoreError,
    UnsupportedByDriver,
)
from nimbusq.jobs import Job, job
from nimbusq.manager import Manager, boot, get_manager
from nimbusq.observe import Observer
from nimbusq.receipt import Receipt

if TYPE_CHECKING:
    from nimbusq.batch import Batch
    from nimbusq.chain import Chain
    from nimbusq.schedule import Scheduler
    from nimbusq.worker import Worker

__all__ = [
    "Batch",
    "BatchNotFound",
    "BatchState",
    "Chain",
    "ConfigError",
    "DispatchError",
    "DuplicateJob",
    "Fail",
    "Job",
    "JobCancelled",
    "JobFailed",
    "LeaseLost",
    "Manager",
    "NimbusqError",
    "NoManager",
    "Observer",
    "Receipt",
    "Release",
    "ResultExpired",
    "Scheduler",
    "Settings",
    "StoreError",
    "UnsupportedByDriver",
    "Worker",
    "boot",
    "current_job",
    "dispatch",
    "dispatch_many",
    "get_manager",
    "job",
]

_ON_FIRST_USE = {
    "Batch": "nimbusq.batch",
    "Chain": "nimbusq.chain",
    "Scheduler": "nimbusq.schedule",
    "Worker": "nimbusq.worker",
}
"""What a program that only sends jobs does not need, and need not wait for."""


def __getattr__(name: str) -> Any:
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module 'nimbusq' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_ON_FIRST_USE[name]), name)
    return found
