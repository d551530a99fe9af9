"""Makes the root folder of a small image with Bash and Python, as a public GPU image has them.

Usage: image.py FOLDER. Needs bash-static and busybox-static. `torch` is a stand-in that counts four GPUs.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

APPLETS = """sh ls cat env sleep mkdir dd head tail sha256sum printf true false id cp mv ln rm seq wc tr cut grep sed
date stat touch chmod truncate kill test expr tee sort uniq yes od mkfifo""".split()
LEFT_OUT = {"__pycache__", "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "ensurepip",
            "lib2to3", "pydoc_data", "turtledemo"}
TORCH = "class cuda:\n    @staticmethod\n    def device_count():\n        return 4\n"


def libraries(*programs):
    found = set()
    for program in programs:
        told = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        for word in told.split():
            if word.startswith("/") and os.path.isfile(word):
                found.add(word)
    return found


def main():
    root = Path(sys.argv[1])
    for folder in ("bin", "usr/bin", "tmp", "etc", "root", "home"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    shutil.copy("/bin/bash-static", root / "bin/bash")
    for name in APPLETS:
        (root / "bin" / name).symlink_to("busybox")
    (root / "usr/bin/env").symlink_to("/bin/busybox")

    program = Path(os.path.realpath(sys.executable))
    library = Path(sysconfig.get_paths()["stdlib"])
    inside = root / program.relative_to("/")
    inside.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, inside)
    shutil.copytree(
        library, root / library.relative_to("/"), symlinks=False, ignore_dangling_symlinks=True,
        ignore=lambda _, names: [name for name in names if name in LEFT_OUT or name.startswith("config-")])
    (root / library.relative_to("/") / "torch.py").write_text(TORCH)
    modules = [str(path) for path in (library / "lib-dynload").glob("*.so")]
    for path in libraries(str(program), *modules):
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy(path, target)
    for name in ("python3", "python"):
        (root / "bin" / name).symlink_to(program)
    # Other users pass through, also where Python is somebody's own.
    for folder in [program, library]:
        for above in folder.parents:
            inside = root / above.relative_to("/")
            if inside.is_dir():
                inside.chmod(inside.stat().st_mode | 0o055)


main()
