"""Job classes of one test are unknown to the next."""

from __future__ import annotations

import pytest

from nimbusq.registry import Registry, registry


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry that knows the jobs of imported modules, and forgets those that the test defines."""
    own = Registry()
    for job in registry:
        own.add(job)
    monkeypatch.setattr("nimbusq.jobs.registry", own)
    monkeypatch.setattr("nimbusq.manager.all_jobs", own)
    return own
