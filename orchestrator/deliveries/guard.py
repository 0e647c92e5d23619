"""Where callbacks may go: to addresses of the public internet by https, and to what the operator has named.

A URL comes from whoever submits, and is posted to from inside. So its host is resolved once, every address it has is
judged, and the connection goes to one of those that were judged.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from schemas.callback import Address, Target

Network = IPv4Network | IPv6Network
SETTING: Final = "MANDOR_WEBHOOK_ALLOWED"
_UNICAST: Final = IPv6Network("2000::/3")  # all that was ever given out to be reached from everywhere
_NAT64: Final = IPv6Network("64:ff9b::/96")
_NOWHERE: Final[tuple[Network, ...]] = (
    IPv4Network("192.0.0.0/24"),  # protocols' own, such as PCP's anycast
    IPv4Network("192.88.99.0/24"),  # relays of 6to4
    IPv6Network("2001::/23"),  # Teredo and other protocols' own
    IPv6Network("2001:db8::/32"),
    IPv6Network("2002::/16"),  # 6to4: any IPv4 address in disguise
    IPv6Network("3fff::/20"),
)


class Refused(Exception):
    """Nothing is sent there. The message says why."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the operator has named besides: names of hosts, and networks. To these http is allowed, too."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    def takes(self, address: Address) -> bool:
        """Whether an address was named."""
        return any(address in network for network in self.networks)

    def names(self, target: Target) -> bool:
        """Whether a URL's host was named."""
        return target.host in self.hosts if isinstance(target.host, str) else self.takes(target.host)


def read_allowed(text: str) -> Allowed:
    """Names and networks, separated by commas. ValueError names the one that is neither."""
    hosts, networks = set[str](), list[Network]()
    for one in filter(None, (part.strip().lower() for part in text.split(","))):
        try:
            networks.append(ip_network(one))
        except ValueError:
            if "/" in one or ":" in one or one.replace(".", "").isdecimal():
                raise ValueError(f"{one} is neither a network, such as 10.1.0.0/16, nor the name of a host") from None
            hosts.add(one)
    return Allowed(frozenset(hosts), tuple(networks))


def check_url(target: Target, allowed: Allowed) -> None:
    """Refused: nothing is ever sent to this URL, whatever its host resolves to."""
    if allowed.names(target):
        return
    if target.scheme != "https":
        raise Refused(f"only https:// is allowed, or hosts that {SETTING} names")
    if not isinstance(target.host, str):
        check_addresses([target.host], allowed)


def check_addresses(addresses: Iterable[Address], allowed: Allowed) -> None:
    """Refused: one of them is not of the public internet, nor named. (A name that was named may resolve to any.)"""
    for address in addresses:
        plain = _plain(address)
        if not is_public(plain) and not allowed.takes(plain) and not allowed.takes(address):
            raise Refused(f"{address} is no address of the public internet, nor in {SETTING}")


def is_public(address: Address) -> bool:
    """Whether an address can be reached from everywhere, and is one host's."""
    plain = _plain(address)
    if isinstance(plain, IPv6Address) and plain not in _UNICAST:
        return False
    return plain.is_global and not plain.is_multicast and not any(plain in network for network in _NOWHERE)


def _plain(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, where it stands for one."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address


def parsed(text: str) -> Address:
    """An address as a resolver gives it. Refused: one that is good on a single link only."""
    try:
        found = ip_address(text)
    except ValueError:
        raise Refused(f"{text[:80]} is no address") from None
    if isinstance(found, IPv6Address) and found.scope_id is not None:
        raise Refused(f"{text[:80]} is good on one link only")
    return found
