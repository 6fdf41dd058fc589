"""Workers: the claim loop, one run, the keeper of leases, the settler, and stopping in good order."""

from nimbusq.worker.worker import Worker

__all__ = ["Worker"]
