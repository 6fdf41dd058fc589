"""Job classes of one test are unknown to the next."""

from __future__ import annotations

import pytest

from nimbusq.registry import Registry, registry


@pytest.fixture(autouse=True)
def own_registry(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry that knows the jobs of the test's module, and forgets those that the test itself defines."""
    own = Registry()
    for job in registry:
        if job.__module__ == request.module.__name__:
            own.add(job)
    monkeypatch.setattr("nimbusq.jobs.registry", own)
    monkeypatch.setattr("nimbusq.manager.all_jobs", own)
    return own
