"""The sync driver: jobs in memory, run inline by send() or by a worker in the same process."""
