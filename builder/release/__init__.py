"""What a release is made of in a registry: tags, evidence, promotion."""

from builder.release.evidence import attach, draft_from_file, evidence, listed_evidence
from builder.release.licences import read_licences
from builder.release.pick import images, pick
from builder.release.promote import promote, rollback
from builder.release.publish import publish
from builder.release.sbom import sbom_draft
from builder.release.statements import audit_draft, smoke_draft
from builder.release.tags import version_tag

__all__ = [
    "attach",
    "audit_draft",
    "draft_from_file",
    "evidence",
    "images",
    "listed_evidence",
    "pick",
    "promote",
    "publish",
    "read_licences",
    "rollback",
    "sbom_draft",
    "smoke_draft",
    "version_tag",
]
