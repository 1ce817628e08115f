"""What a project file says, as typed values. Reading it is load.py's job; writing a first one is init.py's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from builder.names import Arch
from builder.project.exceptions import AuditException

__all__ = ["BackendOptions", "Compression", "CopyRule", "ImageOptions", "Project", "Warmup"]

Compression = Literal["gzip", "zstd"]

DEFAULT_TAG = "{version}-{backend}{toolkit}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyRule:
    """One file or folder of the project that goes into the image."""

    source: str
    """Path relative to the project file, `/`-separated; a folder is copied with everything in it but ignored names."""
    target: str
    """Absolute path in the image."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Warmup:
    """The project's own check: a command that runs one batch inside the image and exits 0."""

    command: tuple[str, ...]
    timeout: float = 300.0
    """Seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageOptions:
    """What the image runs and holds besides the locked packages."""

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    user: str = "10001:10001"
    """Numeric `uid:gid`; never root."""
    workdir: str = "/app"
    env: Mapping[str, str]
    """Environment, in file order."""
    labels: Mapping[str, str]
    ports: tuple[str, ...] = ()
    """`port/tcp` or `port/udp`."""
    copy: tuple[CopyRule, ...] = ()
    compile_bytecode: bool = False
    """Whether the wheels' Python files are compiled when the image is built, not when it starts."""
    compression: Compression = "gzip"
    """How the layers that are made here are compressed."""
    estargz: bool = False
    """Whether those layers can be pulled lazily."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendOptions:
    """What one backend adds to or replaces of the project: `[backend.<name>]`."""

    requirements: tuple[str, ...] = ()
    """Added to the project's own (PEP 508)."""
    overrides: tuple[str, ...] = ()
    """Replace whatever version any package asks for (uv's `--override`)."""
    toolkit: str | None = None
    """Wanted toolkit version, e.g. "13.0"; None lets the solver choose the newest coherent one."""
    base: str | None = None
    """Base image: an image reference or `debian:<suite>`; None uses the project's."""
    env: Mapping[str, str]
    node_classes: tuple[str, ...] = ()
    python: str | None = None
    exclude: tuple[str, ...] = ()
    """Names of project requirements this backend leaves out."""
    translations: tuple[str, ...] = ()
    """Names of layers that stand in for another backend's libraries (checks/policies/translations.toml)."""
    max_size: int | None = None
    """Bytes that the image may have, configuration and compressed layers together; None sets no budget."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """One project file, validated."""

    path: Path
    """The file it was read from."""
    name: str
    """Normalised distribution name (PEP 503), also the repository's last part when `registry` does not name it."""
    version: str
    """PEP 440."""
    python: str
    """`3.11`: the interpreter of the image."""
    arch: Arch = "x86_64"
    requirements: tuple[str, ...]
    """PEP 508, inline ones first, then those of requirement files and extras, in order."""
    image: ImageOptions
    backends: Mapping[str, BackendOptions]
    """Only the backends the file names; `options` gives defaults for the rest."""
    base: str | None = None
    """Base image for every backend: an image reference or `debian:<suite>`; None leaves it to the matrix (the vendor's
    base where a backend needs one, else the built-in Debian base)."""
    warmup: Warmup | None = None
    registry: str | None = None
    """Repository to publish to, `host/name` or `oci:DIR`; None builds to a layout beside the project."""
    tag: str = DEFAULT_TAG
    """Grammar of version tags; fields {name} {version} {backend} {toolkit} {arch} {python}."""
    exceptions: tuple[AuditException, ...] = ()
    """Findings of the audit that are lived with."""
    description: str = ""
    license: str = ""
    source: str = ""
    """URL of the source repository (org.opencontainers.image.source)."""

    @property
    def root(self) -> Path:
        """Folder of the project file; relative paths in it start here."""
        return self.path.parent

    def options(self, backend: str) -> BackendOptions:
        """The options of one backend, empty when the file has none."""
        return self.backends.get(backend) or BackendOptions(env={})

    def requirements_for(self, backend: str) -> tuple[str, ...]:
        """The requirements that are locked for one backend: the project's less `exclude`, then the backend's own."""
        from packaging.requirements import Requirement
        from packaging.utils import canonicalize_name

        options = self.options(backend)
        left_out = {canonicalize_name(name) for name in options.exclude}
        kept = tuple(line for line in self.requirements if canonicalize_name(Requirement(line).name) not in left_out)
        return kept + options.requirements

    def base_for(self, backend: str) -> str | None:
        """The base image asked for: the backend's, else the project's, else None."""
        return self.options(backend).base or self.base

    def with_layers(
        self, *, compression: Compression | None = None, estargz: bool | None = None, bytecode: bool | None = None
    ) -> Project:
        """This project with other wishes for its layers; None leaves what the file says."""
        image = replace(
            self.image,
            compression=compression or self.image.compression,
            estargz=self.image.estargz if estargz is None else estargz,
            compile_bytecode=self.image.compile_bytecode if bytecode is None else bytecode,
        )
        return replace(self, image=image)

    def python_for(self, backend: str) -> str:
        """The Python asked for: the backend's, else the project's."""
        return self.options(backend).python or self.python
