"""Which hosts a client may connect to: names, domains and networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kafkaprod.config.addresses import ip_addresses

if TYPE_CHECKING:
    import ipaddress

    IpNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class HostPatterns(NamedTuple):
    """A list of hosts; an empty one allows all.

    Attributes:
        names: Host names in lower case; one that begins with a dot is a domain: every name below it.
        networks: Addresses that a host may have.
    """

    names: tuple[str, ...] = ()
    networks: tuple[IpNetwork, ...] = ()

    def allows_name(self, host: str) -> bool:
        """Whether a host may be connected to, whatever its addresses are."""
        host = host.lower().rstrip(".")
        is_named = any(host.endswith(name) if name.startswith(".") else host == name for name in self.names)
        return is_named or self == HostPatterns()

    def allows_address(self, text: str) -> bool:
        """Whether an IP address may be connected to, whatever the name of the host is."""
        address = ip_addresses().ip_address(text.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self.networks)

    @staticmethod
    def refusal_of(host: str, addresses: list[str]) -> str:
        """Say why a host is not connected to; `addresses` is empty if its name was not looked up."""
        if not addresses:
            return f"allowed_brokers does not have the name {host}, and no address or network, so it was not looked up"
        if addresses == [host]:
            return f"allowed_brokers does not have the address {host}"
        return f"allowed_brokers has neither the name {host} nor one of its addresses: {', '.join(addresses)}"


class Hosts:
    """Names, `*.domain`, addresses and networks (10.0.0.0/8): text with commas, or a sequence. Kept as HostPatterns."""

    __slots__ = ()
    type_name = "list"
    allowed = "host names, *.domain, IP addresses and networks such as 10.0.0.0/8, without ports"

    def parse(self, value: object) -> HostPatterns:
        if isinstance(value, HostPatterns):
            return value
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
            raise ValueError(value)
        names, networks = [], []
        for item in filter(None, (item.strip().lower() for item in items)):
            try:
                networks.append(ip_addresses().ip_network(item.strip("[]"), strict=False))
            except ValueError:
                names.append(_parse_name(item))
        return HostPatterns(tuple(names), tuple(networks))

    def show(self, value: HostPatterns) -> str:
        names = (f"*{name}" if name.startswith(".") else name for name in value.names)
        return repr(",".join([*names, *map(str, value.networks)]))


def _parse_name(text: str) -> str:
    name = text.removeprefix("*").rstrip(".")
    is_domain = text.startswith("*.")
    labels = name.removeprefix(".") if is_domain else name
    if (text.startswith("*") and not is_domain) or not labels or labels.startswith("."):
        raise ValueError(text)
    if any(character in " \t/@[]:*," or not character.isprintable() for character in labels):
        raise ValueError(text)
    return name
