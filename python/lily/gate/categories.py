"""The kinds of private things that the gate knows: categories of spans, topics and subjects of
texts.

This file owns the names, which settings, logs and answers use. It knows neither detectors nor
policy.
"""

from __future__ import annotations

from enum import Enum


class Category(str, Enum):
    """What a span is."""

    # people
    PERSON = "person"
    USERNAME = "username"
    ORGANIZATION = "organization"
    DATE_OF_BIRTH = "date_of_birth"
    AGE = "age"
    DEMOGRAPHIC = "demographic"  # nationality, ethnicity, religion, orientation, occupation
    # where and when
    ADDRESS = "address"  # street level, postal codes with their place
    LOCATION = "location"  # city, region, country, place
    DATE = "date"
    # contact
    EMAIL = "email"
    PHONE = "phone"
    URL = "url"  # only where it identifies a person or carries a token
    IP_ADDRESS = "ip_address"
    MAC_ADDRESS = "mac_address"
    # money
    PAYMENT_CARD = "payment_card"
    IBAN = "iban"
    BANK_ACCOUNT = "bank_account"  # account, routing and sort numbers, BIC
    CRYPTO_WALLET = "crypto_wallet"
    AMOUNT = "amount"  # salary, balance, debt of a person
    # numbers that a state, an employer or a company gave
    GOVERNMENT_ID = "government_id"  # social security, national and tax numbers
    PASSPORT = "passport"
    DRIVING_LICENSE = "driving_license"
    HEALTH_ID = "health_id"  # medical record, insurance and practitioner numbers
    CASE_NUMBER = "case_number"  # courts, police
    VEHICLE_ID = "vehicle_id"  # VIN
    LICENSE_PLATE = "license_plate"
    OTHER_ID = "other_id"  # customer, employee, student, device numbers
    # health
    HEALTH = "health"  # conditions, results, measurements of a person
    MEDICATION = "medication"
    # secrets: masked for good, never restorable
    SECRET = "secret"  # API keys, tokens, passwords, credentials in URLs
    PRIVATE_KEY = "private_key"
    SEED_PHRASE = "seed_phrase"

    @property
    def is_secret(self) -> bool:
        """Whether a mask of it must never be undone."""
        return self in (Category.SECRET, Category.PRIVATE_KEY, Category.SEED_PHRASE)


class Topic(str, Enum):
    """What a text speaks of, where that alone can be private."""

    HEALTH = "health"
    LEGAL = "legal"
    FINANCE = "finance"
    EMPLOYMENT = "employment"
    INTIMATE = "intimate"
    MINORS = "minors"
    CREDENTIALS = "credentials"
    LOCATION = "location"  # where a person is or will be
    BELIEF = "belief"  # religion, politics, union, origin, orientation
    CONFIDENTIAL_WORK = "confidential_work"


class Subject(str, Enum):
    """Whom a text is about."""

    PERSONAL = "personal"  # the writer, or someone the writer knows
    GENERAL = "general"  # knowledge, public matters, nobody in particular
    FICTION = "fiction"
