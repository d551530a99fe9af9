#!/usr/bin/env bash
# Runs the job's command, byte for byte, or shows what the node has.
set -u
mkdir -p outputs
if [ -n "${ENVLOOP_RUN_COMMAND_FILE:-}" ]; then
    exec bash "$ENVLOOP_RUN_COMMAND_FILE"
fi
echo "no command was given; this is what the node has"
command -v nvidia-smi >/dev/null && nvidia-smi -L
command -v python3 >/dev/null && python3 --version
exit 0
