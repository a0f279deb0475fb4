"""Which weights are used, how they get here, and how they are loaded. Importing this package loads no torch."""

from simulator.model.location import HUB_MODEL, PACKAGED, ModelSource, find_source, packaged_folder

__all__ = ["HUB_MODEL", "PACKAGED", "ModelSource", "find_source", "packaged_folder"]
