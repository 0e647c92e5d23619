"""Limits of each process of a command, so that neither it nor its children can raise them again."""

import resource
from collections.abc import Mapping
from typing import Final

_LIMITS: Final = {
    "memory_bytes": resource.RLIMIT_AS,
    "processes": resource.RLIMIT_NPROC,
    "file_bytes": resource.RLIMIT_FSIZE,
    "files": resource.RLIMIT_NOFILE,
    "cpu_s": resource.RLIMIT_CPU,
    "core_bytes": resource.RLIMIT_CORE,
    "locked_bytes": resource.RLIMIT_MEMLOCK,
}


def apply(wanted: Mapping[str, int]) -> None:
    """Hard and soft alike; what is already less stays."""
    for name, most in wanted.items():
        which = _LIMITS[name]
        _, hard = resource.getrlimit(which)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (least, least))
