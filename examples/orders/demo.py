"""Fifty orders through two step workers, one of which is killed half way.

Exit 0 only if every order was fulfilled, charged and booked exactly once, and every step of the killed worker was
finished by the other one.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.local.interrupts import Interrupts

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; answers the exit code. What takes long to import is imported after Ctrl-C has been seen to."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    options = parse(arguments)
    from examples.orders import books
    from orchestrator.local.interrupts import Interrupts

    if not books.is_ours(options.out):
        print(f"{options.out} holds other things than invoices; name another folder with --out", file=sys.stderr)
        return 2
    interrupts = Interrupts()
    interrupts.install()
    return run(options, interrupts)


def run(options: argparse.Namespace, interrupts: "Interrupts") -> int:
    """One day of the shop, in a home that is gone afterwards."""
    from examples.orders import shift
    from orchestrator.errors import MandorError

    home = None
    try:
        with interrupts.held():
            home = Path(tempfile.mkdtemp(prefix="mandor-demo-"))
        return 0 if shift.run(home, options.out, interrupts) else 1
    except KeyboardInterrupt:
        print("interrupted; everything is stopped", file=sys.stderr)
        return INTERRUPTED
    except MandorError as error:
        print(f"the demo could not go on: {error}\nwith --keep the logs are kept", file=sys.stderr)
        return 1
    finally:
        interrupts.ignore()
        _leave(home, keep=options.keep)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="folder for the invoices, replaced")
    parser.add_argument("--keep", action="store_true", help="keep the temporary home: ledger, logs, workspaces")
    return parser.parse_args(arguments)


def _leave(home: Path | None, *, keep: bool) -> None:
    if home is None:
        return
    if keep:
        print(f"kept in {home}", file=sys.stderr)
    else:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
