# Sourced by the tests of runs of several ranks on the data set "data", which this file makes.
. "$(dirname "$0")/support_common.sh"
. "$(dirname "$0")/support_ranks.sh"
[ -n "${wide_ranks:-}" ] || narrow
if [ -z "${per_class:-}" ]; then
    sanitized && per_class=2 || per_class=6
fi
make_shapes data $per_class 1

train() {
    exec "$convoy" train "${set:-../data}" --arch resnet18 --image-size 32 --batch-size 5 --epochs 2 --lr 0.02 --workers 1 \
        --quantize --workspace run --log-every-step run/steps.csv "$@"
}

# start FOLDER OPTIONS...: train in the background ($parent); its ranks are ${ranks[@]}. Waits for `lines` of the log.
start() {
    local folder=$1
    shift
    mkdir -p "$folder"
    set -m
    (cd "$folder" && train "$@") >out 2>err &
    parent=$!
    set +m
    await_step "$folder"
    ranks=()
    for process in $(pgrep -P $parent); do
        ranks[$(tr '\0' '\n' <"/proc/$process/environ" | sed -n 's/^RANK=//p')]=$process
    done
    expect_two "$folder"
    checks=$((checks + 1))
    for process in "${ranks[@]}"; do # where it is still there
        grep -qsvx convoy "/proc/$process/comm" && fail "rank $process is called $(cat "/proc/$process/comm")"
    done
}

# The run that others are compared with, which nobody disturbs: calm/.
calm() {
    mkdir calm
    expect 0 bash -c "$(declare -f train); convoy=$convoy; cd calm; train --processes 2"
}
