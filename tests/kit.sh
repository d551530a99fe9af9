# What the scripts of this folder share; sourced by them, in the root of the repository.
#
# Sets `target` and `kit` (a folder for what is made once), and `CARGO_TARGET_DIR`.
# shellcheck shell=bash

readonly CLIENT_VERSION=0.2.9
readonly MOTO_VERSION=5.2.5
readonly EL_VERSION=1.7.0
readonly GPUHUNT_VERSION=0.1.34
target=${CARGO_TARGET_DIR:-$PWD/target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
export CARGO_TARGET_DIR=$target
kit=$target/tests-kit
mkdir -p "$kit"

stage_name=
stage_start=0
stage_end() {
    [ -z "$stage_name" ] || printf '== %s: %s s\n' "$stage_name" "$((SECONDS - stage_start))"
    stage_name=
}
stage() {
    stage_end
    stage_name=$1
    stage_start=$SECONDS
    printf '== %s\n' "$1"
}
die() {
    printf 'tests/%s: %s\n' "${0##*/}" "$1" >&2
    exit 1
}

as_root() { [ "$(id -u)" = 0 ]; }
install() {
    as_root || die "$1 is missing. Install it (Debian: apt-get install $2) and run again."
    command -v apt-get >/dev/null || die "$1 is missing and there is no apt-get here. Install it and run again."
    printf 'installing %s\n' "$2"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq </dev/null >/dev/null || die "apt-get update failed; $1 is missing."
    # shellcheck disable=SC2086
    apt-get install -y -qq --no-install-recommends $2 </dev/null >/dev/null || die "apt-get could not install $2."
}

python_ok() {
    "$1" - <<'PY' >/dev/null 2>&1
import sys, venv, ensurepip
sys.exit(sys.version_info < (3, 11))
PY
}
find_python() {
    local candidate
    for candidate in python3.13 python3.12 python3.11 python3; do
        if command -v "$candidate" >/dev/null && python_ok "$candidate"; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

# The published client, in its own environment; the marker is written last, so that a broken install is redone.
published_client() {
    local python venv=$kit/runwhere-$CLIENT_VERSION
    python=$(find_python) || {
        install 'Python 3.11 or newer with venv' 'python3 python3-venv'
        python=$(find_python) || die 'no Python 3.11 or newer with venv found.'
    }
    if [ ! -f "$venv/complete" ]; then
        rm -rf "$venv"
        "$python" -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check "runwhere==$CLIENT_VERSION" </dev/null
        touch "$venv/complete"
    fi
    export RUNWHERE_PUBLISHED_CLIENT=$venv/bin/runwhere
    "$RUNWHERE_PUBLISHED_CLIENT" --version
}

# moto, which plays EC2 for the AWS package's tests, in its own environment.
moto() {
    local venv=$kit/moto-$MOTO_VERSION
    if [ ! -f "$venv/complete" ]; then
        rm -rf "$venv"
        "$(find_python)" -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check "moto[ec2,server]==$MOTO_VERSION" </dev/null
        touch "$venv/complete"
    fi
    export RUNWHERE_MOTO=$venv/bin/moto_server
}

# gpuhunt, whose lists of offers ours are measured against, in its own environment.
gpuhunt() {
    local venv=$kit/gpuhunt-$GPUHUNT_VERSION
    if [ ! -f "$venv/complete" ]; then
        rm -rf "$venv"
        "$(find_python)" -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check "gpuhunt==$GPUHUNT_VERSION" </dev/null
        touch "$venv/complete"
    fi
}

# The published EnvLoop client, without what it never imports.
published_el() {
    local python venv=$kit/envloop-$EL_VERSION
    python=$(find_python)
    if [ ! -f "$venv/complete" ]; then
        rm -rf "$venv"
        "$python" -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps "envloop-cli==$EL_VERSION" </dev/null
        touch "$venv/complete"
    fi
    export RUNWHERE_PUBLISHED_EL=$venv/bin/el
}

# Podman, a registry, and an image with Bash and Python in the registry's folder.
containers() {
    local program
    for program in podman:podman runc:runc docker-registry:docker-registry bash-static:bash-static \
        busybox:busybox-static; do
        command -v "${program%%:*}" >/dev/null || install "${program%%:*}" "${program##*:}"
    done
    export RUNWHERE_REGISTRY=$kit/registry
    [ ! -f "$kit/registry/complete" ] || return 0
    local work port=5979 pid python
    python=$(find_python)
    work=$(mktemp -d)
    rm -rf "$kit/registry"
    mkdir -p "$kit/registry"
    "$python" tests/image.py "$work/root"
    tar -C "$work/root" -cf "$work/root.tar" .
    printf 'version: 0.1\nlog: {level: error}\nstorage:\n  filesystem: {rootdirectory: %s}\nhttp: {addr: 127.0.0.1:%s}\n' \
        "$kit/registry" "$port" >"$work/registry.yml"
    docker-registry serve "$work/registry.yml" >"$work/registry.log" 2>&1 &
    pid=$!
    local podman=(podman --root "$work/store" --runroot "$work/run")
    local image=127.0.0.1:$port/test/gpu
    # A second image without Python.
    mkdir -p "$work/bare/bin" "$work/bare/tmp"
    cp /bin/bash-static "$work/bare/bin/bash"
    tar -C "$work/bare" -cf "$work/bare.tar" .
    "${podman[@]}" import -q "$work/root.tar" "$image:1" >/dev/null
    "${podman[@]}" import -q "$work/bare.tar" "$image:bare" >/dev/null
    "${podman[@]}" push -q --tls-verify=false "$image:1"
    "${podman[@]}" push -q --tls-verify=false "$image:bare"
    kill "$pid"
    "${podman[@]}" rmi -f -a >/dev/null 2>&1 || true
    umount "$work/store/overlay" 2>/dev/null || true
    rm -rf "$work"
    touch "$kit/registry/complete"
}
