"""What goes wrong outside is answered by kind, and leaves nothing half-made behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.conftest import RunBuilder
from tests.e2e.index import Index
from tests.schemas import error
from tests.services import free_port


def left_behind(folder: Path) -> list[str]:
    """Everything in the project that the test did not put there."""
    own = {"builder.toml", "app", "app/__main__.py"}
    found = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    return sorted(found - own)


def blobs(store: str) -> list[Path]:
    return [path for path in (Path(store) / "sha256").rglob("*") if path.is_file()]


def test_a_project_file_that_is_not_toml_is_named_with_its_line(run_builder: RunBuilder, project: Path) -> None:
    (project / "builder.toml").write_text('name = "svc"\nversion = 1.0.0\n')
    found = error(run_builder("lock", "--backend", "cpu", "--json", cwd=project), 2)
    assert (found["kind"], found["where"]) == ("bad-input", f"{project / 'builder.toml'}:2")
    assert left_behind(project) == []


@pytest.mark.parametrize("command", ["lock", "build", "dockerfile"])
def test_without_a_project_file_the_mend_is_named(run_builder: RunBuilder, tmp_path: Path, command: str) -> None:
    found = error(run_builder(command, "--backend", "cpu", "--json"), 2)
    assert "builder init" in found["fix"]
    named = error(run_builder(command, "--backend", "cpu", "--project", "absent", "--json"), 2)
    assert "absent" in named["what"]


@pytest.mark.parametrize("command", ["lock", "build", "dockerfile"])
def test_an_unknown_backend_gets_a_hint(run_builder: RunBuilder, project: Path, command: str) -> None:
    found = error(run_builder(command, "--backend", "cudaa", "--json", cwd=project), 2)
    assert "cudaa" in found["what"]
    assert "did you mean 'cuda'" in found["fix"]


def test_all_faults_of_a_project_file_are_told_at_once(run_builder: RunBuilder, project: Path) -> None:
    text = (project / "builder.toml").read_text().replace('version = "1.0"', 'version = "one"\nrequirments = []')
    (project / "builder.toml").write_text(text)
    found = error(run_builder("lock", "--backend", "cpu", "--json", cwd=project), 2)
    assert len(found["faults"]) == 2
    assert any("did you mean 'requirements'" in fault["fix"] for fault in found["faults"])


@pytest.mark.network
def test_a_requirement_that_does_not_exist_is_a_wrong_question(
    run_builder: RunBuilder, project: Path, index: Index
) -> None:
    index.add("other", "1.0")
    result = run_builder("lock", "--backend", "cpu", "--json", cwd=project, env=index.environment())
    found = error(result, 2)
    assert "e2e-plain" in found["what"]
    assert left_behind(project) == []


@pytest.mark.network
def test_a_version_that_does_not_exist_is_answered_no(run_builder: RunBuilder, project: Path, index: Index) -> None:
    index.add("e2e_plain", "1.0")
    text = (project / "builder.toml").read_text().replace('["e2e-plain"]', '["e2e-plain>=2"]')
    (project / "builder.toml").write_text(text)
    result = run_builder("lock", "--backend", "cpu", "--json", cwd=project, env=index.environment())
    found = error(result, 1)
    assert "e2e-plain>=2" in found["why"]
    assert left_behind(project) == []


@pytest.mark.network
def test_an_index_that_does_not_answer_is_the_outside_world(
    run_builder: RunBuilder, project: Path, index: Index
) -> None:
    environ = {**index.environment(), "UV_DEFAULT_INDEX": "http://127.0.0.1:1/simple", "UV_HTTP_RETRIES": "0"}
    result = run_builder("lock", "--backend", "cpu", "--json", cwd=project, env=environ)
    found = error(result, 3)
    assert "127.0.0.1:1" in found["what"] + found["why"]
    assert left_behind(project) == []


@pytest.mark.network
def test_a_wheel_that_is_not_the_one_locked_never_enters_the_store(
    run_builder: RunBuilder, project: Path, index: Index, builder_environment: dict[str, str]
) -> None:
    file = index.add("e2e_plain", "1.0", padding=100_000)
    index.corrupt.add(file)
    before = blobs(builder_environment["BUILDER_STORE"])
    result = run_builder(
        "build", "--backend", "cpu", "--to", "oci:out:1.0", "--json", cwd=project, env=index.environment()
    )
    found = error(result, 3)
    assert file in found["what"] + found["why"]
    corrupt = index.wheels[file][: len(index.wheels[file]) // 2]
    new = set(blobs(builder_environment["BUILDER_STORE"])) - set(before)
    assert not [path for path in new if path.read_bytes().startswith(corrupt)]
    assert not (project / "out/index.json").exists()


@pytest.mark.network
def test_ctrl_c_in_a_download_leaves_no_image_and_the_next_run_goes_through(
    run_builder: RunBuilder, project: Path, index: Index, builder_environment: dict[str, str]
) -> None:
    # its own bytes, so that no earlier run has left them in the store
    file = index.add("e2e_plain", "1.0", padding=3_000_000 + time.time_ns() % 100_000)
    index.stalled.add(file)
    arguments = ("build", "--backend", "cpu", "--to", "oci:out:1.0")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "builder", *arguments],
        env={**builder_environment, **index.environment()},
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not index.half_sent.wait(0.2):
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
    assert not (project / "out/index.json").exists()
    half = index.wheels[file][: len(index.wheels[file]) // 2]
    assert not [path for path in blobs(builder_environment["BUILDER_STORE"]) if path.read_bytes() == half]

    index.stalled.clear()
    again = run_builder(*arguments, "--no-smoke", "--json", cwd=project, env=index.environment())
    assert again.returncode == 0, again.stdout + again.stderr
    assert (project / "out/index.json").exists()


@pytest.mark.network
def test_a_full_disk_is_named_and_nothing_is_half_written(
    run_builder: RunBuilder, project: Path, index: Index, full_disk: Path
) -> None:
    index.add("e2e_plain", "1.0", padding=3_000_000)
    environ = {**index.environment(), "BUILDER_STORE": str(full_disk / "store")}
    result = run_builder("build", "--backend", "cpu", "--to", "oci:out:1.0", "--json", cwd=project, env=environ)
    found = error(result, 3)
    assert str(full_disk) in found["what"]
    assert not (project / "out/index.json").exists()


@contextmanager
def refusing_registry(status: int, code: str) -> Iterator[str]:
    """A registry that answers the version check and refuses everything else; gives `127.0.0.1:PORT`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b"{}"
            if self.path != "/v2/":
                body = json.dumps({"errors": [{"code": code, "message": "not for you"}]}).encode()
            self.send_response(200 if self.path == "/v2/" else status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815  http.server's own names

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.network
@pytest.mark.parametrize(("status", "code"), [(403, "DENIED"), (401, "UNAUTHORIZED"), (507, "UNKNOWN")])
def test_a_registry_that_refuses_is_the_outside_world(
    run_builder: RunBuilder, project: Path, index: Index, status: int, code: str
) -> None:
    index.add("e2e_plain", "1.0")
    with refusing_registry(status, code) as host:
        to = f"{host}/team/svc:1.0"
        result = run_builder(
            "build", "--backend", "cpu", "--to", to, "--no-smoke", "--json", cwd=project, env=index.environment()
        )
        found = error(result, 3)
    assert host in found["what"] + found["why"]


@pytest.mark.network
def test_a_registry_that_is_not_there_is_named(run_builder: RunBuilder, project: Path, index: Index) -> None:
    index.add("e2e_plain", "1.0")
    to = "127.0.0.1:1/team/svc:1.0"
    result = run_builder(
        "build", "--backend", "cpu", "--to", to, "--no-smoke", "--json", cwd=project, env=index.environment()
    )
    assert "127.0.0.1:1" in error(result, 3)["what"]


@pytest.mark.network
@pytest.mark.registry
def test_after_a_failed_push_the_tag_does_not_exist(
    run_builder: RunBuilder, project: Path, index: Index, registry_host: str
) -> None:
    """The second wheel's bytes are wrong: nothing of the image may appear under its tag."""
    index.add("e2e_plain", "1.0", requires=("e2e_second",))
    index.corrupt.add(index.add("e2e_second", "1.0", padding=200_000))
    to = f"{registry_host}/e2e/failed-push:1.0"
    result = run_builder(
        "build", "--backend", "cpu", "--to", to, "--no-smoke", "--json", cwd=project, env=index.environment()
    )
    error(result, 3)
    import httpx

    answer = httpx.get(f"http://{registry_host}/v2/e2e/failed-push/manifests/1.0", trust_env=False)
    assert answer.status_code == 404


def test_a_vendor_base_out_of_reach_names_the_base_and_the_way_round(run_builder: RunBuilder, tmp_path: Path) -> None:
    (tmp_path / "builder.toml").write_text(
        f'name = "x"\nversion = "1"\nrequirements = ["numpy"]\nbase = "127.0.0.1:{free_port()}/vendor/base:1"\n'
    )
    found = error(run_builder("lock", "--backend", "cpu", "--json"), 3)
    assert "/vendor/base:1 of cpu" in found["what"]
    assert 'base = "debian:bookworm"' in found["fix"]


@pytest.mark.parametrize("base", ["debain:bookworm", "bookworm", "ubuntu:24.04"])
def test_a_base_that_is_neither_built_in_nor_a_reference_is_a_wrong_question(
    run_builder: RunBuilder, tmp_path: Path, base: str
) -> None:
    (tmp_path / "builder.toml").write_text(f'name = "x"\nversion = "1"\nrequirements = ["numpy"]\nbase = "{base}"\n')
    found = error(run_builder("lock", "--backend", "cpu", "--json"), 2)
    assert "debian:bookworm" in found["why"] + found["fix"]
