"""The rule on a maker's image: whether there is such a one, and whether it holds what is asked for beside it."""

from __future__ import annotations

from builder.errors import did_you_mean
from builder.matrix.images import Contents, listed, missing, of_chip, read_image, unread
from builder.matrix.load import Backend
from builder.matrix.products import device_row
from builder.matrix.question import Question
from builder.matrix.rules.driver import reported_toolkit
from builder.matrix.rules.forward import hardware
from builder.matrix.sets import touches
from builder.matrix.systems import same_system
from builder.matrix.values import RuleVerdict
from builder.matrix.versions import sort_key, within

__all__ = ["image_contents", "image_requirement"]


def image_contents(question: Question, backend: Backend) -> RuleVerdict | None:
    """The image that is named is one its maker publishes, and holds the versions that are asked for.

    Source: the makers' descriptions of their tags and lists of their images, named by the rows. An image no form fits
    is unknown; so is one that is missing from a list which is all that was published when it was read.
    """
    image = question.settings.get("image")
    if image is None:
        return None
    contents = read_image(backend, image)
    if contents is None:
        forms = tuple(row.text("form") or "" for row in backend.rows("image"))
        why = f"no table of {backend.name} tells what {image} holds"
        fix = did_you_mean(image, forms) or f"forms known: {'; '.join(forms)}"
        return RuleVerdict(rule="image", verdict="unknown", why=why, source=backend.spec.source, fix=fix)
    title = backend.spec.toolkit or ""
    source = contents.row.source.text
    if (why_not := missing(contents, question.machine)) is not None:
        why = f"there is no image {image}: {why_not}"
        return RuleVerdict(
            rule="image", verdict="unsupported", why=why, source=source, fix="take a tag the maker publishes"
        )
    if clashes := _clashes(question, contents, backend):
        return RuleVerdict(
            rule="image",
            verdict="unsupported",
            why=f"{image} holds {contents.text(title)}; asked is {' and '.join(clashes)}",
            source=source,
            fix=_other_image(question, contents, backend) or "an image that holds it, or what this one holds",
        )
    row = listed(backend, contents)
    if row is None and (only := unread(contents)) is not None:
        told = f"by its name {image} holds {contents.text(title)}; {only}"
        fix = "an image of a release that was read, or look into this one"
        return RuleVerdict(rule="image", verdict="unknown", why=told, source=source, fix=fix)
    if row is None and contents.row.flag("listed"):
        why = f"by its name {image} holds {contents.text(title)}; it is not among the images that are listed"
        return RuleVerdict(
            rule="image",
            verdict="unknown",
            why=why,
            source=source,
            fix=f"builder matrix show --backend {backend.name} --table base",
        )
    note = (row.note if row is not None else "") or contents.row.note
    why = f"{image} holds {contents.text(title)}" + (f" ({note})" if note else "")
    return RuleVerdict(rule="image", verdict="supported", why=why, source=row.source.text if row else source)


def image_requirement(question: Question, backend: Backend) -> RuleVerdict | None:
    """The named image's own NVIDIA_REQUIRE_CUDA holds on the node, as far as its maker's form of it is known.

    Source: NVIDIA CUDA image sources (2022-2026): it begins with the image's own release; further groups let brands
    of data-centre boards in on older branches that are still supported. GeForce is in no group since 11.8 (FR-05).
    """
    image = question.settings.get("image")
    contents = read_image(backend, image) if image is not None else None
    if contents is None or not contents.row.flag("asks_cuda") or "nvidia-require-cuda" in question.settings:
        return None
    offered = reported_toolkit(backend, question.driver) if question.driver is not None else None
    if offered is None or contents.toolkit is None:
        return None
    wanted = ".".join(contents.toolkit.split(".")[:2])
    told = f"{image} asks NVIDIA_REQUIRE_CUDA=cuda>={wanted}, driver {question.driver} offers {offered}"
    source = contents.row.source.text
    if sort_key(offered) >= sort_key(wanted):
        return RuleVerdict(rule="require-cuda", verdict="supported", why=told, source=source)
    fix = f"an image of CUDA <= {offered}, or a newer driver"
    if question.device is not None and hardware(question, backend) == "consumer":
        why = f"{told}: legacy mode refuses it at start, and minor-version compatibility does not lift that"
        return RuleVerdict(rule="require-cuda", verdict="unsupported", why=why, source=source, fix=fix)
    why = f"{told}: legacy mode refuses it at start, but for data-centre brands on branches the image still lists"
    if question.device is None:
        fix += "; name the device"
    return RuleVerdict(rule="require-cuda", verdict="unknown", why=why, source=source, fix=fix)


def _clashes(question: Question, contents: Contents, backend: Backend) -> list[str]:
    """What the question names otherwise than the image has it."""
    found = []
    if question.toolkit and contents.toolkit and not _same(question.toolkit, contents.toolkit):
        found.append(f"{backend.spec.toolkit} {question.toolkit}")
    if question.os and contents.os and not same_system(question.os, contents.os):
        found.append(question.os)
    if question.python and contents.python and question.python != contents.python:
        found.append(f"Python {question.python}")
    for name, version in contents.packages.items():
        asked = question.packages.get(name)
        if asked is not None and not (touches(asked, version) or within(asked.partition("+")[0], version)):
            found.append(f"{name} {asked}")
    machine = question.target or question.device
    row = device_row(backend, machine) if machine is not None else None
    chip = row.text("image_chip") if row is not None else None
    if row is not None and chip is not None and contents.chip is not None and chip != contents.chip:
        found.append(f"{row.text('target')}, whose images are those for {chip}")
    base = listed(backend, contents)
    devices = base.texts("devices") if base is not None else None
    if devices and question.target is not None and question.target not in devices:
        found.append(f"{question.target}, while it is for {', '.join(devices)}")
    return found


def _other_image(question: Question, contents: Contents, backend: Backend) -> str | None:
    """The image for the chip of the node, where the chip is what is wrong (FR-13)."""
    row = device_row(backend, question.target or question.device or "")
    chip = row.text("image_chip") if row is not None else None
    if chip is None or contents.chip is None or chip == contents.chip:
        return None
    name = of_chip(backend, contents, chip)
    other = read_image(backend, name) if name is not None else None
    if other is None or missing(other) is not None or (other.row.flag("listed") and listed(backend, other) is None):
        return None
    return name


def _same(asked: str, held: str) -> bool:
    return asked.casefold() == held.casefold() or touches(asked, held)
