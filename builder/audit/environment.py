"""The marker environment of a target: what markers of `Requires-Dist` evaluate against (PEP 508)."""

from __future__ import annotations

from builder.names import Arch

__all__ = ["marker_environment"]


def marker_environment(python: str, arch: Arch) -> dict[str, str]:
    """Of a CPython `python` (`3.11`) on Linux `arch`; `extra` is left to whoever evaluates."""
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": arch,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }
