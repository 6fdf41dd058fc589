"""What a correct queue would do: the state machine of `nimbusq.driver` in its smallest form, for one queue.

Time is counted in ticks. Jobs are claimed in the order (priority, due time, order of lining up); those that
line up in one step of the store share one order, since theirs among themselves is free.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LEASE = 3
"""Ticks."""


@dataclass(slots=True)
class ModelJob:
    priority: int
    due: int
    order: int
    max_attempts: int
    key: str | None
    attempt: int = 0
    releases: int = 0
    token: str | None = None
    until: int = 0
    ends: bool = False

    @property
    def place(self) -> tuple[int, int, int]:
        return self.priority, self.due, self.order


@dataclass(slots=True)
class Model:
    now: int = 0
    steps: int = 0
    jobs: dict[str, ModelJob] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)

    def push(self, job_id: str, priority: int, delay: int, max_attempts: int, key: str | None) -> str | None:
        """Answers the holder of the key, where the push is refused."""
        if key is not None and (holder := self.keys.setdefault(key, job_id)) != job_id:
            return holder
        self.steps += 1
        self.jobs[job_id] = ModelJob(priority, self.now + delay, self.steps, max_attempts, key)
        return None

    def reclaim(self) -> tuple[set[str], set[str]]:
        """Ids of the runs that are lost now, and of the jobs to be handed out with an ending."""
        lost, ending = set(), set()
        self.steps += 1
        for job_id, job in self.jobs.items():
            if job.token is None or job.until > self.now:
                continue
            if not job.ends:
                lost.add(job_id)
            job.token = None
            job.ends = job.ends or job.attempt >= job.max_attempts
            if job.ends:
                ending.add(job_id)
            else:
                job.due, job.order = self.now, self.steps
        return lost, ending

    def claimable(self) -> list[tuple[int, int, int]]:
        """The places of all jobs that may be claimed to run, in order."""
        return sorted(job.place for job in self.jobs.values() if self._is_ready(job))

    def _is_ready(self, job: ModelJob) -> bool:
        return job.token is None and not job.ends and job.due <= self.now

    def claim(self, job_id: str, token: str) -> ModelJob:
        job = self.jobs[job_id]
        job.token, job.until = token, self.now + LEASE
        job.attempt += not job.ends
        return job

    def holds(self, job_id: str, token: str) -> bool:
        job = self.jobs.get(job_id)
        return job is not None and job.token == token

    def end(self, job_id: str) -> None:
        job = self.jobs.pop(job_id)
        if job.key is not None:
            del self.keys[job.key]

    def put_back(self, job_id: str, delay: int, *, attempt: int, release: int) -> None:
        job = self.jobs[job_id]
        self.steps += 1
        job.token, job.due, job.order = None, self.now + delay, self.steps
        job.attempt -= attempt
        job.releases += release

    def depth(self) -> tuple[int, int, int]:
        running = sum(job.token is not None for job in self.jobs.values())
        pending = len(self.claimable())
        return pending, len(self.jobs) - running - pending, running
