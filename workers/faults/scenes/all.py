"""Every scenario by its name."""

from collections.abc import Callable
from typing import Final

from workers.faults.floor import Floor
from workers.faults.scene import Scene
from workers.faults.scenes.held import HELD
from workers.faults.scenes.lost import LOST
from workers.faults.scenes.published import PUBLISHED
from workers.faults.scenes.said import SAID
from workers.faults.scenes.server import SERVER

SCENES: Final[dict[str, Callable[[Floor, Scene], None]]] = {**LOST, **HELD, **SERVER, **SAID, **PUBLISHED}
