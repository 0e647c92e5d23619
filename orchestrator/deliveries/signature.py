"""Standard Webhooks' signature: who has the secret can tell that a callback is ours, whole, and of now."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from orchestrator.telemetry.text import hide

PREFIX: Final = "whsec_"
BYTES: Final = range(24, 65)
MOST: Final = 2  # the new one and, until all receivers know that, the old one


def read_keys(secrets: str) -> tuple[bytes, ...]:
    """The keys of secrets that are separated by blanks, which are shown nowhere from here on. ValueError says what is
    wrong with them, without a part of them."""
    given = secrets.split()
    if len(given) > MOST:
        raise ValueError(f"at most {MOST} secrets: the new one and the one it takes the place of")
    for secret in given:
        hide(secret)
        hide(secret.removeprefix(PREFIX))
    return tuple(map(_key, given))


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(PREFIX) or len(key) not in BYTES:
        wanted = f"{BYTES.start} to {BYTES.stop - 1} random bytes in base64"
        raise ValueError(f"a secret is {PREFIX} and {wanted}, e.g. `echo {PREFIX}$(openssl rand -base64 32)`")
    return key


def headers(message_id: str, at_s: int, body: str, keys: Sequence[bytes]) -> dict[str, str]:
    """The three headers of a message, with a signature by each key. at_s: seconds since the epoch, of this attempt."""
    signed = f"{message_id}.{at_s}.{body}".encode()
    signatures = (base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in keys)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
