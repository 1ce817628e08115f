"""A verdict from the end of a remote wheel: METADATA and the archive's directory, read by range requests.

A wheel whose metadata pulls another backend in is refused whatever its files hold; its gigabytes stay where they are.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace

import httpx
from packaging.metadata import parse_email
from packaging.utils import parse_wheel_filename

from builder.audit.audit import Rules, Terms, judged_facts
from builder.audit.facts import MemberFact, WheelFacts
from builder.audit.tables import Tables
from builder.audit.values import Finding, TargetAudit
from builder.errors import OutsideFailed
from builder.names import Digest
from builder.wheels.remote import RemoteFile

__all__ = ["peek"]

_METADATA_LIMIT = 4 << 20


def peek(
    client: httpx.Client,
    url: str,
    filename: str,
    digest: Digest,
    terms: Terms,
    rules: Rules,
) -> TargetAudit | None:
    """The audit of a wheel that blocks by its metadata alone; None when the whole file must be read to know.

    None too when its server answers no range requests, or the archive is damaged: reading it all tells why. `digest` is
    the index's; nothing here was checked against it.
    """
    try:
        with RemoteFile(client, url) as file, zipfile.ZipFile(file) as archive:
            facts = _facts(archive, filename, rules.tables)
            size = file.size
    except (OutsideFailed, OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError):
        return None
    target = judged_facts(facts, digest, terms, rules)
    blocking = [finding for finding in target.findings if finding.means == "block"]
    if not blocking:
        return None
    unread = Finding(
        rule="not-downloaded",
        severity="info",
        backend=terms.backend,
        path=filename,
        evidence=f"judged by its metadata and the archive's directory; {size} bytes were not read, so tokens may lack",
        fix="--full reads the whole wheel",
    )
    return replace(target, findings=(*target.findings, unread))


def _facts(archive: zipfile.ZipFile, filename: str, tables: Tables) -> WheelFacts:
    name, version, _, _ = parse_wheel_filename(filename)
    infos = archive.infolist()
    found = [
        info
        for info in infos
        if info.filename.count("/") == 1
        and info.filename.endswith(".dist-info/METADATA")
        and info.file_size <= _METADATA_LIMIT
    ]
    if len(found) != 1:
        raise zipfile.BadZipFile(f"{len(found)} METADATA files")
    raw = parse_email(archive.read(found[0]))[0]
    return WheelFacts(
        name=name,
        version=str(version),
        file=filename,
        requires_dist=tuple(raw.get("requires_dist", ())),
        elf=(),
        python=(),
        members=tuple(_members(infos, tables)),
        paths=len(infos),
    )


def _members(infos: Iterable[zipfile.ZipInfo], tables: Tables) -> Iterator[MemberFact]:
    """What names tell; sources count only in wheels without compiled files, which names do not tell."""
    for info in infos:
        for rule in tables.member_rules(info.filename):
            if rule.kind != "device-source":
                yield MemberFact(path=info.filename, kind=rule.kind, backend=rule.backend)
