"""When a schedule is due, over daylight saving too."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from nimbusq.cron import Cron, Every
from nimbusq.errors import InvalidOption

NEW_YORK = ZoneInfo("America/New_York")


def at(text: str, zone: ZoneInfo = NEW_YORK) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def ticks(expression: str, since: float, until: float, zone: ZoneInfo = NEW_YORK) -> list[str]:
    """The ticks in (since, until], on the zone's own clock with its offset."""
    found = itertools.takewhile(lambda tick: tick <= until, Cron(expression, zone.key).after(since))
    return [datetime.fromtimestamp(tick, zone).strftime("%d %H:%M%z") for tick in found]


# In New York the clocks go forward at 02:00 on 2026-03-08 and back at 02:00 on 2026-11-01.


def test_in_spring_a_time_that_does_not_exist_runs_once_right_after_the_gap() -> None:
    days = ticks("30 2 * * *", at("2026-03-06T12:00"), at("2026-03-09T12:00"))
    assert days == ["07 02:30-0500", "08 03:00-0400", "09 02:30-0400"]


def test_in_spring_half_hours_go_through_the_gap() -> None:
    night = ticks("*/30 * * * *", at("2026-03-08T01:00"), at("2026-03-08T04:00"))
    assert night == ["08 01:30-0500", "08 03:00-0400", "08 03:30-0400", "08 04:00-0400"]


def test_in_autumn_a_time_that_exists_twice_runs_once() -> None:
    days = ticks("30 1 * * *", at("2026-10-30T12:00"), at("2026-11-02T12:00"))
    assert days == ["31 01:30-0400", "01 01:30-0400", "02 01:30-0500"]


def test_in_autumn_half_hours_go_through_both_passes() -> None:
    night = ticks("*/30 * * * *", at("2026-11-01T00:30"), at("2026-11-01T02:30"))
    assert night == [
        "01 01:00-0400",
        "01 01:30-0400",
        "01 01:00-0500",
        "01 01:30-0500",
        "01 02:00-0500",
        "01 02:30-0500",
    ]


def test_in_autumn_every_hour_runs() -> None:
    night = ticks("0 * * * *", at("2026-11-01T00:00"), at("2026-11-01T03:00"))
    assert night == ["01 01:00-0400", "01 01:00-0500", "01 02:00-0500", "01 03:00-0500"]


@pytest.mark.parametrize("around", ["2026-03-08T00:00", "2026-11-01T00:00"])
@pytest.mark.parametrize("expression", ["30 2 * * *", "30 1 * * *", "*/30 * * * *", "0 * * * *"])
def test_ticks_backwards_are_those_forwards(expression: str, around: str) -> None:
    cron, since, until = Cron(expression, NEW_YORK.key), at(around), at(around) + 86_400
    forwards = list(itertools.takewhile(lambda tick: tick < until, cron.after(since)))
    backwards = list(itertools.takewhile(lambda tick: tick > since, cron.before(until)))
    assert backwards[::-1] == forwards


def test_day_and_weekday_are_alternatives() -> None:
    utc = ZoneInfo("UTC")
    days = ticks("0 12 13 * 5", at("2026-03-01T00:00", utc), at("2026-03-31T00:00", utc), utc)
    assert [day[:2] for day in days] == ["06", "13", "20", "27"]
    days = ticks("0 12 14 * 5", at("2026-03-01T00:00", utc), at("2026-03-31T00:00", utc), utc)
    assert [day[:2] for day in days] == ["06", "13", "14", "20", "27"]


def test_of_six_fields_the_first_is_seconds() -> None:
    start = 1_800_000_000.0
    assert list(itertools.islice(Cron("*/5 * * * * *").after(start), 3)) == [
        start + 5,
        start + 10,
        start + 15,
    ]


def test_the_last_friday_of_a_month() -> None:
    found = itertools.islice(Cron("0 0 * * 5L").after(at("2026-01-01T00:00", ZoneInfo("UTC"))), 2)
    days = [datetime.fromtimestamp(tick, UTC).date().isoformat() for tick in found]
    assert days == ["2026-01-30", "2026-02-27"]


@pytest.mark.parametrize(
    ("alias", "expression"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        ("@DAILY", "0 0 * * *"),
    ],
)
def test_aliases(alias: str, expression: str) -> None:
    start = 1_800_000_000.0
    assert next(Cron(alias).after(start)) == next(Cron(expression).after(start))


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "* * * *",
        "* * * * * * *",
        "61 * * * *",
        "0 0 31 2 *",
        "@reboot",
        "H * * * *",
        "a b c d e",
        "* * * * mon-",
    ],
)
def test_an_expression_that_never_fires_or_cannot_be_read_is_refused(expression: str) -> None:
    with pytest.raises(InvalidOption, match="cron expression"):
        Cron(expression)


@pytest.mark.parametrize("zone", ["", "Mars/Base", "../etc/passwd", "+02:00"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidOption, match="IANA time zone"):
        Cron("0 0 * * *", zone)


def test_an_interval_is_exact() -> None:
    found = list(itertools.islice(Every(90).after(1_800_000_000.0), 4))
    assert found == [1_800_000_090.0, 1_800_000_180.0, 1_800_000_270.0, 1_800_000_360.0]
    assert list(itertools.islice(Every(90).before(1_800_000_090.0), 2)) == [1_800_000_000.0, 1_799_999_910.0]


def test_tenths_of_seconds_do_not_drift() -> None:
    found = list(itertools.islice(Every(0.1).after(1_800_000_000.0), 1000))
    assert found[-1] == 1_800_000_100.0
    assert found == sorted(set(found))


@pytest.mark.parametrize("seconds", [0, 0.05, -1, float("inf"), float("nan"), "60"])
def test_an_interval_out_of_range_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidOption, match=r"0\.1 seconds or more"):
        Every(seconds)


def test_a_schedule_says_what_it_means() -> None:
    assert Cron("0 3 * * *", "Europe/Berlin").describe() == {
        "cron": "0 3 * * *",
        "tz": "Europe/Berlin",
        "words": "At 03:00 every day",
    }
    assert Every(90).describe() == {"every": 90, "words": "every 90 s"}
