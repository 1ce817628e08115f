"""What an image says about itself: environment, entrypoint, user, labels. The same for every engine. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from builder.image.values import VENV, BuiltFrom, ImagePlan
from builder.names import Platform

__all__ = ["Settings", "config_json", "manifest_annotations", "settings"]

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SETUP = 'for f in {files}; do if [ -e "$f" ]; then . "$f"; else echo "builder: $f is missing" >&2; fi; done; exec "$@"'


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The run-time settings of an image (image-spec, config.md, `config`)."""

    env: Mapping[str, str]
    """In the order they are written."""
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    user: str
    workdir: str
    labels: Mapping[str, str]
    """Sorted."""
    ports: tuple[str, ...]


def settings(plan: ImagePlan, base_env: Sequence[str] = ()) -> Settings:
    """Settings of the planned image on a base with this environment (`NAME=value` items).

    Later wins: base, the virtual environment, the backend's run time, the project, the project's backend section.
    """
    image = plan.project.image
    env = dict(item.split("=", 1) for item in base_env if "=" in item)
    env["PATH"] = f"{VENV}/bin:{env.get('PATH', _DEFAULT_PATH)}"
    env["VIRTUAL_ENV"] = VENV
    toolkit = plan.lock.toolkit or ""
    env |= {name: value.replace("{toolkit}", toolkit) for name, value in plan.runtime.env.items()}
    env |= image.env
    env |= plan.project.options(plan.lock.backend).env
    return Settings(
        env=env,
        entrypoint=(*_setup(plan.runtime.setup), *image.entrypoint),
        command=image.command,
        user=image.user,
        workdir=image.workdir,
        labels=dict(sorted({**plan.labels, **image.labels, **_base_labels(plan)}.items())),
        ports=image.ports,
    )


def _setup(files: tuple[str, ...]) -> tuple[str, ...]:
    """A wrapper that sources the vendor's files first; a file that is missing is said on stderr, not passed over."""
    if not files:
        return ()
    quoted = " ".join("'" + name.replace("'", "'\\''") + "'" for name in files)
    return ("/bin/sh", "-c", _SETUP.replace("{files}", quoted), "builder-setup")


def _base_labels(plan: ImagePlan) -> dict[str, str]:
    base = plan.lock.base
    labels = {"org.opencontainers.image.base.name": base.reference}
    if not base.packages:
        labels["org.opencontainers.image.base.digest"] = str(base.digest)
    return labels


def config_json(plan: ImagePlan, built: BuiltFrom) -> dict[str, Any]:
    """The image configuration (image-spec, config.md)."""
    base = built.base_config
    chosen = settings(plan, (base.get("config") or {}).get("Env") or ())
    config: dict[str, Any] = {
        "Env": [f"{name}={value}" for name, value in chosen.env.items()],
        "User": chosen.user,
        "WorkingDir": chosen.workdir,
        "Labels": {**((base.get("config") or {}).get("Labels") or {}), **chosen.labels},
    }
    if chosen.entrypoint:
        config["Entrypoint"] = list(chosen.entrypoint)
    if chosen.command:
        config["Cmd"] = list(chosen.command)
    if chosen.ports:
        config["ExposedPorts"] = {port: {} for port in chosen.ports}
    history = list(base.get("history") or ()) if built.base_layers and base.get("history") else []
    if not history:
        history = [
            {"created": plan.created, "created_by": f"builder: base {layer.title}"}
            for layer in built.layers[: built.base_layers]
        ]
    history += [
        {"created": plan.created, "created_by": f"builder: {layer.title}"}
        for layer in built.layers[built.base_layers :]
    ]
    return {
        "architecture": Platform(plan.lock.arch).oci_arch,
        "os": "linux",
        "created": plan.created,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [str(layer.diff_id) for layer in built.layers]},
        "history": history,
    }


def manifest_annotations(plan: ImagePlan) -> dict[str, str]:
    """The manifest's annotations: the labels, and when it was made."""
    return {"org.opencontainers.image.created": plan.created, **settings(plan).labels}
