"""The buildah engine: the generated Dockerfile, built without a daemon, handed over as an OCI image.

Same plan, same base and same installer as the other engines, so the files are the same. The image also stays in the
user's container storage, where podman runs it. As with docker, the digest depends on the engine's version.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.base.resolve import OpenRepository
from builder.errors import OutsideFailed
from builder.events import Reporter
from builder.image.base_layers import BaseImage, base_image
from builder.image.conflicts import shadowed_paths
from builder.image.devices import buildah_devices
from builder.image.docker import base_archive, hand_over, write_context
from builder.image.dockerfile import local_base, render
from builder.image.install import Venv
from builder.image.packing import refuse_packing
from builder.image.values import VENV, BuiltImage, ImagePlan
from builder.image.wheel_files import wheel_files
from builder.lock.values import Lock
from builder.names import Reference
from builder.registry.values import Repository
from builder.store import Store, disk_errors

__all__ = ["Buildah", "BuildahFailed", "assemble_buildah"]


class BuildahFailed(OutsideFailed):
    """buildah did not do what it was asked."""

    kind = "buildah-failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Buildah:
    """The program and how it is called. Make it with `find`.

    Storage and isolation are the user's: containers-storage.conf, BUILDAH_ISOLATION and the like reach it unchanged.
    """

    program: str
    environ: Mapping[str, str]

    @classmethod
    def find(cls, environ: Mapping[str, str]) -> Buildah:
        """The first buildah on PATH; `BuildahFailed` when there is none."""
        program = shutil.which("buildah", path=environ.get("PATH"))
        if program is None:
            raise BuildahFailed(
                "there is no buildah",
                why="it is not on PATH",
                fix="install it, or use the built-in engine (--engine oci)",
            )
        return cls(program=program, environ=environ)

    def run(self, arguments: Sequence[str], *, what: str) -> bytes:
        """Stdout of one command; `BuildahFailed` saying `what` failed, with its last words."""
        done = self._call(arguments)
        if done.returncode != 0:
            said = "\n".join((done.stdout + done.stderr).decode(errors="replace").strip().splitlines()[-6:])
            raise BuildahFailed(
                f"buildah could not {what}",
                why=said or f"exit {done.returncode}",
                fix="`buildah info` shows its storage; where namespaces are not allowed set BUILDAH_ISOLATION=chroot",
            )
        return done.stdout

    @property
    def version(self) -> str:
        """`1.28.2`."""
        found = re.search(rb"\d+\.\d+[0-9.]*", self.run(["--version"], what="say its version"))
        return found[0].decode() if found else ""

    def image_layers(self, name: str) -> tuple[str, ...] | None:
        """Diff ids of an image in the storage, lowest first, or None when it has no such image."""
        done = self._call(["inspect", "--type", "image", "--format", "{{json .OCIv1.RootFS.DiffIDs}}", name])
        return tuple(json.loads(done.stdout) or ()) if done.returncode == 0 else None

    def _call(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [self.program, *arguments],
            env=dict(self.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )


def assemble_buildah(
    plan: ImagePlan,
    *,
    buildah: Buildah,
    target: Repository,
    tag: str | None,
    store: Store,
    reporter: Reporter,
    reference: Reference | None = None,
    open_repository: OpenRepository | None = None,
    offline: bool = False,
    devices: tuple[str, ...] = (),
) -> BuiltImage:
    """Build the image and put it into `target`, under its digest, and under `tag` when given.

    The image stays in the container storage too, as `NAME:BACKEND`. Arguments and result are those of `assemble`;
    `devices` are given to the build's steps (CDI names or device nodes).
    """
    refuse_packing(plan.project.image, "buildah")
    given = buildah_devices(devices, buildah.version) if devices else ()
    shadowed_paths(wheel_files(plan), Venv(root=VENV, python=plan.lock.python), store)
    base = base_image(plan.lock.base, plan.lock.arch, store, reporter, offline=offline, open_repository=open_repository)
    name = local_base(plan.lock.base)
    # The two-stage form: after a step that mounts, buildah removes the mount point, though the base had that folder.
    dockerfile = render(plan, base_image=name, base_note=plan.lock.base.reference, builder="classic")
    with store.scratch("engine-") as folder:
        if buildah.image_layers(name) != tuple(str(layer.diff_id) for layer in base.layers):
            archive = folder / "base.tar"
            _write_base(plan.lock, base, archive, reporter)
            buildah.run(
                ["pull", "--quiet", f"docker-archive:{archive}"], what=f"load the base {plan.lock.base.reference}"
            )
            archive.unlink()
        context, id_file = folder / "context", folder / "id"
        write_context(plan, dockerfile, context)
        with reporter.task("buildah build"):
            buildah.run(
                [
                    *("build", "--network=none", "--pull=never", "--layers", "--format=oci", *given),
                    *("--tag", f"{plan.project.name}:{plan.lock.backend}", "--iidfile", str(id_file)),
                    *("--file", str(context / "Dockerfile"), str(context)),
                ],
                what="build the image",
            )
        shutil.rmtree(context)
        image = id_file.read_text(encoding="ascii").strip()
        saved = folder / "image.tar"
        reporter.detail(f"taking image {image} out of the container storage")
        buildah.run(["push", "--quiet", image, f"docker-archive:{saved}"], what="save the image")
        return hand_over(plan, base, saved, target=target, tag=tag, store=store, reference=reference, engine="buildah")


def _write_base(lock: Lock, base: BaseImage, archive: Path, reporter: Reporter) -> None:
    total = sum(layer.descriptor.size for layer in base.layers)
    with (
        reporter.task(f"loading {lock.base.reference}", total=total) as advance,
        disk_errors(archive),
        archive.open("wb") as file,
    ):
        for chunk in base_archive(lock, base):
            file.write(chunk)
            advance(len(chunk))
