"""What a copy rule takes, leaves out and refuses."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from builder.errors import BadInput
from builder.image.app import app_layers, rule_files
from builder.project.values import CopyRule
from builder.store import Store
from tests.image.plans import make_project


def fill(root: Path) -> None:
    for name in ("app/main.py", "app/sub/data.bin", "app/run.sh", "app/__pycache__/main.pyc", "app/.git/HEAD"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    (root / "app/run.sh").chmod(0o700)
    (root / "app/main.py").chmod(0o600)
    (root / "app/link").symlink_to("sub/data.bin")
    for name in ("dist/x", ".venv/y", "pylock.cpu.toml", "requirements.cpu.txt", "builder.toml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


def paths(root: Path, source: str, target: str) -> list[str]:
    rule = CopyRule(source=source, target=target)
    return [item.path for item in rule_files(make_project(root, copy=[rule]), rule)]


def test_a_folder_is_copied_without_caches(tmp_path: Path) -> None:
    fill(tmp_path)
    expected = ["srv/app", "srv/app/link", "srv/app/main.py", "srv/app/run.sh", "srv/app/sub", "srv/app/sub/data.bin"]
    assert sorted(paths(tmp_path, "app", "/srv/app")) == expected


def test_the_project_itself_is_copied_without_what_this_tool_writes(tmp_path: Path) -> None:
    fill(tmp_path)
    found = paths(tmp_path, ".", "/app")
    assert "app/builder.toml" in found
    assert not [path for path in found if "dist" in path or "venv" in path or "lock" in path or "requirements" in path]


def test_targets_of_single_files(tmp_path: Path) -> None:
    fill(tmp_path)
    assert paths(tmp_path, "app/main.py", "/srv/start.py") == ["srv/start.py"]
    assert paths(tmp_path, "app/main.py", "/srv/") == ["srv/main.py"]


def test_a_system_folder_keeps_its_mode(tmp_path: Path) -> None:
    fill(tmp_path)
    assert "tmp" not in paths(tmp_path, "app", "/tmp")


@pytest.mark.parametrize(
    ("source", "target", "what"),
    [
        ("ap", "/app", "cannot copy 'ap'"),
        ("../outside", "/app", "leaves the project"),
        ("/etc", "/app", "leaves the project"),
        ("app", "app", "has the target 'app'"),
        ("app", "/", "has the target '/'"),
        ("app", "/a/../b", "has the target '/a/../b'"),
    ],
)
def test_rules_that_cannot_be_followed(tmp_path: Path, source: str, target: str, what: str) -> None:
    fill(tmp_path)
    with pytest.raises(BadInput) as caught:
        paths(tmp_path, source, target)
    assert what in caught.value.what
    assert caught.value.where is not None
    assert caught.value.where.key == "image.copy"


def test_a_missing_source_gets_a_suggestion(tmp_path: Path) -> None:
    fill(tmp_path)
    with pytest.raises(BadInput) as caught:
        paths(tmp_path, "ap", "/app")
    assert caught.value.fix == "did you mean 'app'?"


@pytest.mark.parametrize("target", ["/etc/passwd", "../../secret", "../builder.toml"])
def test_links_that_leave_the_copied_folder_are_refused(tmp_path: Path, target: str) -> None:
    fill(tmp_path)
    (tmp_path / "app/bad").symlink_to(target)
    with pytest.raises(BadInput, match="leaves the folder that is copied") as caught:
        paths(tmp_path, "app", "/app")
    assert target in caught.value.why


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    os.mkfifo(tmp_path / "app/pipe")
    with pytest.raises(BadInput) as caught:
        paths(tmp_path, "app", "/app")
    assert caught.value.why == "it is a socket, pipe or device"


def test_bytes_depend_on_content_alone(tmp_path: Path, store: Store) -> None:
    digests = []
    for name, umask in (("one", 0o022), ("two two", 0o077)):
        old = os.umask(umask)
        try:
            root = tmp_path / name
            fill(root)
        finally:
            os.umask(old)
        for number, path in enumerate(root.rglob("*")):
            os.utime(path, (number, number), follow_symlinks=False)
        project = make_project(root, copy=[CopyRule(source="app", target="/app")])
        (layer,) = app_layers(project, store)
        digests.append(layer.descriptor.digest)
    assert digests[0] == digests[1]
    with tarfile.open(store.path(digests[0])) as archive:
        modes = {member.name: member.mode for member in archive if member.isreg()}
    assert modes == {"app/main.py": 0o644, "app/run.sh": 0o755, "app/sub/data.bin": 0o644}


def test_each_rule_is_a_layer_and_a_changed_file_changes_its_own(tmp_path: Path, store: Store) -> None:
    fill(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model/weights").write_bytes(os.urandom(17 << 20))
    rules = [CopyRule(source="model", target="/model"), CopyRule(source="app", target="/app")]
    project = make_project(tmp_path, copy=rules)
    before = app_layers(project, store)
    (tmp_path / "app/main.py").write_text("changed")
    after = app_layers(project, store)
    assert before[0] == after[0]
    assert before[1].descriptor != after[1].descriptor
    (tmp_path / "model/weights").write_bytes(os.urandom(17 << 20))
    assert app_layers(project, store)[0].descriptor != after[0].descriptor


def test_a_rule_without_files_makes_a_layer_with_its_folder(tmp_path: Path, store: Store) -> None:
    (tmp_path / "empty").mkdir()
    project = make_project(tmp_path, copy=[CopyRule(source="empty", target="/data")])
    (layer,) = app_layers(project, store)
    with tarfile.open(store.path(layer.descriptor.digest)) as archive:
        assert archive.getnames() == ["data"]
