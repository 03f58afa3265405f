"""When the standing job is submitted, and when it is started anew."""

from __future__ import annotations

import json

from fedcircuits.engines.nvflare.keeper import LATE, JobWatch, job_files

ALL = frozenset({"coordinator", "north", "south"})


def seen(**members: str) -> dict[str, set[str]]:
    return {name: {job} if job else set() for name, job in members.items()}


def test_a_job_is_submitted_when_all_are_there() -> None:
    watch = JobWatch(ALL)
    assert watch.advise([], {}, 0.0) == ""
    assert watch.advise([], seen(coordinator="", north=""), 1.0) == ""
    assert watch.advise([], seen(coordinator="", north="", south=""), 2.0) == "submit"


def test_who_is_missing_is_not_waited_for_without_end() -> None:
    watch = JobWatch(ALL)
    there = seen(coordinator="", north="")
    assert watch.advise([], there, 0.0) == ""
    assert watch.advise([], there, LATE / 2) == ""
    assert watch.advise([], there, LATE + 1) == "submit"


def test_a_member_that_comes_later_is_taken_in() -> None:
    watch = JobWatch(ALL)
    with_it, without = seen(coordinator="j", north="j"), seen(coordinator="j", north="j", south="")
    assert watch.advise(["j"], with_it, 0.0) == ""  # who does not answer disturbs nobody
    assert watch.advise(["j"], with_it, LATE + 1) == ""
    assert watch.advise(["j"], without, LATE + 2) == ""
    assert watch.advise(["j"], seen(coordinator="j", north="j", south="j"), LATE + 4) == ""
    assert watch.advise(["j"], without, LATE + 5) == ""
    assert watch.advise(["j"], without, 2 * LATE + 6) == "renew"


def test_there_is_one_job() -> None:
    there = seen(coordinator="j", north="j", south="j")
    assert JobWatch(ALL).advise(["j", "k"], there, 0.0) == "renew"


def test_clients_that_are_no_members_are_left_alone() -> None:
    watch = JobWatch(ALL)
    there = seen(coordinator="j", north="j", south="j", radiology="other")
    assert watch.advise(["j"], there, 0.0) == watch.advise(["j"], there, LATE + 1) == ""


def test_the_job_names_two_classes_and_carries_nothing_else() -> None:
    files = job_files({"north", "coordinator"})
    assert sorted(files) == [
        "fedcircuits/config/config_fed_client.json",
        "fedcircuits/config/config_fed_server.json",
        "meta.json",
    ]
    text = json.dumps(files)
    assert files["meta.json"]["deploy_map"] == {"fedcircuits": ["server", "coordinator", "north"]}
    assert text.count("fedcircuits.engines.nvflare.job.") == text.count('"path"') == 2
