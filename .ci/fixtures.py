"""Fixtures say where they come from and hold no secrets.

Each case is `fixtures/<provider>/<case>/`. Its provenance is a `provenance.toml` in it, or what the README.md beside it says
about `<case>/`.
"""

import hashlib
import pathlib
import re
import sys

ROOT = pathlib.Path("fixtures")
SECRETS = {
    "an AWS access key": re.compile(rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "an Alibaba Cloud access key": re.compile(rb"\bLTAI[0-9A-Za-z]{12,30}\b"),
    "a Tencent Cloud secret id": re.compile(rb"\bAKID[0-9A-Za-z]{28,}\b"),
    "a private key": re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "a bearer token": re.compile(rb"(?i)\bauthorization\W{1,5}bearer\s+(?!redacted|<|\$|\{)[0-9A-Za-z._~+/-]{16,}"),
    "a GitHub token": re.compile(rb"\bgh[pousr]_[0-9A-Za-z]{36}\b"),
    "an API key": re.compile(rb"\b(?:sk|rpa|hf)_[0-9A-Za-z_]{24,}\b"),
    "a JSON web token": re.compile(rb"\beyJ[0-9A-Za-z_-]{10,}\.eyJ[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]{10,}"),
    "an AWS account number": re.compile(rb"arn:aws[a-z-]*:[a-z0-9-]*:[a-z0-9-]*:(?!000000000000|123456789012)\d{12}:"),
}

# Keys that were made for a fixture and open nothing, by the digest of their file: any other key is a finding.
MADE_KEYS = {
    "764c18c7aa38fbfa6881961998c97944639ab949e79e9968cb03f06e5bf55a25": "fixtures/oci/signature/test-key.pem, for signature vectors",
}


def has_provenance(case: pathlib.Path) -> bool:
    if (case / "provenance.toml").is_file():
        return True
    readme = case.parent / "README.md"
    return readme.is_file() and f"`{case.name}/`" in readme.read_text(encoding="utf-8")


def main() -> int:
    if not ROOT.is_dir():
        print("no fixtures yet")
        return 0
    bad = []
    cases = [case for provider in sorted(ROOT.iterdir()) if provider.is_dir() for case in sorted(provider.iterdir()) if case.is_dir()]
    for case in cases:
        if not has_provenance(case):
            bad.append(f"{case}: no provenance.toml, and {case.parent}/README.md does not speak of `{case.name}/`")
    files = [path for path in sorted(ROOT.rglob("*")) if path.is_file()]
    for path in files:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() in MADE_KEYS:
            continue
        for what, pattern in SECRETS.items():
            if pattern.search(content):
                bad.append(f"{path}: looks like {what}")
    for line in bad:
        print(line)
    print(f"{len(cases)} cases, {len(files)} files, {len(bad)} findings")
    return 1 if bad else 0


sys.exit(main())
