"""Which release of a distribution this process runs on."""

from importlib.metadata import PackageNotFoundError, version


def release(name: str) -> str:
    """Its version, or that it was not installed: our own packages may be used where they lie."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "(from source)"
