from __future__ import annotations

from dataclasses import replace

import pytest

from builder.doctor import Device, Engine, Facts, Item, Login, Site, examine, ready

GOOD = Facts(
    python=(3, 12, 4),
    uv="uv 0.9.0",
    store="/home/me/.cache/builder",
    store_free=100 << 30,
    engines=(),
    logins=(),
    sites=(Site(name="index", url="https://example.org/simple", outcome="reached", needed=True),),
    devices=(),
)


def item(facts: Facts, name: str) -> Item:
    (found,) = [line for line in examine(facts) if line.name == name]
    return found


def test_a_good_machine_is_ready_and_every_line_says_ok() -> None:
    items = examine(GOOD)
    assert ready(items)
    assert {line.verdict for line in items} == {"ok"}


@pytest.mark.parametrize(
    ("broken", "name", "fix"),
    [
        (replace(GOOD, python=(3, 10, 9)), "python", "install Python 3.11"),
        (replace(GOOD, uv=""), "uv", "pip install uv"),
        (replace(GOOD, store_problem="Read-only file system"), "store", "BUILDER_STORE"),
        (replace(GOOD, store_free=100 << 20), "disk", "free some space"),
        (replace(GOOD, namespaces_problem="Operation not permitted"), "runner", "--runner docker"),
        (
            replace(GOOD, sites=(replace(GOOD.sites[0], outcome="failed", problem="connection refused"),)),
            "index",
            "mirror",
        ),
    ],
)
def test_each_missing_need_makes_the_machine_not_ready_and_says_how_to_mend_it(
    broken: Facts, name: str, fix: str
) -> None:
    line = item(broken, name)
    assert line.verdict == "missing"
    assert fix in line.fix
    assert not ready(examine(broken))


def test_what_only_others_need_does_not_count() -> None:
    facts = replace(
        GOOD,
        engines=(Engine(name="docker", problem="no daemon", fix="start it"),),
        logins=(Login(host="registry.example.org"),),
        devices=(Device(backend="cuda", title="NVIDIA CUDA", nodes=()),),
        sites=(
            Site(name="vendor index", url="https://example.org/v", outcome="failed", problem="timeout", needed=False),
        ),
    )
    assert ready(examine(facts))
    assert item(facts, "engine docker").fix == "start it"
    assert item(facts, "login registry.example.org").fix == "docker login registry.example.org"
    assert "not-run" in item(facts, "device cuda").detail
    assert item(facts, "vendor index").verdict == "missing"


def test_what_was_not_looked_at_is_neither_there_nor_missing() -> None:
    facts = replace(GOOD, sites=(replace(GOOD.sites[0], outcome="not-run", problem="--offline"),))
    assert item(facts, "index").verdict == "not-run"
    assert ready(examine(facts))


def test_little_room_is_said_but_a_small_service_still_builds() -> None:
    facts = replace(GOOD, store_free=5 << 30)
    assert item(facts, "disk").verdict == "ok"
    assert "5.0 GiB free" in item(facts, "disk").detail
    assert ready(examine(facts))


def test_a_device_that_may_not_be_opened_is_told_from_one_that_is_absent() -> None:
    denied = Device(backend="rocm", title="AMD ROCm", nodes=("/dev/kfd",), problem="/dev/kfd belongs to gid 44")
    facts = replace(GOOD, devices=(denied, Device(backend="npu", title="Ascend CANN", nodes=("/dev/davinci0",))))
    assert item(facts, "device rocm").detail == "/dev/kfd belongs to gid 44"
    assert item(facts, "device npu") == Item(name="device npu", verdict="ok", detail="/dev/davinci0")


def test_logins_say_where_they_come_from() -> None:
    facts = replace(
        GOOD,
        logins=(
            Login(host="a.example.org", source="~/.docker/config.json"),
            Login(host="b.example.org", problem="docker-credential-pass is not installed"),
        ),
        engines=(Engine(name="docker", version="20.10.24"),),
    )
    assert item(facts, "login a.example.org").verdict == "ok"
    assert item(facts, "login b.example.org").detail == "docker-credential-pass is not installed"
    assert item(facts, "engine docker").detail == "20.10.24"


def test_an_engine_at_hand_can_run_images_where_namespaces_cannot() -> None:
    facts = replace(GOOD, namespaces_problem="denied", engines=(Engine(name="docker", version="20.10.24"),))
    assert item(facts, "runner").verdict == "missing"
    assert ready(examine(facts))
