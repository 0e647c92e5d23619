"""A server that forgets a namespace, has an older copy of it, or is another one."""

from redis import Redis

from orchestrator.store.keys import Keys
from tests.support.servers import keys_of

Copy = dict[str, tuple[bytes, int]]  # of each key what it holds, and for how long


def forget(client: Redis, namespace: str) -> None:
    """What FLUSHALL does, to this namespace."""
    names = keys_of(client, namespace)
    if names:
        client.delete(*names)


def copy_of(client: Redis, namespace: str) -> Copy:
    """What an operator would put back."""
    names = keys_of(client, namespace)
    return {name: (client.dump(name), max(client.pttl(name), 0)) for name in names}  # type: ignore[misc]


def put_back(client: Redis, namespace: str, copy: Copy) -> None:
    """What the server has is what it had."""
    forget(client, namespace)
    for name, (value, ttl_ms) in copy.items():
        client.restore(name, ttl_ms, value)


def restart(client: Redis, keys: Keys) -> None:
    """What a restart looks like: all shards name a server that is not the one we talk to."""
    for shard in range(keys.shards):
        client.set(keys.shard_part(shard, "server"), "the one before")
