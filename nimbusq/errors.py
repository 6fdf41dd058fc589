"""Every error that nimbusq raises, in one tree.

::

    NimbusqError
    ├── ConfigError                 a setting, a URL or the app cannot be used
    │   ├── UnknownDriver           no driver is registered under that name
    │   ├── MissingExtra            the driver's client library is not installed
    │   └── SchemaMismatch          the stored schema is older than this version needs
    ├── DispatchError               nothing was stored
    │   ├── InvalidOption           an option's value is out of range            (ValueError)
    │   ├── InvalidName             a queue, job or batch name breaks the grammar (ValueError)
    │   ├── InvalidUniqueKey        a unique or overlap key breaks the rules      (ValueError)
    │   ├── InvalidJob              this object is not a job                      (TypeError)
    │   ├── SerializationError      the arguments would not come back as sent
    │   ├── PayloadTooLarge         the job exceeds what the driver carries
    │   ├── DuplicateJob            another active job holds the unique slot
    │   ├── UnsupportedByDriver     the driver cannot do this, and no store can for it
    │   └── NoManager               no manager is active
    ├── DispatchUncertain           the store may or may not have taken the job
    ├── JobError                    how a job ended, as its caller or its failed() hook sees it
    │   ├── JobFailed · JobCancelled · ResultExpired
    │   ├── JobTimeout · WorkerLost · Interrupted · RemoteError
    │   └── UnknownJob · UnreadableJob · UnsupportedVersion
    ├── LeaseLost                   the run's lease is gone; its outcome will be refused
    ├── BatchNotFound               unknown or expired batch                      (KeyError)
    ├── JobNotFound                 unknown job or failed record                  (KeyError)
    └── StoreError                  the backend said no
        ├── StoreUnavailable        not reachable, or not ready; worth another try
        └── StoreFull               out of memory or disk

    ControlFlow (BaseException)     raised by a handler, never caught by its ``except Exception``
    ├── Release                     put the job back, no attempt counted
    └── Fail                        fail for good, no retry
"""

from __future__ import annotations

from datetime import timedelta


class NimbusqError(Exception):
    """The root: ``except NimbusqError`` catches everything that nimbusq raises by itself."""


class ConfigError(NimbusqError):
    """A setting, a URL or the application module cannot be used as it is."""


class UnknownDriver(ConfigError):
    """No driver is registered under that name or URL scheme."""


class MissingExtra(ConfigError):
    """A driver's client library is not installed; the message names the extra."""


class SchemaMismatch(ConfigError):
    """The stored schema is older than this version needs; run ``nimbusq migrate up``."""


class DispatchError(NimbusqError):
    """A dispatch was refused before anything was stored."""


class InvalidOption(DispatchError, ValueError):
    """An option's value is outside its range."""


class InvalidName(DispatchError, ValueError):
    """A name breaks the grammar ``[A-Za-z0-9][A-Za-z0-9_.-]{0,63}``."""


class InvalidUniqueKey(DispatchError, ValueError):
    """A key is empty, longer than 256 bytes, not valid UTF-8, or has a NUL (Cyclone's rules)."""


class InvalidJob(DispatchError, TypeError):
    """The object is no job: not an instance of a Job class, not made by ``@job``."""


class SerializationError(DispatchError):
    """The arguments do not survive the trip: what the worker would get is not what was sent."""


class PayloadTooLarge(DispatchError):
    """The encoded job exceeds the driver's limit, in bytes."""


class DuplicateJob(DispatchError):
    """Another active job holds the unique slot; an expected answer, not a crash.

    `job_id` is the holder's id (Cyclone's ``DuplicateError.RunID``).
    """

    def __init__(self, job_id: str, name: str, key: str) -> None:
        super().__init__(
            f"{name} with unique key {key!r} is already active as job {job_id}. "
            "Wait for it, return its id, or send with on_duplicate='skip'."
        )
        self.job_id = job_id
        self.name = name
        self.key = key


class UnsupportedByDriver(DispatchError):
    """The driver cannot meet a need, and there is no store beside it that could.

    `driver` and `need` name the two, `remedy` says what to do.
    """

    def __init__(self, driver: str, need: str, remedy: str) -> None:
        super().__init__(f"the {driver} driver cannot do {need}. {remedy}")
        self.driver = driver
        self.need = need
        self.remedy = remedy


class NoManager(DispatchError):
    """No manager is active: call ``await nimbusq.boot()`` or enter ``async with Manager(...)``."""


class DispatchUncertain(NimbusqError):
    """The reply to a push was lost at its commit: the job may be stored or not.

    Sending the job again may run it twice; `job_id` is the id to look for.
    """

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"the reply to the dispatch of job {job_id} was lost: it may be stored or not. "
            "Look it up by its id before sending it again."
        )
        self.job_id = job_id


class JobError(NimbusqError):
    """How a job ended, as its caller or its ``failed()`` hook sees it."""


class JobFailed(JobError):
    """The awaited job failed for good; `error` is the last error's text."""

    def __init__(self, job_id: str, error: str) -> None:
        super().__init__(f"job {job_id} failed: {error}")
        self.job_id = job_id
        self.error = error


class JobCancelled(JobError):
    """The awaited job was cancelled, or expired before it could start."""

    def __init__(self, job_id: str, reason: str) -> None:
        super().__init__(f"job {job_id} was cancelled: {reason}")
        self.job_id = job_id
        self.reason = reason


class ResultExpired(JobError):
    """The store knows nothing of that job (any more)."""


class JobTimeout(JobError):
    """A run took longer than the job's timeout."""


class WorkerLost(JobError):
    """Every allowed run ended with its worker: crashed, killed, or cut off for a whole lease."""


class Interrupted(JobError):
    """A job with no retries was cut by a shutdown and is not started again."""


class RemoteError(JobError):
    """What a handler raised in a process of its own: `kind` is the class's name, `traceback` its text."""

    def __init__(self, kind: str, text: str, traceback: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.traceback = traceback


class UnknownJob(JobError):
    """No job is registered under that name in this worker."""


class UnreadableJob(JobError):
    """The stored bytes cannot be decoded."""


class UnsupportedVersion(UnreadableJob):
    """The envelope was written by a newer nimbusq."""


class LeaseLost(NimbusqError):
    """The run's lease expired; another worker may run the job, and this run's outcome is refused."""


class BatchNotFound(NimbusqError, KeyError):
    """The batch is unknown, or its record has expired."""

    __str__ = Exception.__str__


class JobNotFound(NimbusqError, KeyError):
    """The job, or its failed record, is unknown."""

    __str__ = Exception.__str__


class StoreError(NimbusqError):
    """The backend refused; the client library's own error is the cause."""


class StoreUnavailable(StoreError):
    """The backend cannot be reached or is not ready; the same call may succeed later."""


class StoreFull(StoreError):
    """The backend is out of memory or disk; nothing was stored."""


class ControlFlow(BaseException):
    """Raised by a handler to say how its run ends.

    Derives from BaseException so that an ``except Exception`` in a handler cannot swallow it.
    """


class Release(ControlFlow):
    """Put the job back after `delay` seconds without counting an attempt (the seed's ``queue.Release``)."""

    def __init__(self, delay: float | timedelta = 0.0) -> None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
        if not 0 <= seconds < 1e11:  # as every duration, see nimbusq.retry.FOREVER
            raise InvalidOption(f"Release takes a delay from 0 to 1e11 seconds, not {delay!r}.")
        super().__init__(f"job released for {seconds:g} s")
        self.delay = seconds


class Fail(ControlFlow):
    """Fail the job for good, whatever retries it has left. `reason` is a text or an exception."""

    def __init__(self, reason: str | BaseException) -> None:
        super().__init__(str(reason))
        self.reason = reason
