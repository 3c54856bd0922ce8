# Sourced by the scripts that run step.py: `step ARCH SIZE [OPTION...]` compares one network and keeps its report;
# `step_end` prints the reports and gives the exit status (77: PyTorch is missing, 1: something differs).
set -u
source_folder=${CONVOY_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${CONVOY_BUILD:-$source_folder/build}
python=${CONVOY_PYTHON:-/usr/bin/python3}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

step() {
    local name="$1-$2" arch=$1 size=$2
    shift 2
    mkdir "$work/$name" # two at a time must not share files
    "$python" "$source_folder/tests/parity/step.py" --tool "$build/tests/step_dump" --work "$work/$name" \
        --arch "$arch" --size "$size" --device cpu "$@" >"$work/$name.log" 2>&1
    echo $? >"$work/$name.status"
}

step_end() {
    cat "$work"/*.log
    grep -qx 77 "$work"/*.status && exit 77
    ! grep -vqx 0 "$work"/*.status
    exit
}
