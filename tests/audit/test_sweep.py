"""Sweeps: many wheels in parts, as processes that are killed, resumed and joined."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from builder.audit.shard import Shard
from builder.audit.sources import Fit, each_source
from builder.audit.sweep import in_order
from builder.errors import BadInput
from builder.wheels.settings import IndexSettings
from builder.wheels.transport import open_client
from tests import schemas
from tests.audit.inside import Inside
from tests.lock.indexes import Index, make_wheel, serving

COUNT = 240
FOREIGN = 17
"""Every so many wheels, one asks for another backend's package."""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tiny wheels, some below it."""
    folder = tmp_path_factory.mktemp("index")
    for number in range(COUNT):
        requires = ["nvidia-nccl-cu12"] if number % FOREIGN == 0 else []
        make_wheel(folder / f"{number % 3}", f"tiny-{number}", "1.0", requires=requires)
    return folder


@pytest.fixture
def index() -> Iterator[Index]:
    with serving(Index()) as served:
        yield served


def lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a results file, each valid under its schema."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    validator = Draft202012Validator(schemas.schema("audit-results"))
    for line in found:
        validator.validate(line)
    return found


def started(environment: Mapping[str, str], *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "builder", "audit", *map(str, arguments)],
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_parts_swept_by_processes_of_their_own_join_to_the_whole(
    builder: Inside, builder_environment: dict[str, str], wheels: Path, tmp_path: Path
) -> None:
    parts = [tmp_path / f"part-{number}.jsonl" for number in (1, 2, 3)]
    running = [
        started(builder_environment, wheels, "--backend", "cpu", "--shard", f"{number}/3", "--results", path)
        for number, path in enumerate(parts, 1)
    ]
    for process in running:
        _, said = process.communicate()
        assert process.returncode == 1, said
    whole = tmp_path / "whole.jsonl"
    result = builder("audit", wheels, "--backend", "cpu", "--results", whole, "--json")
    document = schemas.document(result, "audit-sweep")
    foreign = len(range(0, COUNT, FOREIGN))
    assert (result.returncode, document["wheels"], document["levels"]["block"]) == (1, COUNT, foreign)
    assert document["rules"] == [{"rule": "foreign-meta", "backend": "cuda", "wheels": foreign}]
    joined = tmp_path / "joined.jsonl"
    result = builder("audit", "merge", *reversed(parts), "--results", joined, "--json")
    assert result.returncode == 1
    assert schemas.document(result, "audit-merge")["wheels"] == COUNT
    assert joined.read_bytes() == whole.read_bytes()
    assert len(lines(whole)) == COUNT + 2
    named = [{line["target"] for line in lines(part) if "target" in line} for part in parts]
    assert all(named)
    assert sum(map(len, named)) == COUNT == len(set.union(*named))
    text = builder("audit", "merge", joined)
    assert text.stdout.count("foreign-meta [cuda]\n") == foreign + 1
    assert text.stdout.endswith(f"block: {COUNT} wheels for cpu in 1 part: {foreign} block, {COUNT - foreign} ok\n")


def test_a_killed_sweep_goes_on_where_it_broke_off(
    builder: Inside, builder_environment: dict[str, str], wheels: Path, tmp_path: Path
) -> None:
    paths = [str(path) for path in sorted(wheels.rglob("*.whl"))]
    listed = tmp_path / "targets"
    listed.write_text("# the wheels\n\n" + "\n".join(paths))
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    builder("audit", "--targets", listed, "--backend", "cpu", "--results", whole)
    process = started(
        {**builder_environment, "BUILDER_STORE": str(tmp_path / "other")},
        *("--targets", "-", "--backend", "cpu", "--results", cut, "-j", "1"),
    )
    assert process.stdin is not None
    process.stdin.write("".join(f"{path}\n" for path in paths[:60]))
    process.stdin.flush()
    while not cut.exists() or len(cut.read_bytes().splitlines()) < 41:
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.02)
    process.kill()
    process.communicate()
    with cut.open("ab") as file:
        file.write(b'{"at":[999],"targ')  # as when the machine went down in the middle of a write
    done = len(cut.read_bytes().splitlines()) - 2
    result = builder("audit", "--targets", listed, "--backend", "cpu", "--results", cut, "--json")
    assert schemas.document(result, "audit-sweep")["reused"] == done
    assert cut.read_bytes() == whole.read_bytes()
    again = builder("audit", "--targets", listed, "--backend", "cpu", "--results", cut, "--json")
    assert schemas.document(again, "audit-sweep")["reused"] == COUNT
    assert cut.read_bytes() == whole.read_bytes()


def test_what_changed_since_is_judged_anew(builder: Inside, tmp_path: Path) -> None:
    results = tmp_path / "r.jsonl"

    def swept(backend: str) -> dict[str, Any]:
        result = builder("audit", tmp_path / "in", "--backend", backend, "--results", results, "--json")
        return schemas.document(result, "audit-sweep")

    for name in ("one", "two", "three"):
        make_wheel(tmp_path / "in", name, "1.0")
    assert swept("cpu")["levels"]["ok"] == 3
    make_wheel(tmp_path / "in", "three", "1.0", requires=["nvidia-nccl-cu12"])
    document = swept("cpu")
    assert (document["reused"], document["levels"]["block"]) == (1, 1)  # one, three, two
    (tmp_path / "in/two-1.0-py3-none-any.whl").unlink()
    assert (swept("cpu")["reused"], len(lines(results))) == (2, 4)
    other = swept("cuda")
    assert (other["reused"], other["verdict"]) == (0, "ok")


def test_a_file_of_something_else_is_not_overwritten(builder: Inside, wheels: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine\n")
    found = schemas.error(builder("audit", wheels, "--backend", "cpu", "--results", notes, "--json"), 2)
    assert "holds no results" in found["what"]
    assert notes.read_text() == "mine\n"


def test_two_sweeps_do_not_write_to_one_file(
    builder: Inside, builder_environment: dict[str, str], wheels: Path, tmp_path: Path
) -> None:
    results = tmp_path / "r.jsonl"
    holder = started(builder_environment, "--targets", "-", "--backend", "cpu", "--results", results)
    while not results.exists() or not results.stat().st_size:
        assert holder.poll() is None
        time.sleep(0.02)
    found = schemas.error(builder("audit", wheels, "--backend", "cpu", "--results", results, "--json"), 1)
    assert "is being written" in found["what"]
    assert holder.communicate("")[1] == ""
    assert holder.returncode == 0


def test_a_wheel_that_cannot_be_judged_does_not_stop_the_others(builder: Inside, tmp_path: Path) -> None:
    make_wheel(tmp_path / "in", "good", "1.0")
    (tmp_path / "in/bad-1.0-py3-none-any.whl").write_bytes(b"no archive")
    results = tmp_path / "r.jsonl"
    result = builder("audit", tmp_path / "in", "--backend", "cpu", "--results", results)
    assert result.returncode == 4
    assert result.stdout == "ok: 1 wheel for cpu: 1 ok; 1 could not be judged\n"
    assert "bad-1.0" in result.stderr
    _, bad, _, end = lines(results)
    assert bad["failed"]["kind"] == "unsafe-wheel"
    assert end["end"]["failed"] == 1
    text = builder("audit", "merge", results)
    assert (text.returncode, text.stdout.splitlines()[0]) == (4, f"failed {bad['target']}: {bad['failed']['what']}")


def offer(index: Index, folder: Path) -> list[Path]:
    return [
        index.add(make_wheel(folder, "alpha", "1.0")),
        index.add(make_wheel(folder, "alpha", "2.0")),
        index.add(make_wheel(folder, "alpha", "3.0rc1")),
        index.add(make_wheel(folder, "alpha", "2.0", tag="cp27-cp27m-win32")),
        index.add(make_wheel(folder, "beta", "1.0", requires=["nvidia-nccl-cu12"])),
        index.add(make_wheel(folder, "gamma", "1.0"), hashed=False),
    ]


@pytest.mark.parametrize("html", [False, True])
def test_a_whole_index(builder: Inside, index: Index, tmp_path: Path, html: bool) -> None:
    offer(index, tmp_path / "w")
    index.html = html
    url = f"{index.url}/"
    results = tmp_path / "r.jsonl"
    result = builder("audit", url, "--backend", "cpu", "--results", results, "--json")
    assert schemas.document(result, "audit-sweep")["wheels"] == 5
    found = lines(results)[1:-1]
    assert [line["target"].rpartition("/")[2].rsplit("-", 3)[0] for line in found] == [
        *("alpha-1.0", "alpha-2.0", "alpha-3.0rc1", "beta-1.0", "gamma-1.0")
    ]
    assert [line["audit"]["level"] for line in found] == ["ok", "ok", "ok", "block", "ok"]
    assert list((tmp_path / "store").glob("sha256/*/*")) == []  # wheels are not kept
    assert list((tmp_path / "store/tmp").iterdir()) == []
    index.requests.clear()
    results.unlink()
    result = builder("audit", url, "--backend", "rocm", "--results", results, "--newest", "--json")
    assert schemas.document(result, "audit-sweep")["wheels"] == 3
    files = {path for path, _ in index.requests if "/files/" in path}
    # What was seen is known; beta blocked by its metadata and was not read, gamma has no hash to know it by.
    assert files == {"/files/beta-1.0-py3-none-any.whl", "/files/gamma-1.0-py3-none-any.whl"}


def test_parts_of_an_index_read_only_their_own_pages(index: Index, tmp_path: Path) -> None:
    for number in range(30):
        index.add(make_wheel(tmp_path, f"p{number}", "1.0"))
    fit = Fit(python="3.11", arch="x86_64", glibc="2.36")
    seen: list[str] = []
    with open_client(IndexSettings(), {}) as client:
        for number in (1, 2, 3):
            index.requests.clear()
            part = list(each_source([f"{index.url}/"], shard=Shard(number, 3), fit=fit, client=client))
            assert len(index.requests) == 1 + len(part)
            seen += [source.target for source in part]
    assert len(seen) == len(set(seen)) == 30


def test_pages_wheels_and_requirements_are_targets_too(builder: Inside, index: Index, tmp_path: Path) -> None:
    paths = offer(index, tmp_path / "w")
    results = tmp_path / "r.jsonl"
    targets = [f"{index.url}/alpha/", index.file_url(paths[4]), "gamma>=1"]
    env = {"UV_DEFAULT_INDEX": index.url}
    result = builder("audit", *targets, "--backend", "cpu", "--results", results, "--json", env=env)
    assert schemas.document(result, "audit-sweep")["wheels"] == 5
    assert [line["at"] for line in lines(results)[1:-1]] == [[0, 0], [0, 1], [0, 2], [1], [2]]


def test_what_the_index_failed_to_deliver_is_asked_for_again(builder: Inside, index: Index, tmp_path: Path) -> None:
    paths = offer(index, tmp_path / "w")
    index.swapped[paths[1].name] = paths[0].read_bytes()
    results = tmp_path / "r.jsonl"

    def swept() -> tuple[int, dict[str, Any]]:
        arguments = (f"{index.url}/", "--backend", "cuda", "--results", results, "--json")
        result = builder("audit", *arguments)
        return result.returncode, schemas.document(result, "audit-sweep")

    code, document = swept()
    assert (code, document["failed"]) == (3, 1)
    index.swapped.clear()
    code, document = swept()
    assert (code, document["failed"], document["reused"]) == (0, 0, 1)


def test_parts_that_do_not_make_a_whole(builder: Inside, wheels: Path, tmp_path: Path) -> None:
    def part(name: str, shard: str, backend: str) -> Path:
        path = tmp_path / name
        builder("audit", wheels / "0", "--backend", backend, "--shard", shard, "--results", path)
        return path

    one, other = part("one", "1/2", "cpu"), part("other", "2/2", "cuda")
    found = schemas.error(builder("audit", "merge", one, "--json"), 4)
    assert "no file is of part 2" in found["why"]
    found = schemas.error(builder("audit", "merge", one, other, "--json"), 2)
    assert "do not belong to one sweep" in found["what"]
    assert "given twice" in schemas.error(builder("audit", "merge", one, one, "--json"), 2)["what"]
    cut = tmp_path / "cut"
    cut.write_bytes(one.read_bytes().replace(b'"1/2"', b'"1/1"')[:-40])
    assert "breaks off" in schemas.error(builder("audit", "merge", cut, "--json"), 4)["what"]
    partial = builder("audit", "merge", one, "--partial", "--json")
    assert schemas.document(partial, "audit-merge")["wheels"] == len(lines(one)) - 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x.whl", "--shard", "1/2"], "--results"),
        (["https://index.example/simple/"], "--results"),
        ([], "no target"),
        (["--results", "r"], "no target"),
        (["missing.whl", "--results", "r"], "no such file"),
        (["not a target", "--results", "r"], "not a target"),
        (["pylock/cpu.toml", "--results", "r"], "not a target"),
        (["x", "--results", "r", "--format", "sarif"], "--format"),
        (["x", "--results", "r", "--shard", "0/2"], "not a shard"),
    ],
)
def test_wrong_questions(
    builder: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    found = schemas.error(builder("audit", *arguments, "--backend", "cpu", "--json"), 2)
    assert said in found["what"]


@pytest.mark.parametrize("text", ["", "0/3", "4/3", "1", "1/0", "a/b", "-1/2"])
def test_no_shard(text: str) -> None:
    with pytest.raises(BadInput, match="not a shard"):
        Shard.parse(text)


def test_only_few_items_are_under_way() -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield number

    for done, (item, result) in enumerate(in_order(lambda number: -number, items(), jobs=2), 1):
        assert (item, result) == (done - 1, 1 - done)
        assert taken <= done + 6
