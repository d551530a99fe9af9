"""Starts the recipe of the job's profile."""

import json
import os
import runpy
import sys

root = os.environ.get("ENVLOOP_PROFILE_DIR")
if root is None:
    sys.exit("this runner needs a profile: set spec.profile to an envloop.job-profile/v2")
with open(os.environ["ENVLOOP_PROFILE_FILE"], encoding="utf-8") as file:
    recipe = json.load(file)["recipe"]
sources = [recipe["path"], *(source["path"] for source in recipe["dependencies"].values())]
sys.path[:0] = [os.path.join(root, path) for path in sources]
sys.dont_write_bytecode = True
os.makedirs("outputs", exist_ok=True)
entry = os.path.join(root, recipe["path"], recipe["entry"])
sys.argv = [entry]
runpy.run_path(entry, run_name="__main__")
