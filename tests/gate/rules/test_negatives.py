"""What the rules must leave alone: questions, code, logs, configuration, numbers of things."""

from __future__ import annotations

import pytest

from tests.gate.rules.finding import found

PROMPTS = """
What is the capital of Australia?
How do I reset my password?
my password is not working
I forgot my password and the pin is blocked
My passcode was denied.
is my password case-sensitive or auto-generated?
the password is auto-generated and then hashed
Attn: Accounts Payable
Sr Software Engineer wanted, Gen Z welcome.
Call Me Maybe is a song.
What does Metformin 500mg do?
Is a BP of 120/80 normal? And what does BP 160/100 mean?
Who played Captain Kirk, and who was Sir Isaac Newton?
What does ferritin measure, and what is a normal value?
Why is my card payment pending after 3 days?
Explain the difference between TCP and UDP in 200 words.
Set a timer for 45 minutes and then one for 10.
How many grams of protein are in 100 g of lentils?
Is 120/80 a good blood pressure?
What time is it in Tokyo when it is 9:30 in Berlin?
Convert 1250.75 dollars to euros.
How tall is Mount Everest? 8848 m or 29029 ft?
Compare the iPhone 15 and the Pixel 8.
Translate "good morning" to French.
What happened in 1989?
Give me 10 ideas for a birthday party.
Write a haiku about the sea.
The population rose from 331449281 to 334914895.
Solve 3x + 4 = 19 for x.
What is 4111 times 1111?
one two three four five six seven eight nine ten
We should meet at the office dot com bubble museum.
look at google dot com for more
The temperature is 25 degrees in May.
My car is 10 years old and my laptop is 5 years old.
Should we send the business inquiry about the corporate matter?
The customer asked the client for a status update.
Is ISO 9001:2015 still current? And RFC 5737?
Chapter 3.2.1.4 describes the case 3 in detail.
The score was 24-17 and the odds are 5/2.
Flight time is 7h 35m, distance 6214 km.
Room 101, row 12, seat 34.
my weight loss plan
The doctor said to contact support.
Dear Sir or Madam, thank you for your order.
This is URGENT, please help
which apps use a two factor code
Please contact customer service team.
What is the routing number for?
The word license is spelled licence in British English.
Is the name of the column "name" or "Name"?
what is letter 96c
The model has 35B parameters, 40 layers and a context of 262144.
""".strip().splitlines()

CODE = [
    'import os\nprint(os.environ["HOME"])\n',
    "def login(username: str, password: str) -> Token:\n    return verify(username, password)\n",
    "password = os.environ['DB_PASSWORD']\n",
    "token = get_token(request.headers)\n",
    "const apiKey = process.env.API_KEY;\n",
    "api_key: ${API_KEY}\npassword: {{ vault_password }}\n",
    "password: changeme\nsecret: <your-secret>\n",
    "PASSWORD=\nTOKEN=xxxxxxxxxxxxxxxxxxxx\n",
    "max_tokens=4096, token_type='bearer', tokenizer=tok\n",
    "self.password_field = forms.CharField(widget=PasswordInput)\n",
    "if (key == nullptr) { return kError; }\n",
    "SELECT name, email FROM users WHERE id = 123456789;\n",
    "user = User.objects.get(pk=42)\n",
    "name: Build and Test\non: [push]\njobs:\n  test:\n    runs-on: ubuntu-22.04\n",
    '"integrity": "sha512-0UPjpq0Gm2RyzxDbeM8ConLICmLjRgcwuy4qS8vVnmVdZ1yMpw=="\n',
    "commit a94a8fe5ccb19ba61c4c0873d391e987982fbbd3\nAuthor: CI\n",
    "checksum = 9b74c9897bac770ffc029102a200c5de\n",
    "uuid = 123e4567-e89b-12d3-a456-426614174000\n",
    "assert hash == 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'\n",
    "numpy==1.26.4\ntorch>=2.3.1\ntransformers~=5.7.0\n",
    'version = "1.2.3.4"\n"driver": "535.104.05.01"\n',
    "ConfigManager.cpp:196 took 0.237115 at 1667470478\n",
    "#define MAX_ID 4294967295\nstatic const uint64_t kSeed = 0x9E3779B97F4A7C15ull;\n",
    "@decorator.cache\n@app.route('/users/<int:user_id>')\ndef f(): ...\n",
    "npm install @types/node@20.11.5 lodash@4.17.21\n",
    "git clone https://github.com/org/repo.git\n",
    "std::vector<std::string> names; a::b::c(1, 2);\n",
    "self.self_attn = LlamaAttention(config)\n",
    "# Copyright 2024 The Example Authors, Example Inc.\n",
    "phone = models.CharField(max_length=20)\n",
    "x = 3.14159265358979 + 2.718281828459045\n",
    "for i in range(1000000000): total += i\n",
    "docker run -p 8080:80 -v /data:/data nginx:1.25.3\n",
    "return 404 if not found else 200\n",
    "ip = '0.0.0.0'  # or 127.0.0.1, 10.0.0.1, 172.16.3.4, 192.0.2.1\n",
    '{"trace_id": "9b2f7c1e-3d54-4c1b-8f6a-0d2e4b6a8c10", "span": 8123456789012345}\n',
    "key_id = 'primary'\n",
    "const card = document.querySelector('.card-4111');\n",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk\n",
    "print('%d%%' % 42)\n",
    "C:\\Users\\Public\\new\\table.txt\n",
]

LOGS = [
    "2026-09-03T10:11:12Z level=info svc=billing shard=17 took=35ms\n",
    "03/22 08:51:06 INFO :...read_physical_netif: index #1, interface TR1 up, ifidx 1\n",
    "[12345.678901] usb 1-1: new high-speed USB device number 5 using xhci_hcd\n",
    "1607635102.00 -0.96\n",
    "SOA serial 2026062201 ttl 604800\n",
    "chat-schedule-message --post-at 1747731000\n",
    "GET /api/v2/items/4010232137/details HTTP/1.1 200 1534\n",
    "see https://wiki.example.com/spaces/ENG/pages/4010232137/Runbook\n",
    "pid=48213 uid=1000 port=54321 bytes=1234567890\n",
    "request 110bcd25-a55d-453a-8046-1297901ea002 failed after 30012 ms\n",
    "ERROR connection to 10.1.2.3:5432 refused (errno=111)\n",
    "heap: 1073741824 used, 2147483648 total; epoch 17\n",
    "Chrome/120.0.6099.110 Safari/537.36\n",
    "MongoDB v4.4.2 installed; engine: WebDAV Server .Net v2.1.1.108\n",
    "upgraded package foo from 1.2.3.4 to 1.2.3.5\n",
    "build 20240312.4 finished in 00:14:32\n",
    "6033391\n6058722\n7001234\n",
    "sku 4006381333931, ISBN 978-3-16-148410-0, EAN 5901234123457\n",
    "Item 4123456789012 is out of stock; part X12345 on order PO1234567\n",
    "tracking order 123456789 in the orders table; set token: 4096\n",
    "00:00:00:00:00:00 ff:ff:ff:ff:ff:ff\n",
    "::1 fe80::1 2001:db8::1\n",
]

SHEETS = [
    "id,price,quantity\n1001,19.99,3\n1002,5.00,12\n",
    "| Layer | Width | Params |\n|---|---|---|\n| 1 | 2048 | 4194304 |\n",
    "name;version\nnumpy;1.26.4\nscipy;1.11.0\n",
]


@pytest.mark.parametrize(
    "text", [*PROMPTS, *CODE, *LOGS, *SHEETS], ids=lambda text: text.strip()[:36]
)
def test_nothing_private_here(text):
    """No finding at all."""
    assert found(text) == []


@pytest.mark.parametrize("text", [
    "card 4111111111111112",
    "GB00WEST12345698765432",
    "12345678A",  # a DNI with the wrong letter
    "000-12-3456 and 666-12-3456",
    "my ssn is 987-65-4325?",
    "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNb",
    "1HGCM82633A004353",
    "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdx",
    "legal winner thank year wave sausage worth useful legal winner thank zebra",
])  # fmt: skip
def test_a_failing_checksum_is_no_finding(text):
    """A shape alone does not count where a checksum exists and no label stands before it."""
    assert found(text.replace("card ", "")) == []


@pytest.mark.parametrize("text", [
    "apiKey: YOUR_API_KEY_HERE_PLACEHOLDER",
    "token = '<insert-token-here>'",
    "password: ********",
    "secret=${SECRET}",
    "pwd = getpass.getpass()",
    'docker run -v "$PWD":/srv nginx',
    "api_key = settings.API_KEY",
    "export TOKEN=$MY_TOKEN",
    "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "https://user:${PASSWORD}@example.com/",
    "https://example.com/?token=YOUR_TOKEN",
    "Authorization: Bearer <token>",
])  # fmt: skip
def test_placeholders_are_no_secrets(text):
    """What stands for a secret is none."""
    assert [each for each in found(text) if each[1] == "secret"] == []
