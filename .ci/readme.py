"""What the READMEs tell a reader to type exists: files, folders and commands.

Looks at the `sh` blocks of README.md and README.en.md and at their relative links. Both must show the same commands.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys

READMES = ["README.md", "README.en.md"]


def commands(text: str) -> list[str]:
    found = []
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            line = line.split(" #")[0].strip()
            if line and not line.startswith("#"):
                found.append(line)
    return found


def subcommands(binary: str) -> set[str] | None:
    if not os.access(binary, os.X_OK):
        return None
    environment = dict(os.environ, LANG="en_US.UTF-8")
    text = subprocess.run([binary, "--help"], stdout=subprocess.PIPE, env=environment, check=True, text=True).stdout
    return set(re.findall(r"^\s{2,}([a-z][a-z-]+)\b", text, re.MULTILINE))


def main() -> int:
    bad = []
    binary = os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "tests-kit", "bin", "runwhere")
    known = subcommands(binary)
    seen = {}
    for name in READMES:
        path = pathlib.Path(name)
        if not path.is_file():
            bad.append(f"{name} is missing")
            continue
        text = path.read_text(encoding="utf-8")
        seen[name] = commands(text)
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            if "://" not in link and not pathlib.Path(link).exists():
                bad.append(f"{name}: the link {link} leads nowhere")
        for line in seen[name]:
            words = shlex.split(line)
            for index, word in enumerate(words):
                if word in ("-f", "--file") and index + 1 < len(words) and words[index + 1].startswith("docs/"):
                    if not pathlib.Path(words[index + 1]).is_file():
                        bad.append(f"{name}: {line}: no file {words[index + 1]}")
            if words[0].startswith(("tests/", ".ci/", "./")) and not os.access(words[0], os.X_OK):
                bad.append(f"{name}: {line}: {words[0]} cannot be run")
            arguments = words[1:] if words[0] == "runwhere" else words[3:] if words[:3] == ["cargo", "run", "--"] else []
            wanted = next((word for word in arguments if not word.startswith("-")), None)
            if known is not None and wanted and wanted not in known:
                bad.append(f"{name}: {line}: runwhere has no command {wanted}")
    if len(seen) == 2 and seen[READMES[0]] != seen[READMES[1]]:
        bad.append("the two READMEs do not show the same commands")
    if seen and not any(line.startswith("cargo run -- run ") for line in seen.get("README.md", [])):
        bad.append("README.md does not show the first run")
    for line in bad:
        print(line)
    print(f"{sum(map(len, seen.values()))} commands, {len(bad)} findings")
    return 1 if bad else 0


sys.exit(main())
