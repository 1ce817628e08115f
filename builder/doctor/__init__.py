"""What this machine can do, each line with its mend: facts are looked up in probe.py and judged in examine.py."""

from builder.doctor.examine import Device, Engine, Facts, Item, Login, Site, examine, ready

__all__ = ["Device", "Engine", "Facts", "Item", "Login", "Site", "examine", "ready"]
