"""Watching jobs from outside: observers, and what is built on them."""

from nimbusq.observe.observers import Observer, Observers

__all__ = ["Observer", "Observers"]
