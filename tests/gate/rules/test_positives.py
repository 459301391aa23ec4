"""What each recogniser must find: a marked value in a text, and its category.

In the tables ⟦ and ⟧ stand around what must be found; everything else must be left alone.
"""

from __future__ import annotations

import re

import pytest
from lily.gate.rules.keccak import keccak_256

from tests.gate.rules import samples as s
from tests.gate.rules.finding import findings, found

MONEY = {
    "payment_card": [
        f"charge ⟦{s.VISA}⟧ please",
        f"my card is ⟦{s.grouped(s.VISA)}⟧",
        f"card ⟦{s.grouped(s.VISA, '-')}⟧ was declined",
        f"card ⟦{s.grouped(s.VISA, '.')}⟧",
        f"⟦{s.grouped(s.MASTERCARD)}⟧ exp soon",
        f"Amex ⟦{s.AMEX}⟧",
        f"amex ⟦{s.AMEX[:4]} {s.AMEX[4:10]} {s.AMEX[10:]}⟧",
        f'{{"card_number": "⟦{s.VISA}⟧"}}',
        f"card=⟦{s.VISA}⟧&next=1",
        "mistyped ⟦4000-0000-0092-5629⟧ at the till",
        "the cvv is ⟦123⟧",
        f"tarjeta ⟦{s.grouped(s.VISA)}⟧",
        f"カード⟦{s.grouped(s.VISA, '-')}⟧",
    ],
    "iban": [
        f"pay to ⟦{s.IBAN_GB}⟧ today",
        f"IBAN ⟦{s.grouped(s.IBAN_GB)}⟧",
        f"IBAN: ⟦{s.grouped(s.IBAN_DE)}⟧ please",
        f"iban ⟦{s.IBAN_FR}⟧",
        f"iban ⟦{s.IBAN_DE.lower()}⟧",
        "IBAN ⟦DE00 1111 2222 3333 4444 55⟧ has a typo",
    ],
    "bank_account": [
        "Account number: ⟦884120193⟧",
        "my bank account is ⟦12-3456-7890123⟧",
        "acct # ⟦00123456789⟧",
        f"routing number ⟦{s.ROUTING}⟧",
        "sort code ⟦12-34-56⟧",
        "SWIFT: ⟦DEUTDEFF500⟧",
        "Kontonummer ⟦532013000⟧",
        "número de cuenta: ⟦0200051332⟧",
    ],
    "crypto_wallet": [
        f"send it to ⟦{s.BITCOIN}⟧",
        "⟦bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq⟧ is mine",
        "taproot ⟦bc1p5cyxnuxmeuwuvkwfem96lqzszd02n6xdcjrs20cac6yqjjwudpxqkedrcr⟧",
        "eth ⟦0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed⟧",
    ],
}

GOVERNMENT = {
    "government_id": [
        "SSN ⟦536-90-4399⟧",
        "social security number: ⟦536 90 4399⟧",
        "ssn=⟦536904399⟧",
        '{"ssn": "⟦536-90-4399⟧"}',
        "<ssn>⟦536-90-4399⟧</ssn>",
        "my NINO is ⟦AB 12 34 56 C⟧",
        "NI number ⟦AB123456C⟧",
        f"DNI ⟦{s.DNI}⟧",
        f"mi DNI es ⟦{s.DNI}⟧",
        f"CPF ⟦{s.CPF}⟧",
        f"⟦{s.CPF}⟧",
        f"numéro de sécurité sociale : ⟦{s.NIR}⟧",
        "codice fiscale ⟦RSSMRA85T10A562S⟧",
        "EIN: ⟦12-3456789⟧",
        "personnummer ⟦811228-9874⟧",
        "BSN ⟦111222333⟧",
        "PESEL ⟦44051401359⟧",
        "AHV ⟦756.9217.0769.85⟧",
        "Aadhaar ⟦2234 5678 9016⟧",
        "PAN ⟦ABCPE1234F⟧",
        "SIN ⟦130 692 544⟧",
        "TFN ⟦123 456 782⟧",
        "NRIC ⟦S1234567D⟧",
        "my SIN is ⟦046 454 286⟧",
        "Carte d'identité n° ⟦880692310285⟧",
        "VAT number is ⟦DE136695976⟧",
        "update my ID card number to ⟦482910563⟧.",
        "national id: ⟦NID-900193781⟧",
        "Steuer-ID ⟦36 574 261 809⟧",
        "RUT ⟦12.531.909-2⟧",
        "CURP ⟦BOXW310820HNERXN09⟧",
    ],
    "passport": ["passport number ⟦AB1234567⟧", "Passport: ⟦P7F125017⟧", "Reisepass ⟦C01X00T47⟧",
    "pasaporte ⟦AAA123456⟧"],
    "driving_license": [
        "driver's license ⟦D123-4567-8901⟧",
        "Driving licence: ⟦MORGA657054SM9IJ⟧",
        "DL-no ⟦K1234567⟧",
    ],
    "health_id": [
        "MRN: ⟦4949223⟧",
        "medical record number ⟦MRN-4949223⟧",
        f"NHS number ⟦{s.NHS[:3]} {s.NHS[3:6]} {s.NHS[6:]}⟧",
        "insurance ID is ⟦INS-789296166⟧",
        "NPI ⟦1234567893⟧",
        "DEA: ⟦AB1234563⟧",
        "a medical license number ⟦MED-123456⟧",
        "NHC: ⟦2569870⟧.",
        "NºCol: ⟦28 28 20943⟧.",
    ],
    "vehicle_id": [f"VIN ⟦{s.VIN}⟧", "vin: ⟦1HGBH41JXMN109186⟧"],
    "license_plate": ["license plate ⟦ABC 1234⟧", "Kennzeichen ⟦B-MW 1234⟧", "matrícula ⟦1234 BCD⟧",
    "number plate: ⟦AB12 CDE⟧"],
    "case_number": ["Case No. ⟦2021-CR-5049⟧", "application no. ⟦36244/06⟧",
    "docket ⟦1:24-cv-02466-YTK⟧", "Aktenzeichen ⟦12-O-345/19⟧"],
    "other_id": [
        "customer number ⟦C-4471-22⟧",
        "Employee ID: ⟦EMP-24755⟧",
        "policy: ⟦POL-5468496⟧",
        "Kundennummer ⟦88123455⟧",
        "student id ⟦S20231187⟧",
        "Employee #⟦55821⟧",
        "see ⟦CUST-558213⟧ for more",
    ],
}  # fmt: skip

CONTACT = {
    "email": [
        "write to ⟦jane.doe@example.com⟧.",
        "<⟦j+tag@sub.example.co.uk⟧>",
        "mailto:⟦a_b@example.org⟧",
        "⟦josé@correo.example.es⟧",
        "user=⟦me@example.com⟧&x=1",
        "（⟦taro@example.jp⟧）",
        "'⟦quoted@example.com⟧'",
        "⟦иван@почта.рф⟧",
        "reach me at ⟦ada at lovelace dot dev⟧",
        "mail me: ⟦ada [at] lovelace [dot] dev⟧",
        "⟦ada(at)lovelace.dev⟧",
        "correo: ⟦ada arroba lovelace punto dev⟧",
        "email ⟦john dot smith at mail dot example dot com⟧ now",
    ],
    "phone": [
        "call ⟦+1 415 555 2671⟧",
        "⟦+44 161 496 0000⟧",
        "⟦+34 952 12 34 56⟧",
        "⟦(212) 555-0147⟧",
        "⟦212-555-0147⟧",
        "ring ⟦212.555.0147⟧",
        "Mon numero est ⟦01 42 68 53 00⟧.",
        "Tel. ⟦030/12345678⟧",
        "phone: ⟦07700 900123⟧",
        "móvil ⟦612 345 678⟧",
        "my number is ⟦4155552671⟧",
        "testdata⟦630-596-1111⟧",
        "fax ⟦212-555-0147 ext. 12⟧",
        "⟦0041 44 668 18 00⟧",
        "phone=⟦+14155552671⟧&x=1",
        "Teléfono:⟦981 221 822⟧",
    ],
    "ip_address": ["from ⟦85.214.132.117⟧", "http://⟦85.214.132.117⟧:8080/x",
    "⟦2a02:26f7:c9c4:6200::1⟧ logged in"],
    "mac_address": ["mac ⟦3c:22:fb:9a:01:7e⟧", "⟦3C-22-FB-9A-01-7E⟧"],
    "url": ["see ⟦https://www.linkedin.com/in/jane-doe-123⟧ for more",
    "my site: website: ⟦janedoe.example.org⟧"],
    "username": ["my username is ⟦jdoe_82⟧", "login: ⟦jdoe⟧", "instagram: ⟦@jane.paints⟧",
    "https://x.example/p?user=⟦jdoe82⟧"],
    "location": ["meet at ⟦40.71280, -74.00600⟧", "⟦40.7128° N, 74.0060° W⟧"],
    "address": [
        "I live at ⟦12 Elm Street, Springfield, IL 62701⟧.",
        "lives at ⟦12 Elm Row, Leeds⟧",
        "⟦221B Baker Street, London NW1 6XE⟧",
        "⟦1600 Pennsylvania Ave NW⟧",
        "wohnt in der ⟦Lindenstraße 14, 10969 Berlin⟧",
        "⟦12 rue de la Paix, 75002 Paris⟧",
        "⟦Calle Mayor 5, 28013 Madrid⟧",
        "⟦Via Roma 10, 00184 Roma⟧",
        "⟦Kerkstraat 12, 1017 GC Amsterdam⟧",
        "⟦Rua Augusta 100, 1100-053 Lisboa⟧",
        "⟦PO Box 1234⟧",
        "postcode ⟦SW1A 1AA⟧",
        "my zip code is ⟦90210⟧",
        "C.P. ⟦28013⟧ Madrid",
        "moved to ⟦Springfield, IL 62701⟧ in May",
    ],
}  # fmt: skip

SECRETS = {
    "secret": [
        f"token {'⟦' + s.GITHUB + '⟧'}",
        "my key is `⟦sk-ant-EXAMPLE0000000000000000⟧`",
        "ENV aws_access_key_id=⟦AKIAIOSFODNN7EXAMPLE⟧",
        'aws_secret_access_key = "⟦wJalrXUtnFEMI/K7MDENG/bPxRfiCYZA9KEYabcd⟧"',
        "export SLACK=⟦xoxb-1234567890-abcdefGHIJKL⟧",
        f"Authorization: Bearer ⟦{s.JWT}⟧",
        f"jwt ⟦{s.JWT}⟧",
        "postgres://⟦app:s3cr3tPw⟧@db.internal/prod",
        "https://api.example.com/v1?api_key=⟦9f8a7b6c5d4e3f2a1b0c⟧",
        'password = "⟦tr0ub4dor&3⟧"',
        "db-password: ⟦mlCY$KjRnUB⟧",
        "pwd=⟦Hunter2!⟧;",
        "my password is ⟦hunter2⟧",
        "My password is ⟦correcthorse⟧.",
        "the wifi password is ⟦Blue-Harbor-77⟧",
        "user admin and password ⟦Winter2024!⟧ on the box",
        "mein Passwort ist ⟦Sommer2024!⟧",
        "mi contraseña es ⟦gatito99⟧",
        "my pin is ⟦4821⟧",
        "CREATE USER x IDENTIFIED BY '⟦bJ#BvNBvc9O5⟧'",
        "client_secret: ⟦a8f5f167f44f4964e6c998dee827110c⟧",
        "AIza key: ⟦AIzaSyA1234567890abcdefghijklmnopqrstuv⟧",
        "stripe ⟦sk_live_4eC39HqLyjWDarjtT1zdp7dc⟧",
        "⟦glpat-abcdEFGH1234ijklMNOP⟧",
        "⟦npm_abcdefghijklmnopqrstuvwxyz0123456789⟧",
        "⟦hf_abcdefghijklmnopqrstuvwxyzABCDEFGH⟧",
        "bot ⟦123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw0⟧",
        "my verification code is ⟦482913⟧",
    ],
    "private_key": [
        "⟦-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\nabcdEFGH+/=\n-----END RSA PRIVATE "
        "KEY-----⟧\ndone",
        "⟦-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----⟧",
        "⟦-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQOYBF\n=abcd\n-----END PGP PRIVATE KEY "
        "BLOCK-----⟧",
        "cut: ⟦-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF⟧",
    ],
    "seed_phrase": [
        f"seed: ⟦{s.SEED}⟧",
        f"⟦{s.SEED}⟧",
        "phrase ⟦" + "abandon " * 11 + "about⟧",
    ],
}  # fmt: skip

PERSONAL = {
    "person": [
        "Dr. ⟦Smith⟧ will see you",
        "Le client est M. ⟦Dupont⟧ ici",
        "el Sr. ⟦García⟧ llamó",
        "Mrs ⟦Anne-Marie O'Neill⟧ called",
        "My name is ⟦Robert Downer jr.⟧ and that is all",
        "my name is ⟦priya patel⟧",
        "Me llamo ⟦Lucía Gómez⟧",
        "Ich heiße ⟦Jürgen Groß⟧",
        "Je m'appelle ⟦Chloé Dubois⟧",
        "Patient: ⟦Carol Flores⟧",
        "Nombre: ⟦Pedro⟧.",
        "Regards,\n⟦Tom Baker⟧",
        'from: "⟦Jon Snow⟧" <j@>',
        "Attn: ⟦Jane Roe⟧",
        "Contact ⟦Siobhan D'Arcy⟧ first",
        '{"full_name": "⟦Mara Quint⟧"}',
        "Unser Kunde ⟦Thomas Müller⟧ wartet",
        "The customer is ⟦Marco Rossi⟧",
        "Name: ⟦高橋隆⟧",
    ],
    "date_of_birth": [
        "DOB: ⟦1960-04-25⟧",
        "born on ⟦3 March 1974⟧",
        "Fecha de nacimiento: ⟦10/10/1963⟧.",
        "geboren am ⟦12.05.1980⟧",
        "née le ⟦3 mai 1990⟧",
        '"dateOfBirth": "⟦1980-01-31⟧"',
    ],
    "age": [
        "I am ⟦34⟧ years old",
        "a ⟦53⟧-year-old patient",
        "Paciente con ⟦53 años⟧.",
        "Age: ⟦61⟧",
        "I just turned ⟦40⟧.",
        "my son is ⟦9⟧, and tall",
    ],
    "date": ["on ⟦3 March 2021⟧", "the ⟦12/31/2019⟧", "el ⟦3 de marzo de 2020⟧",
    "am ⟦3. März 2020⟧", "le ⟦1er mars 2020⟧"],
    "health": ["My weight is ⟦120⟧.", "my blood pressure is ⟦150/95⟧",
    "I was diagnosed with ⟦type 2 diabetes⟧", "Diagnosis: ⟦Rheumatoid Arthritis⟧"],
    "medication": ["she takes ⟦Gabapentin 300mg⟧ at night"],
    "amount": ["my salary is ⟦$85,000⟧", "I make ⟦50k⟧ a year", "Salary: ⟦$120,000⟧"],
    "organization": ["works at ⟦Blue Harbor GmbH⟧", "Employer: ⟦Bluth Company⟧",
    "⟦Acme Inc.⟧ hired me"],
    "demographic": ["Gender: ⟦female⟧", "Estado civil: ⟦casado⟧"],
}  # fmt: skip

ROWS = [
    (category, row)
    for table in (MONEY, GOVERNMENT, CONTACT, SECRETS, PERSONAL)
    for category, rows in table.items()
    for row in rows
]


@pytest.mark.parametrize(
    ("category", "row"), ROWS, ids=[f"{n}-{c}" for n, (c, _) in enumerate(ROWS)]
)
def test_finds_the_value_and_nothing_else(category, row):
    """The marked part and only that."""
    values = re.findall(r"⟦(.*?)⟧", row, re.DOTALL)
    text = row.replace("⟦", "").replace("⟧", "")
    assert found(text) == [(value, category) for value in values]


@pytest.mark.parametrize(("country", "text", "value"), [
    ("DE", "die Nummer 36574261809 eintragen", "36574261809"),
    ("PL", "numer 44051401359 ok", "44051401359"),
    ("CA", "it says 130 692 544 there", "130 692 544"),
])  # fmt: skip
def test_a_country_lets_its_numbers_count_alone(country, text, value):
    """Without the country the number is nobody's."""
    assert (value, "government_id") in found(text, country)
    assert (value, "government_id") not in found(text)


def test_keccak_and_the_case_of_an_address():
    """Test values of the Keccak team and of EIP-55."""
    assert (
        keccak_256(b"").hex() == "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
    )
    address = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
    assert [each.confidence for each in findings(address)] == [1.0]
    assert [each.confidence for each in findings(address.lower())] == [0.8]


def test_checksums_make_a_finding_certain():
    """Confidence 1 is kept for what a checksum or a full form proves."""
    for text in (
        f"card {s.VISA}",
        f"IBAN {s.IBAN_GB}",
        f"DNI {s.DNI}",
        s.GITHUB,
        s.SEED,
        s.BITCOIN,
    ):
        assert [each.confidence for each in findings(text)] == [1.0], text
    for text in ("IBAN DE00 1111 2222 3333 4444 55", "my name is Ann Lee", "on 3 March 2021"):
        assert all(each.confidence < 1 for each in findings(text)), text
