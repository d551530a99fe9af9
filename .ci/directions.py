"""The packages depend on each other in one direction, and lean ones stay lean.

Reads `cargo tree` of each package, normal and build dependencies with the features that it has when built alone; what a
package uses in its own tests is its own business.
"""

import json
import pathlib
import re
import subprocess
import sys

# Own packages, each with the own packages that it may depend on (directly or not).
MODEL = {"runwhere-model"}
# Expands to nothing outside the test build.
POINTS = {"runwhere-failpoint"}
PROVIDERS = MODEL | POINTS | {"runwhere-providers"}
PRICING = PROVIDERS | {"runwhere-pricing"}
ENGINE = MODEL | {"runwhere-engine"}
AGENT = MODEL | POINTS | {"runwhere-agent"}
BROKER = PRICING | ENGINE | AGENT | {"runwhere-broker"}
MAY_USE = {
    "runwhere-model": set(),
    "runwhere-failpoint": set(),
    "runwhere-providers": PROVIDERS,
    "runwhere-aws": PROVIDERS,
    "runwhere-pricing": PROVIDERS,
    "runwhere-engine": MODEL,
    "runwhere-agent": AGENT,
    "runwhere-broker": BROKER,
    "runwhere": BROKER | {"runwhere-aws"},
    # The simulator drives engine, driver and SimCloud; no cloud SDK, no HTTP server of its own.
    "runwhere-sim": BROKER,
    # The suites that cross packages see the product as a user does: through its binary.
    "runwhere-tests": POINTS,
}

# Foreign packages that must not be reached from an own one, by whatever way.
MUST_NOT_REACH = {
    "runwhere-model": ["tokio", "reqwest", "hyper", "axum", "rusqlite", "sqlx", "clap", "getrandom"],
    "runwhere-engine": ["tokio", "reqwest", "hyper", "axum", "rusqlite", "sqlx", "clap", "getrandom", "rand", "async-trait"],
    "runwhere-providers": ["axum", "rusqlite", "sqlx", "clap"],
    "runwhere-pricing": ["rusqlite", "sqlx", "clap"],
    "runwhere-agent": ["axum", "rusqlite", "sqlx", "clap", "aws-sdk-ec2"],
    "runwhere-broker": ["clap", "indicatif", "comfy-table"],
}


# The decisions are a function of their arguments: every foreign package that they reach is listed here, so that a
# new one, which could read a clock, draw, wait or do input and output, is a decision of its own. Clippy, by the
# package's own clippy.toml, keeps the standard library's clocks, files, threads and hash maps out.
ONLY_REACH = {
    "runwhere-engine": set(
        "arrayvec block-buffer cfg-if const-oid cpufeatures crypto-common digest hybrid-array iso_country iso_currency"
        " itoa jiff jiff-core lazy_static memchr num-traits proc-macro2 quote rust_decimal serde serde_core serde_derive"
        " serde_json sha2 syn thiserror thiserror-impl typenum unicode-ident zmij autocfg version_check libc".split()
    )
}
# And nothing in it waits.
NEVER_WAITS = {"runwhere-engine": "broker/engine/src"}


def output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def ways(package: str) -> dict[str, list[str]]:
    """Every package that is reached from `package`, with one way to it."""
    found, way = {}, []
    tree = output("cargo", "tree", "--locked", "-p", package, "-e", "normal,build", "--prefix", "depth")
    for line in tree.splitlines():
        if match := re.match(r"(\d+)([A-Za-z0-9_-]+) v", line):
            way = way[: int(match[1])] + [match[2]]
            found.setdefault(match[2], way)
    return found


def main() -> int:
    metadata = json.loads(output("cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"))
    members = sorted(package["name"] for package in metadata["packages"])
    bad = []
    for name in members:
        if name not in MAY_USE:
            bad.append(f"{name}: say in .ci/directions.py which packages it may use")
            continue
        for other, way in ways(name).items():
            if other in members and other != name and other not in MAY_USE[name]:
                bad.append(f"{name} must not use {other}: {' -> '.join(way)}")
            if other in MUST_NOT_REACH.get(name, ()):
                bad.append(f"{name} must not reach {other}: {' -> '.join(way)}")
        for other, way in ways(name).items():
            if name in ONLY_REACH and other not in ONLY_REACH[name] and other not in members:
                bad.append(f"{name} reaches {other}, which .ci/directions.py does not list: {' -> '.join(way)}")
        for path in sorted(pathlib.Path(NEVER_WAITS.get(name, "-")).rglob("*.rs")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.search(r"\b(async|await)\b", line.split("//")[0]):
                    bad.append(f"{path}:{number}: {name} must not wait: {line.strip()}")
    for line in bad:
        print(line)
    print(f"{len(members)} packages, {len(bad)} wrong directions")
    return 1 if bad else 0


sys.exit(main())
