"""API keys that say what they are: the fixed beginnings that their issuers give them.

This file owns the table; each line is one kind of token, its beginning, and what may follow.
Lengths are lower bounds, so that a shortened or a new longer form counts too. Facts: the issuers'
documentation and the rule table of gitleaks (MIT).
"""

from __future__ import annotations

import re

_WORD, _URL, _HEX, _B64 = "[A-Za-z0-9]", "[A-Za-z0-9_-]", "[A-Fa-f0-9]", "[A-Za-z0-9+/=_-]"

# name, beginning (literal text of the token that makes it known), what follows
_KINDS = (
    ("1password", "ops_eyJ", f"{_B64}{{40,2000}}"), ("1password-secret", "A3-",
    r"[A-Z0-9]{6}(?:-[A-Z0-9]{5,11}){3,5}"),
    ("adobe", "p8e-", f"{_WORD}{{24,64}}"), ("age", "AGE-SECRET-KEY-1", "[A-Z0-9]{40,64}"),
    ("alibaba", "LTAI", f"{_WORD}{{12,24}}"),
    ("airtable", "pat", r"[A-Za-z0-9]{14}\.[a-f0-9]{64}"), ("anthropic", "sk-ant-",
    f"{_URL}{{12,200}}"),
    ("artifactory", "AKCp", f"{_WORD}{{60,100}}"), ("artifactory", "cmVmd", f"{_WORD}{{55,80}}"),
    ("atlassian", "ATATT3", f"{_B64}{{40,300}}"), ("atlassian", "ATCTT3", f"{_B64}{{40,300}}"),
    ("aws-access-key", "AKIA", "[A-Z0-9]{16}"), ("aws-access-key", "ASIA", "[A-Z0-9]{16}"),
    ("aws-access-key", "ABIA", "[A-Z0-9]{16}"),
    ("aws-access-key", "ACCA", "[A-Z0-9]{16}"), ("aws-bedrock", "ABSK", f"{_B64}{{60,300}}"),
    ("brevo", "xkeysib-", f"{_URL}{{40,100}}"),
    ("clojars", "CLOJARS_", f"{_WORD}{{40,80}}"), ("cloudflare", "v1.0-",
    r"[a-f0-9]{24}-[a-f0-9]{100,160}"),
    ("cloudflare", "cfut_", f"{_URL}{{30,80}}"), ("databricks", "dapi", r"[a-f0-9]{32}(?:-\d)?"),
    ("digitalocean", "doo_v1_", f"{_HEX}{{40,80}}"),
    ("digitalocean", "dop_v1_", f"{_HEX}{{40,80}}"), ("digitalocean", "dor_v1_",
    f"{_HEX}{{40,80}}"), ("docker", "dckr_pat_", f"{_URL}{{20,64}}"),
    ("doppler", "dp.pt.", f"{_WORD}{{40,64}}"), ("doppler", "dp.st.", "[A-Za-z0-9._-]{40,90}"),
    ("duffel", "duffel_", f"(?:test|live)_{_URL}{{30,64}}"),
    ("dynatrace", "dt0c01.", r"[A-Za-z0-9]{24}\.[A-Za-z0-9]{64}"), ("easypost", "EZAK",
    f"{_WORD}{{40,64}}"), ("easypost", "EZTK", f"{_WORD}{{40,64}}"),
    ("figma", "figd_", f"{_URL}{{30,80}}"), ("flutterwave", "FLWSECK", f"{_URL}{{12,64}}"), ("fly",
    "fo1_", f"{_URL}{{30,80}}"),
    ("fly", "fm2_", f"{_B64}{{60,2000}}"), ("frameio", "fio-u-", f"{_URL}{{40,80}}"), ("github",
    "ghp_", f"{_WORD}{{20,255}}"),
    ("github", "gho_", f"{_WORD}{{20,255}}"), ("github", "ghu_", f"{_WORD}{{20,255}}"), ("github",
    "ghs_", f"{_WORD}{{20,255}}"),
    ("github", "ghr_", f"{_WORD}{{20,255}}"), ("github", "github_pat_", r"\w{20,255}"), ("gitlab",
    "glpat-", r"[\w.-]{16,300}"),
    ("gitlab", "gldt-", r"[\w-]{16,64}"), ("gitlab", "glrt-", r"[\w.-]{16,300}"), ("gitlab",
    "glptt-", f"{_HEX}{{32,64}}"),
    ("gitlab", "glcbt-", r"[\w-]{16,80}"), ("gitlab", "glsoat-", r"[\w-]{16,64}"), ("gitlab",
    "gloas-", r"[\w-]{40,80}"),
    ("gitlab", "glagent-", r"[\w-]{30,64}"), ("gitlab", "glft-", r"[\w-]{16,64}"), ("gitlab",
    "GR1348941", r"[\w-]{16,40}"),
    ("google", "AIza", f"{_URL}{{30,40}}"), ("google-oauth", "GOCSPX-", f"{_URL}{{20,40}}"),
    ("google-oauth", "ya29.", r"[\w.-]{20,1000}"),
    ("grafana", "glc_", f"{_B64}{{30,400}}"), ("grafana", "glsa_", f"{_WORD}{{30,40}}_{_HEX}{{8}}"),
    ("groq", "gsk_", f"{_WORD}{{30,80}}"),
    ("harness", "pat.", r"[\w-]{22}\.\w{24}\.\w{20}"), ("heroku", "HRKU-", f"{_URL}{{30,80}}"),
    ("huggingface", "hf_", f"{_WORD}{{20,64}}"),
    ("huggingface", "api_org_", f"{_WORD}{{20,64}}"), ("infracost", "ico-", f"{_WORD}{{30,40}}"),
    ("langsmith", "lsv2_", r"\w{30,80}"),
    ("linear", "lin_api_", f"{_WORD}{{30,64}}"), ("lob", "live_pub_", f"{_HEX}{{20,40}}"),
    ("mailchimp", "", r"[a-f0-9]{32}-us\d{1,2}"),
    ("mailgun", "key-", f"{_HEX}{{32}}"), ("maxmind", "", r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
    ("newrelic", "NRAK-", "[A-Z0-9]{20,40}"),
    ("newrelic", "NRII-", f"{_URL}{{20,40}}"), ("newrelic", "NRJS-", f"{_HEX}{{15,30}}"), ("notion",
    "ntn_", f"{_WORD}{{30,64}}"),
    ("notion", "secret_", f"{_WORD}{{40,50}}"), ("npm", "npm_", f"{_WORD}{{30,64}}"), ("octopus",
    "API-", "[A-Z0-9]{25,30}"),
    ("openai", "sk-proj-", f"{_URL}{{16,300}}"), ("openai", "sk-svcacct-", f"{_URL}{{16,300}}"),
    ("openai", "sk-admin-", f"{_URL}{{16,300}}"),
    ("openai", "sk-", f"{_WORD}{{20,100}}"), ("openrouter", "sk-or-", f"{_URL}{{20,100}}"),
    ("openshift", "sha256~", f"{_URL}{{40,50}}"),
    ("perplexity", "pplx-", f"{_WORD}{{30,80}}"), ("plaid", "access-",
    rf"(?:sandbox|development|production)-{_HEX}{{8}}-[\da-f-]{{20,40}}"),
    ("planetscale", "pscale_tkn_", r"[\w.=-]{30,64}"), ("planetscale", "pscale_pw_",
    r"[\w.=-]{30,64}"), ("postman", "PMAK-", f"{_HEX}{{24}}-{_HEX}{{34}}"),
    ("prefect", "pnu_", f"{_WORD}{{30,40}}"), ("pulumi", "pul-", f"{_HEX}{{40}}"), ("pypi", "pypi-",
    f"{_URL}{{40,1000}}"),
    ("readme", "rdme_", f"{_WORD}{{40,80}}"), ("replicate", "r8_", f"{_WORD}{{30,40}}"),
    ("rubygems", "rubygems_", f"{_HEX}{{40,64}}"),
    ("scalingo", "tk-us-", f"{_URL}{{40,64}}"), ("sendgrid", "SG.", r"[\w-]{16,32}\.[\w-]{16,64}"),
    ("sentry", "sntryu_", f"{_HEX}{{40,80}}"),
    ("sentry", "sntrys_", f"{_B64}{{40,500}}"), ("settlemint", "sm_pat_", f"{_WORD}{{16,32}}"),
    ("shippo", "shippo_", f"(?:live|test)_{_HEX}{{40}}"),
    ("shopify", "shpat_", f"{_HEX}{{32}}"), ("shopify", "shpca_", f"{_HEX}{{32}}"), ("shopify",
    "shppa_", f"{_HEX}{{32}}"),
    ("shopify", "shpss_", f"{_HEX}{{32}}"), ("slack", "xoxb-", r"[\w-]{10,200}"), ("slack", "xoxp-",
    r"[\w-]{10,200}"),
    ("slack", "xoxa-", r"[\w-]{10,200}"), ("slack", "xoxr-", r"[\w-]{10,200}"), ("slack", "xoxs-",
    r"[\w-]{10,200}"),
    ("slack", "xoxe", r"[\w.-]{20,300}"), ("slack", "xapp-", r"\d-[\w-]{20,200}"), ("slack-webhook",
    "hooks.slack.com/", r"[a-z]{4,12}/[\w/+-]{20,80}"),
    ("sonar", "squ_", f"{_HEX}{{40}}"), ("sonar", "sqp_", f"{_HEX}{{40}}"), ("sourcegraph", "sgp_",
    r"\w{40,80}"),
    ("square", "sq0atp-", f"{_URL}{{20,64}}"), ("square", "sq0csp-", f"{_URL}{{20,64}}"), ("square",
    "EAAA", f"{_URL}{{40,80}}"),
    ("facebook", "EAAC", f"{_WORD}{{60,400}}"), ("facebook", "EAAM", f"{_WORD}{{60,400}}"),
    ("stripe", "sk_live_", f"{_WORD}{{8,247}}"),
    ("stripe", "sk_test_", f"{_WORD}{{8,247}}"), ("stripe", "rk_live_", f"{_WORD}{{8,247}}"),
    ("stripe", "rk_test_", f"{_WORD}{{8,247}}"),
    ("stripe", "whsec_", f"{_B64}{{16,100}}"), ("supabase", "sbp_", f"{_HEX}{{40}}"),
    ("teams-webhook", "webhook.office.com/webhookb2/", r"[\w@/-]{40,300}"),
    ("discord-webhook", "discord.com/api/webhooks/", r"\d{10,25}/[\w-]{20,100}"), ("telegram", "",
    r"\d{8,10}:AA[\w-]{32,36}"),
    ("terraform", "", r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{50,80}"), ("twilio", "SK",
    f"{_HEX}{{32}}"), ("typeform", "tfp_", r"[\w.=-]{40,80}"),
    ("vault", "hvs.", f"{_URL}{{20,150}}"), ("vault", "hvb.", f"{_URL}{{40,300}}"), ("vercel",
    "vcp_", f"{_WORD}{{20,80}}"),
    ("xai", "xai-", f"{_WORD}{{40,100}}"), ("yandex", "AQVN", f"{_URL}{{30,40}}"), ("zapier",
    "hooks.zapier.com/hooks/catch/", r"\d{4,12}/\w{4,12}"),
    ("azure", "", r"[\w~.]{3}\dQ~[\w~.-]{31,34}"), ("jwt", "eyJ",
    r"[\w-]{8,4000}\.[\w-]{4,8000}(?:\.[\w-]{0,2000})?"),
    ("jwt", "eyJ", r"[\w-]{3,12}\.\.\."),
)  # fmt: skip

_BY_START: dict[str, list[tuple[str, str]]] = {}
for _name, _start, _rest in _KINDS:
    _BY_START.setdefault(_start, []).append((_name, _rest))

_EDGE = r"(?<![A-Za-z0-9_])"
_END = r"(?![A-Za-z0-9])"


def _compile() -> list[tuple[str, str, re.Pattern[str]]]:
    return [
        (start, name, re.compile(f"{re.escape(start)}{rest}{_END}"))
        for start, kinds in _BY_START.items()
        for name, rest in kinds
    ]


# One search for all beginnings, then the token's own pattern at that place.
STARTS = re.compile(
    _EDGE
    + "(?:"
    + "|".join(sorted((re.escape(each) for each in _BY_START if each), key=len, reverse=True))
    + ")"
)
BY_START: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
for _start, _name, _pattern in _compile():
    BY_START.setdefault(_start, []).append((_name, _pattern))
# Those without a beginning of their own, each with the text that must occur.
SHAPED = tuple(
    (name, re.compile(f"{_EDGE}{rest}{_END}"), needle)
    for (name, rest), needle in zip(
        _BY_START[""], ("-us", "_mmk", ":AA", ".atlasv1.", "Q~"), strict=True
    )
)
