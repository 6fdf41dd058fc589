"""Which SQS queue stands for a queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nimbusq.errors import ConfigError, InvalidName
from nimbusq_sqs.names import Addresses, escaped, failed_queue, unescaped

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", fullmatch=True)


@given(NAMES)
def test_a_name_is_escaped_reversibly_into_what_sqs_allows(queue: str) -> None:
    name = escaped(queue)
    assert set(name.removesuffix(".fifo")) <= set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
    )
    assert unescaped(name) == queue


@given(NAMES, NAMES)
def test_no_two_queues_share_a_name(one: str, other: str) -> None:
    assert (escaped(one) == escaped(other)) == (one == other)


def test_names_as_people_meet_them() -> None:
    assert escaped("mail") == "mail"
    assert escaped("mail.high") == "mail_dhigh"
    assert escaped("mail_dhigh") == "mail__dhigh"
    assert escaped("orders.fifo") == "orders.fifo"
    assert failed_queue("mail") == "mail-failed"
    assert failed_queue("orders.fifo") == "orders-failed"


def test_without_a_url_the_name_is_made_from_the_prefix() -> None:
    addresses = Addresses.parse(None, prefix="shop")
    assert (addresses.of("mail.high").name, addresses.of("mail.high").url) == ("shop-mail_dhigh", None)
    assert addresses.queue_of("shop-mail_dhigh") == "mail.high"
    assert addresses.queue_of("shopping-mail") is None


def test_one_url_is_the_default_queues() -> None:
    addresses = Addresses.parse("https://sqs.eu-west-1.amazonaws.com/1/jobs", prefix="shop")
    assert addresses.of("default").url == "https://sqs.eu-west-1.amazonaws.com/1/jobs"
    assert addresses.of("default").name == "jobs"
    assert addresses.of("mail").url is None
    assert addresses.failed_of("default").url == "https://sqs.eu-west-1.amazonaws.com/1/jobs-failed"


def test_a_url_with_a_star_begins_all_urls() -> None:
    addresses = Addresses.parse("https://host/1/shop-*", prefix="nimbusq")
    assert addresses.of("mail.high").url == "https://host/1/shop-mail_dhigh"
    assert addresses.failed_of("mail").url == "https://host/1/shop-mail-failed"


@pytest.mark.parametrize("given", [{"mail": "https://h/1/m"}, '{"mail": "https://h/1/m"}'])
def test_a_map_names_single_queues(given: object) -> None:
    addresses = Addresses.parse(given, prefix="shop")  # type: ignore[arg-type]  # both are allowed
    assert addresses.of("mail").url == "https://h/1/m"
    assert addresses.of("default").name == "shop-default"


def test_a_failed_queue_may_have_a_url_of_its_own() -> None:
    urls = {"mail": "https://h/1/m", "mail-failed": "https://h/1/grave"}
    assert Addresses.parse(urls, prefix="shop").failed_of("mail").url == "https://h/1/grave"


def test_a_fifo_queue_is_known_by_its_name() -> None:
    addresses = Addresses.parse({"a": "https://h/1/orders.fifo"}, prefix="shop")
    assert addresses.of("a").fifo
    assert addresses.failed_of("a").url == "https://h/1/orders-failed"
    assert addresses.of("orders.fifo").name == "shop-orders.fifo"
    assert not addresses.of("orders").fifo


@pytest.mark.parametrize(
    "given",
    [
        "sqs.amazonaws.com/1/q",
        "ftp://h/q",
        "https://h/",
        "https://user:secret@h/1/q",
        "{not json",
        '{"a": 1}',
        "[1]*",
        {"a": "https://h/1/q", "b": "https://h/1/q"},
    ],
)
def test_what_cannot_be_used_is_refused_without_its_secrets(given: object) -> None:
    with pytest.raises(ConfigError) as caught:
        Addresses.parse(given, prefix="shop")  # type: ignore[arg-type]  # wrong on purpose
    assert "secret" not in str(caught.value)


def test_a_name_that_gets_too_long_is_refused() -> None:
    with pytest.raises(InvalidName, match="80 characters"):
        Addresses.parse(None, prefix="shop").of("a" + "_" * 60)
