"""A node class: a pool of identical machines, as far as an image can notice."""

from __future__ import annotations

from dataclasses import dataclass

from builder.names import GFX_OVERRIDE, Arch, overridden_target

__all__ = ["NodeClass"]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeClass:
    """One row of matrices/nodeclasses/*.toml, or what a probe found. None means not known, never "no"."""

    name: str
    """Lower-case, a tag: `cpu-x86-64-v3`, `h100-sxm`."""
    backend: str
    arch: Arch
    device: str | None = None
    """Product name as the vendor's tool prints it, e.g. "NVIDIA H100 80GB HBM3"."""
    device_arch: str | None = None
    """sm_90, gfx942, Ascend910B3, trn2, v5e, …"""
    device_count: int | None = None
    device_memory_mib: int | None = None
    driver: str | None = None
    """Kernel driver version as the vendor's tool prints it."""
    firmware: str | None = None
    kernel: str | None = None
    """`uname -r`."""
    os: str | None = None
    """`<ID> <VERSION_ID>` of os-release, e.g. "ubuntu 22.04"."""
    glibc: str | None = None
    cpu_level: str | None = None
    """x86-64-v1 … x86-64-v4 (psABI), or armv8.x-a."""
    runtime: str | None = None
    """Container runtime, e.g. "docker 20.10.24"."""
    cdi: tuple[str, ...] = ()
    """Qualified CDI names of its devices (vendor.com/class=name), for builds that need them."""
    env: tuple[str, ...] = ()
    """What its operator sets in every container on it, as `NAME=VALUE`, and no image may hold: today the override of
    an AMD device's target. Recorded here, so that it is set for this class alone."""
    source: str = ""
    """Where the row comes from: a document, or "probe"."""

    @property
    def environment(self) -> dict[str, str]:
        """`env` by name."""
        return dict(item.split("=", 1) for item in self.env)

    @property
    def code_target(self) -> str | None:
        """The target whose code its runtime loads: `device_arch`, or what the override of `env` puts in its place.

        Source: ROCR-Runtime, HSA_OVERRIDE_GFX_VERSION; what the maker thinks of it stands in the rule `hsa-override`.
        """
        text = self.environment.get(GFX_OVERRIDE) if self.backend == "rocm" else None
        return self.device_arch if text is None else overridden_target(text)
