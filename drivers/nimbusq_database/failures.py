"""Failures that only `push` must tell from others."""

from nimbusq.errors import StoreError, StoreUnavailable


class OutcomeUnknown(StoreUnavailable):
    """The connection was lost while the commit was under way: it may have taken effect or not."""


class AlreadyThere(StoreError):
    """A row with this key is in the database; nothing was changed."""
