"""Public IP and MAC addresses, links that name a person, coordinates.

This file owns their shapes. Addresses that reach nobody (private, link-local, documentation) and
those of well-known public resolvers are left alone, and so are versions in four parts.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from lily.gate.categories import Category
from lily.gate.findings import Finding
from lily.gate.rules.scan import Scan

_IPV4 = re.compile(r"(?<![\w.+@-])(?<!\d/)(?:\d{1,3}\.){3}\d{1,3}(?![\w+-])(?!\.\d)")
_IPV6 = re.compile(
    r"(?<![\w:.])(?=[0-9A-Fa-f:]{2,39}(?![\w]))(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:])"
)
_VERSION = re.compile(
    r"(?:\bv|version|ver\.?|release|build|firmware|driver|chrome|package|library|assembly|\.net"
    r"|sdk|section|chapter|clause|rule|"
    r"installed|upgrade[d]?|downgrade[d]?|update[d]? to|from|changelog)[ /:=\"'v-]{0,5}$"
)
_HOST = re.compile(r"\bip\b|host|addr|login|logged|client|remote|peer|gateway|ping|ssh|connect")
_RESOLVERS = frozenset(
    {"8.8.8.8", "8.8.4.4", "1.1.1.1", "1.0.0.1", "9.9.9.9", "208.67.222.222", "208.67.220.220"}
)


def ip_addresses(scan: Scan) -> Iterator[Finding]:
    """Public IP addresses of both versions."""
    if scan.text.count(".") < 3 and scan.text.count(":") < 2:
        return
    for pattern in (_IPV4, _IPV6):
        for match in pattern.finditer(scan.text):
            start, end = match.span()
            try:
                address = ipaddress.ip_address(match.group())
            except ValueError:
                continue
            if not address.is_global or match.group() in _RESOLVERS:
                continue
            unicast = len(address.packed) == 4 or address.packed[0] & 0xE0 == 0x20
            if not unicast and match.group().count(":") < 6:
                continue  # short enough for code
            before = scan.before(start, 24)
            if address.packed < b"\x20" and max(address.packed) < 32 and not _HOST.search(before):
                continue  # as small as the parts of a version
            in_link = re.search(r"://(?:[^\s/@]{0,20}@)?$", before) is not None
            if _VERSION.search(before) and not re.search(r"\bfrom[ :]{1,2}$", before):
                continue
            if in_link or not scan.guarded(start, end):
                yield Finding(start, end, Category.IP_ADDRESS, 0.95, "ip")


_MAC = re.compile(
    r"(?<![\w:.-])(?:[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}"
    r"|(?:[0-9A-Fa-f]{4}\.){2}[0-9A-Fa-f]{4})(?![\w:-])(?!\.\w)"
)
_NO_MAC = frozenset({"000000000000", "ffffffffffff"})


def mac_addresses(scan: Scan) -> Iterator[Finding]:
    """MAC addresses of one card; not the zero or the broadcast address."""
    for match in _MAC.finditer(scan.text):
        if re.sub(r"[:.-]", "", match.group().lower()) not in _NO_MAC:
            yield Finding(*match.span(), Category.MAC_ADDRESS, 0.95, "mac")


# Links whose path or query names a person.
_PROFILE = re.compile(
    r"(?:https?://)?(?:www\.|[a-z]{2}\.)?(?:linkedin\.com/in/|facebook\.com/(?!sharer|groups"
    r"|events|pages|help|watch|business)"
    r"|(?:twitter|x)\.com/(?!home|search|i/|intent|hashtag)|instagram\.com/(?!p/|reel|explore)"
    r"|t\.me/(?!joinchat|s/)|tiktok\.com/@"
    r"|reddit\.com/u(?:ser)?/|(?:youtube|medium)\.com/@|vk\.com/"
    r"|keybase\.io/)[\w.%-]{2,64}/?(?![\w@])"
)
_QUERY_NAME = re.compile(
    r"(?<=[?&])(?:user|username|login|account|uname|member)=(?P<value>[\w.%+-]{3,64})(?![\w@])",
    re.IGNORECASE,
)


def personal_links(scan: Scan) -> Iterator[Finding]:
    """Profile pages, and user names in queries."""
    if "/" not in scan.text:
        return
    for match in _PROFILE.finditer(scan.lower):
        yield Finding(*match.span(), Category.URL, 0.9, "url.profile")
    for match in _QUERY_NAME.finditer(scan.text):
        value = match.group("value")
        if value.lower() not in ("true", "false", "null", "none", "admin", "root", "guest"):
            yield Finding(*match.span("value"), Category.USERNAME, 0.75, "url.username")


_COORDINATES = re.compile(
    r"(?<![\w.])-?\d{1,2}\.\d{3,9}(?:°[ ]?[NS]?|[ ]?[NS])?[ ]?,[ ]{0,2}-?\d{1,3}\.\d{3,9}(?:°"
    r"[ ]?[EWO]?|[ ]?[EWO])?(?![\w.])"
    r"|\d{1,2}°[ ]?\d{1,2}['′][ ]?\d{1,2}(?:\.\d{1,4})?[\"″][ ]?[NS],?[ ]{0,2}\d{1,3}°"
    r"[ ]?\d{1,2}['′][ ]?\d{1,2}(?:\.\d{1,4})?[\"″][ ]?[EWO]"
)
_PLACE_WORD = re.compile(
    r"lat|lon|coord|gps|location|located|geo|position|ubicaci|standort|record shows|live|home|meet"
)


def coordinates(scan: Scan) -> Iterator[Finding]:
    """Latitude and longitude, with degrees or with a word beside them."""
    for match in _COORDINATES.finditer(scan.text):
        if "°" in match.group() or _PLACE_WORD.search(scan.before(match.start())):
            yield Finding(*match.span(), Category.LOCATION, 0.85, "coordinates")


RECOGNIZERS = (ip_addresses, mac_addresses, personal_links, coordinates)
