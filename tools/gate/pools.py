"""Names, places and companies of many countries from Faker, as one JSON file for the generators.

This file owns which locales are asked and how many values each gives. It knows no template. The
file is made once, where Faker is installed; training reads it and needs no Faker.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

from faker import Faker

LOCALES = {
    "en": ["en_US", "en_GB", "en_AU", "en_IN", "en_IE", "en_CA", "en_NZ", "en_PH", "en_KE",
    "en_NG"],
    "de": ["de_DE", "de_AT", "de_CH"],
    "fr": ["fr_FR", "fr_CA", "fr_BE"],
    "es": ["es_ES", "es_MX", "es_AR", "es_CO", "es_CL"],
    "it": ["it_IT"],
    "pt": ["pt_BR", "pt_PT"],
    "xx": ["nl_NL", "sv_SE", "da_DK", "no_NO", "fi_FI", "pl_PL", "cs_CZ", "tr_TR", "hu_HU", "ro_RO",
           "hr_HR", "sl_SI", "sk_SK", "lt_LT", "id_ID", "vi_VN", "et_EE", "az_AZ"],
}  # fmt: skip
COUNT = 700


def values(locale: str) -> dict[str, list[str]]:
    """Distinct values of one locale, by kind; a kind that the locale lacks is an empty list."""
    fake = Faker(locale)
    fake.seed_instance(locale)
    out: dict[str, list[str]] = {}
    kinds = {
        "first": "first_name", "last": "last_name", "street": "street_address", "city": "city",
        "postcode": "postcode", "state": "state", "company": "company", "phone": "phone_number",
        "job": "job", "license_plate": "license_plate", "national_id": "ssn",
    }  # fmt: skip
    for kind, method in kinds.items():
        try:
            made = {str(getattr(fake, method)()) for _ in range(COUNT)}
        except (AttributeError, NotImplementedError):
            made = set()
        out[kind] = sorted(made)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    pools = {lang: [values(one) for one in names] for lang, names in LOCALES.items()}
    with gzip.open(args.out, "wt", encoding="utf-8") as file:
        json.dump(pools, file, ensure_ascii=False)


if __name__ == "__main__":
    main()
