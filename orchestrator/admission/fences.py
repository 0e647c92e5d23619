"""Other people's text inside a prompt: between two marks that it cannot contain, said to be data.

What a model does with such text nobody can promise; that the text cannot pretend to have ended, this can.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

_NONCE_CHARS: Final = 24


def nonce_for(key: str, texts: Iterable[str]) -> str:
    """A word that stands in none of the texts; the same for the same key and texts, so that a call can be repeated.

    It is drawn from the texts themselves: no text can hold what depends on all of it.
    """
    texts = tuple(texts)
    nonce = _digest(key, *texts)
    while any(nonce in text for text in texts):
        nonce = _digest(nonce)
    return nonce


def _digest(*parts: str) -> str:
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        whole.update(b"%d:" % len(data) + data)
    return whole.hexdigest()[:_NONCE_CHARS]


def fenced(name: str, text: str, nonce: str) -> str:
    """The text as data called `name`. ValueError: the nonce stands in it."""
    if nonce in text:
        raise ValueError(f"the nonce of the fence occurs in the text it is to enclose: {name}")
    return f"<<<{name} {nonce}\n{encodable(text)}\n{nonce} {name}>>>"


def encodable(text: str) -> str:
    """The text with halves of surrogate pairs written out, so that it can be sent."""
    return text.encode("utf-8", "backslashreplace").decode()
