"""Every dependency's licence must be satisfiable from the list in deny.toml.

Usage: cargo metadata --format-version 1 | python3 .ci/licences.py deny.toml
"""

import json
import re
import sys
import tomllib


def satisfied(expression: str, allowed: set[str]) -> bool:
    """Evaluates an SPDX expression (`A OR B`, `A AND B`, brackets; the older `A/B` means OR)."""
    tokens = re.findall(r"\(|\)|[^\s()]+", re.sub(r"\s*/\s*", " OR ", expression))
    position = 0

    def peek() -> str | None:
        return tokens[position] if position < len(tokens) else None

    def take() -> str:
        nonlocal position
        position += 1
        return tokens[position - 1]

    def either() -> bool:
        value = both()
        while peek() == "OR":
            take()
            right = both()
            value = value or right
        return value

    def both() -> bool:
        value = single()
        while peek() == "AND":
            take()
            right = single()
            value = value and right
        return value

    def single() -> bool:
        if peek() == "(":
            take()
            value = either()
            if take() != ")":
                raise ValueError(f"unbalanced brackets in {expression!r}")
            return value
        name = take()
        if peek() == "WITH":
            take()
            name = f"{name} WITH {take()}"
        return name in allowed

    value = either()
    if position != len(tokens):
        raise ValueError(f"cannot read {expression!r}")
    return value


def main() -> int:
    with open(sys.argv[1], "rb") as file:
        allowed = set(tomllib.load(file)["licenses"]["allow"])
    packages = [p for p in json.load(sys.stdin)["packages"] if p["source"]]
    bad = []
    for package in packages:
        name = f"{package['name']} {package['version']}"
        licence = package["license"]
        if not licence:
            bad.append(f"{name}: no licence is stated")
        elif not satisfied(licence, allowed):
            bad.append(f"{name}: {licence}")
        if not package["source"].startswith("registry+"):
            bad.append(f"{name}: comes from {package['source'].split('+')[0]}, not from the registry")
    for line in bad:
        print(line)
    print(f"{len(packages)} dependencies, {len(bad)} refused")
    return 1 if bad else 0


sys.exit(main())
