"""The sync driver: jobs in memory, run inline by send() or by a worker in the same process."""

from nimbusq_sync.adapter import SyncAdapter

__all__ = ["SyncAdapter"]
