"""Packages that are no dependency of ours: installed into a folder that is thrown away, beside what we run with."""

import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

INSTALL_S: Final = 300
SHARED: Final = ("celery", "kombu")  # everybody has the same


def install(package: str, folder: Path) -> str | None:
    """Install it with all it needs, Celery in the release that we have. Answers why it could not be."""
    folder.mkdir(parents=True)
    limits = folder.with_suffix(".constraints")
    limits.write_text("\n".join(f"{name}=={version(name)}" for name in SHARED), encoding="utf-8")
    argv = [*_installer(), "--quiet", "--target", str(folder), "--constraint", str(limits), package]
    try:
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        return f"its installation took more than {INSTALL_S} s"
    return None if done.returncode == 0 else f"its installation failed: {done.stderr.strip()[-300:]}"


def _installer() -> list[str]:
    if shutil.which("uv"):
        return ["uv", "pip", "install", "--python", sys.executable]
    return [sys.executable, "-m", "pip", "install"]
