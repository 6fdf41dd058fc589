"""nimbusq: an asyncio-native job queue with one API over sync, redis, database, sqs and kafka.

::

    receipt = await dispatch(SendEmail(user_id=12)).delay(minutes=5).send()

What stands here is the public surface; everything else is imported from its own module.
"""

from nimbusq.batch import Batch
from nimbusq.builder import dispatch, dispatch_many
from nimbusq.chain import Chain
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
