"""The buildah engine against the built-in one, on the real tool."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from builder.errors import Refused
from builder.events import SilentReporter
from builder.image.buildah import Buildah, BuildahFailed, assemble_buildah
from builder.image.devices import buildah_devices
from builder.image.oci import assemble
from builder.image.values import ImagePlan
from builder.registry.layout import Layout
from builder.smoke.values import RunnableImage
from builder.store import Store
from tests.docker.conftest import open_repository
from tests.docker.test_engine import settings, tree
from tests.services import program
from tests.smoke.images import opened


def build(plan: ImagePlan, buildah: Buildah, store: Store, layout: Layout) -> RunnableImage:
    made = assemble_buildah(
        plan,
        buildah=buildah,
        target=layout,
        tag="buildah",
        store=store,
        reporter=SilentReporter(),
        open_repository=open_repository,
    )
    image = opened(layout, "buildah")
    assert image.digest == made.digest
    return image


def test_buildah_makes_the_same_image_as_the_built_in_engine(
    plan: ImagePlan, buildah: Buildah, store: Store, tmp_path: Path
) -> None:
    layout = Layout(tmp_path / "layout")
    theirs = build(plan, buildah, store, layout)
    assemble(plan, target=layout, tag="oci", store=store, reporter=SilentReporter(), open_repository=open_repository)
    ours = opened(layout, "oci")
    assert theirs.layers[0].digest == ours.layers[0].digest, "the base is the same blob"
    made, expected = tree(theirs, tmp_path / "theirs"), tree(ours, tmp_path / "ours")
    assert any(path.endswith("site-packages/demo/data.bin") for path in made)
    more = {path: told for path, told in made.items() if path not in expected}
    # Mount points that buildah makes while it runs a step are all it may add, and they are empty.
    assert set(more) <= {"dev", "proc", "sys", "run", "etc/resolv.conf", "etc/hosts", "etc/hostname"}
    assert {told[2] for told in more.values()} <= {"", hashlib.sha256(b"").hexdigest()}
    assert {path: told for path, told in made.items() if path in expected} == expected
    assert settings(theirs) == settings(ours)
    assert (theirs.argv, theirs.user) == (("demo",), "10001:10001")
    assert theirs.env["PRICE"] == '$5 and "more" \\n'


def test_the_same_plan_gives_the_same_digest_again(
    plan: ImagePlan, buildah: Buildah, store: Store, tmp_path: Path
) -> None:
    first = build(plan, buildah, store, Layout(tmp_path / "one"))
    buildah.run(["rmi", "--all", "--force"], what="forget all images")
    second = build(plan, buildah, store, Layout(tmp_path / "two"))
    assert first.digest == second.digest


def test_without_buildah_the_other_engine_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildahFailed, match="there is no buildah") as caught:
        Buildah.find({"PATH": str(tmp_path)})
    assert "--engine oci" in caught.value.fix


def test_what_buildah_says_is_passed_on(buildah: Buildah) -> None:
    with pytest.raises(BuildahFailed, match="could not look") as caught:
        buildah.run(["inspect", "localhost/no-such-image"], what="look")
    assert "no-such-image" in caught.value.why


def test_a_device_node_is_there_while_the_image_is_built(buildah: Buildah, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text('FROM scratch\nCOPY stat /stat\nRUN ["/stat"]\n')
    source = tmp_path / "stat.c"
    source.write_text(
        "#include <sys/stat.h>\n#include <sys/sysmacros.h>\n"
        'int main(void) { struct stat s; return stat("/dev/builder-null", &s) || !S_ISCHR(s.st_mode)'
        " || major(s.st_rdev) != 1 || minor(s.st_rdev) != 3; }\n"
    )
    subprocess.run(["gcc", "-static", "-o", tmp_path / "stat", source], check=True)
    (given,) = buildah_devices(("/dev/null:/dev/builder-null",), buildah.version)
    # chroot isolation shows the host's whole /dev, renamed nodes are for real containers
    words = ["build", "--isolation=oci", "--network=none", "--file", str(tmp_path / "Dockerfile")]
    words += [f"--runtime={program('runc')}"]
    with pytest.raises(BuildahFailed) as caught:
        buildah.run([*words, str(tmp_path)], what="build without it")
    if "running container" in caught.value.why:
        pytest.skip(f"no container can be run here: {caught.value.why}")
    buildah.run([*words, given, str(tmp_path)], what="build with a device")


LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
"""Newer ones raise the limits to what not every container may."""


def test_a_cdi_name_is_resolved_by_a_buildah_that_can_and_refused_by_one_that_cannot(
    buildah: Buildah, tmp_path: Path
) -> None:
    name = "builder.example/null=one"
    if tuple(int(part) for part in buildah.version.split(".")[:2]) < (1, 36):
        with pytest.raises(Refused, match="cannot give"):
            buildah_devices((name,), buildah.version)
        return
    specs = tmp_path / "cdi"
    specs.mkdir()
    edits = {"deviceNodes": [{"path": "/dev/builder-null", "hostPath": "/dev/null"}], "env": ["BUILDER_CDI=1"]}
    spec = {
        "cdiVersion": "0.6.0",
        "kind": "builder.example/null",
        "devices": [{"name": "one", "containerEdits": edits}],
    }
    (specs / "null.json").write_text(json.dumps(spec))
    (tmp_path / "Dockerfile").write_text('FROM scratch\nCOPY sh /sh\nRUN ["/sh"]\n')
    source = tmp_path / "sh.c"
    source.write_text('#include <stdlib.h>\nint main(void) { return getenv("BUILDER_CDI") == NULL; }\n')
    subprocess.run(["gcc", "-static", "-o", tmp_path / "sh", source], check=True)
    words = ["build", "--network=none", *LIMITS, f"--cdi-config-dir={specs}", "--file", str(tmp_path / "Dockerfile")]
    buildah.run([*words, *buildah_devices((name,), buildah.version), str(tmp_path)], what="build with CDI")
    with pytest.raises(BuildahFailed):
        buildah.run([*words, str(tmp_path)], what="build without it")
