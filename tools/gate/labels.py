"""What the gate's model names: span labels, their BIOES tags, topics and subjects.

This file owns their order, which is the order of the heads' rows. It knows no network and no data.
"""

from __future__ import annotations

LABELS = (
    "person", "username", "organization", "date_of_birth", "age", "demographic",
    "address", "location", "date", "email", "phone", "url", "ip_address",
    "payment_card", "iban", "bank_account", "amount",
    "government_id", "passport", "driving_license", "health_id", "case_number",
    "vehicle_id", "license_plate", "other_id", "health", "medication", "secret",
)  # fmt: skip
TOPICS = (
    "health", "legal", "finance", "employment", "intimate", "minors",
    "credentials", "location", "belief", "confidential_work",
)  # fmt: skip
SUBJECTS = ("personal", "general", "fiction")
TAGS = 1 + 4 * len(LABELS)


def tag(label: str, place: str) -> int:
    """The tag of `label` at `place`, one of B I E S; tag 0 is O."""
    return 1 + 4 * LABELS.index(label) + "BIES".index(place)
