"""Other people's text inside a prompt: between two marks that it cannot contain, said to be data.

What a model does with such text nobody can promise; that the text cannot pretend to have ended, this can.
"""

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

_NONCE_CHARS: Final = 24


def nonce_for(key: str, texts: Iterable[str]) -> str:
    """A word that is in none of the texts and that nobody without the key foresees; the same for the same call."""
    texts = tuple(texts)
    nonce = _digest(key, "nonce")
    while any(nonce in text for text in texts):
        nonce = _digest(key, nonce)
    return nonce


def _digest(key: str, message: str) -> str:
    return hmac.new(key.encode(), message.encode(), hashlib.sha256).hexdigest()[:_NONCE_CHARS]


def fenced(name: str, text: str, nonce: str) -> str:
    """The text as data called `name`. ValueError: the nonce stands in it."""
    if nonce in text:
        raise ValueError(f"the nonce of the fence occurs in the text it is to enclose: {name}")
    return f"<<<{name} {nonce}\n{encodable(text)}\n{nonce} {name}>>>"


def encodable(text: str) -> str:
    """The text with halves of surrogate pairs written out, so that it can be sent."""
    return text.encode("utf-8", "backslashreplace").decode()
