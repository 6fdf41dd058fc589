"""The loader of the SQL files, and the files."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from nimbusq.errors import ConfigError
from nimbusq_database.statements import Statements, names
from nimbusq_database.urls import dialect_class

DIALECTS = ("sqlite", "postgres", "mysql")
SHORT = {
    "claim_plain", "extend_plain", "settle_and_claim", "settle_ends", "settle_plain", "notify", "jobs_push_new",
}  # fmt: skip
"""Statements of PostgreSQL alone, where a statement is a round trip and to look for each row costs."""


def statements(dialect: str, *, testing: bool = False) -> Statements:
    return Statements(dialect, "shop", dialect_class(dialect).spelling, testing)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_file_compiles(dialect: str) -> None:
    loaded = statements(dialect, testing=True)
    for name in names(dialect):
        for part in loaded.get(name):
            assert part.text
            assert not re.search(r"[{}]", part.text), name


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_file_begins_with_what_it_does(dialect: str) -> None:
    root = files("nimbusq_database") / "sql"
    for folder in ("common", dialect):
        for path in (root / folder).iterdir():
            if path.name.endswith(".sql"):
                assert path.read_text().startswith("-- "), path.name


def test_all_dialects_have_the_same_statements() -> None:
    assert names("sqlite") == names("mysql") == sorted(set(names("postgres")) - SHORT)


def test_a_parameter_is_written_as_the_client_wants_it() -> None:
    source = "select :a, :b2, :a::text, '{p}x' from {p}jobs where id {in ids} -- :not\n"
    (qmark,) = statements("sqlite").compile(source)
    assert qmark.text.startswith("select ?, ?, ?::text, 'shop_x' from shop_jobs where id in (select")
    assert qmark.names == ("a", "b2", "a", "ids", "not")
    (dollar,) = statements("postgres").compile("select :a, :b2, :a::text from {p}jobs where id {in ids};\n")
    assert dollar.text == "select $1, $2, $1::text from shop_jobs where id = any ($3::text[])"
    assert dollar.names == ("a", "b2", "ids")
    (pyformat,) = statements("mysql").compile("select :a from {p}jobs where x like '%' and id {in ids}")
    assert pyformat.text == "select %(a)s from shop_jobs where x like '%%' and id in %(ids)s"


def test_a_file_may_hold_several_statements() -> None:
    parts = statements("mysql").compile("-- first;\ndelete from {p}a;\nupdate {p}b set x = :x;\n")
    assert [part.text for part in parts] == ["delete from shop_a", "update shop_b set x = %(x)s"]


def test_a_part_is_put_in_with_its_own_macros_and_parts() -> None:
    (joined,) = statements("postgres").get("settle_and_claim")
    assert "delete from shop_jobs" in joined.text
    assert "on conflict (id) do update" in joined.text
    assert "for update of j skip locked" in joined.text
    assert "--" not in joined.text
    assert len(joined.names) == len(set(joined.names))


def test_the_clock_has_a_skew_in_testing_mode_only() -> None:
    (plain,) = statements("postgres").get("now")
    (skewed,) = statements("postgres", testing=True).get("now")
    assert "shop_meta" not in plain.text
    assert "shop_meta" in skewed.text


@pytest.mark.parametrize("prefix", ["", "9a", "A", "a-b", 'a"; drop table x', "a" * 33, "a\n"])
def test_a_prefix_outside_the_grammar_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match="prefix"):
        Statements("sqlite", prefix, dialect_class("sqlite").spelling)


def test_an_unknown_macro_is_an_error() -> None:
    with pytest.raises(KeyError):
        statements("sqlite").compile("select {nothing}")
