"""The pytest plugin of nimbusq, found through the entry point ``pytest11``.

It is a top-level module, and it imports nimbusq inside its fixtures only: pytest loads its plugins before
coverage starts, so that an import here would count every line of the package's start-up as never run.
"""
