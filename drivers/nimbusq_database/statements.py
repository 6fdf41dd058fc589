"""The loader of the SQL files: one file a statement, compiled once to what a dialect's client takes.

`sql/common` holds what all dialects share; a file of the same name in `sql/<dialect>` wins over it. A file
begins with a comment (what it does, its parameters, the columns it returns). In its text

- ``:name`` is a parameter, written the way the client wants it;
- ``{p}`` is the prefix of all tables, from the settings and checked by their grammar;
- ``{now}`` is the server's clock in epoch seconds (as it began the statement), moved by the test's skew where
  the settings allow one;
- ``{part name}`` is the text of ``sql/<dialect>/parts/name.sql``, which several statements share;
- ``{in name}`` compares with a list parameter, ``{for update}`` and ``{skip locked}`` lock the rows that were
  read, ``{greatest}`` and ``{least}`` compare columns; each is spelled by the dialect.

Nothing else is ever put together from text. A file may hold several statements, run one after the other,
where a dialect has no single one for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, Literal

from nimbusq.errors import ConfigError

Style = Literal["qmark", "dollar", "pyformat"]
"""``?`` and ``$1`` with a sequence, ``%(name)s`` with a mapping."""

_SQL: Final = files("nimbusq_database") / "sql"
_PREFIX: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
_COMMENT: Final = re.compile(r"^\s*--.*\n", re.MULTILINE)
_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")
_MACRO: Final = re.compile(r"\{([a-z_ ]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """How a dialect writes what the files leave open. `skew` is added to `now` in testing mode.

    now may be a parameter of the client's own; clock is an expression that needs no client.
    """

    style: Style
    now: str
    clock: str
    contains: Callable[[str], str]
    greatest: str
    least: str
    for_update: str
    skip_locked: str
    skew: str = " + (select value from {p}meta where name = 'skew')"


@dataclass(frozen=True, slots=True)
class Part:
    """One statement for the client, and the names of its parameters in order: each once, or once a ``?``."""

    text: str
    names: tuple[str, ...]


@dataclass(slots=True)
class Statements:
    """All statements of one dialect under one prefix, each read and compiled when it is first asked for."""

    dialect: str
    prefix: str
    spelling: Spelling
    testing: bool = False
    _compiled: dict[tuple[str, Style], tuple[Part, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):
            raise ConfigError(
                f"the prefix {self.prefix!r} is not allowed: 1 to 32 of a-z 0-9 _, beginning with a letter."
            )

    def get(self, name: str, style: Style | None = None) -> tuple[Part, ...]:
        """The parts of the statement `name`, for the dialect's own client or for one of another style."""
        key = name, style or self.spelling.style
        parts = self._compiled.get(key)
        if parts is None:
            parts = self._compiled[key] = self.compile(_find(self.dialect, name).read_text("utf-8"), key[1])
        return parts

    def compile(self, source: str, style: Style | None = None) -> tuple[Part, ...]:
        """The parts of a file's text, its comments left out."""
        text = self._filled(source)
        return tuple(
            _part(piece.strip(), style or self.spelling.style) for piece in text.split(";\n") if piece.strip()
        )

    def _filled(self, source: str) -> str:
        """Without comments and macros."""
        return _MACRO.sub(self._macro, _COMMENT.sub("", source))

    def script(self, source: str) -> str:
        """A migration's text with its prefix filled in, for people who run it by themselves."""
        return _MACRO.sub(self._macro, source)

    def _macro(self, match: re.Match[str]) -> str:
        spelling, prefix = self.spelling, f"{self.prefix}_"
        word, _, argument = match[1].partition(" ")
        if word == "in":
            return spelling.contains(argument)
        if word == "part":
            path = _SQL / self.dialect / "parts" / f"{argument}.sql"
            return self._filled(path.read_text("utf-8")).strip()
        skewed = f"({spelling.now}{spelling.skew.replace('{p}', prefix)})"
        return {
            "p": prefix,
            "now": skewed if self.testing else spelling.now,
            "for update": spelling.for_update,
            "skip locked": spelling.skip_locked,
            "greatest": spelling.greatest,
            "least": spelling.least,
        }[match[1]]


def names(dialect: str) -> Sequence[str]:
    """The names of all statements that a dialect has."""
    found = {
        path.name.removesuffix(".sql")
        for folder in ("common", dialect)
        for path in (_SQL / folder).iterdir()
        if path.name.endswith(".sql")
    }
    return sorted(found)


def migration_files(dialect: str) -> Mapping[str, str]:
    """File name -> text, in the order of their numbers."""
    folder = _SQL / dialect / "migrations"
    found = {path.name: path.read_text("utf-8") for path in folder.iterdir() if path.name.endswith(".sql")}
    return dict(sorted(found.items()))


def _find(dialect: str, name: str) -> Traversable:
    own = _SQL / dialect / f"{name}.sql"
    return own if own.is_file() else _SQL / "common" / f"{name}.sql"


def _part(text: str, style: Style) -> Part:
    text = text.removesuffix(";")
    found = [match[1] for match in _PARAMETER.finditer(text)]
    names = tuple(dict.fromkeys(found))
    match style:
        case "qmark":
            return Part(_PARAMETER.sub("?", text), tuple(found))
        case "pyformat":
            return Part(_PARAMETER.sub(r"%(\1)s", text.replace("%", "%%")), names)
        case "dollar":
            return Part(_PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", text), names)
