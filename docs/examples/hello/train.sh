#!/bin/sh
# Ten steps in about two seconds. Continues after the step that it is given, or that its last checkpoint names.
set -eu
cd "$(dirname "$0")"
mkdir -p checkpoints

step=${RUNW_RESUME_FROM_STEP:-}
if [ -z "$step" ] && [ -f checkpoints/step ]; then
    step=$(cat checkpoints/step)
fi
step=${step:-0}
last=$((step + 10))
echo "hello from ${RUNWHERE_JOB_NAME:-nowhere}: ${RUNWHERE_NPROC_PER_NODE:-0} GPU, from step $step"

while [ "$step" -lt "$last" ]; do
    step=$((step + 1))
    printf 'step %d/%d, loss=0.%03d\n' "$step" "$last" $((1000 / (step + 1)))
    # Written beside and renamed, so that a checkpoint is whole or absent.
    echo "$step" >checkpoints/step.new
    mv checkpoints/step.new checkpoints/step
    sleep 0.2
done
echo "saved checkpoints/step at $step"
