"""The pytest plugin of nimbusq, found through the entry point ``pytest11``.

It is a top-level module, and it imports nimbusq inside its fixtures only: pytest loads its plugins before
coverage starts, so that an import here would count every line of the package's start-up as never run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from nimbusq.testing import Desk


@pytest.fixture
def nimbusq_desk() -> Iterator[Desk]:
    """A queue in memory that is the process's default for this test; see `nimbusq.testing.Desk`.

    What the code under test sends stays there: look with `sent` and `assert_sent`, run it with ``await drain()``.
    """
    from nimbusq.manager import find_manager, set_default
    from nimbusq.testing import Desk

    before = find_manager()
    desk = Desk()
    set_default(desk.manager)
    try:
        yield desk
    finally:
        set_default(before)
