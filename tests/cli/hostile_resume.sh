#!/bin/bash
# A checkpoint or a run directory that comes from elsewhere does not say where this run writes.
. "$(dirname "$0")/support_common.sh"
narrow
make_shapes data 2 1
expect 0 tiny_train data --epochs 1 --workspace run --log-every-step run/steps.csv
theirs() { # a copy; checkpoints are replaced, never written in place
    rm -rf theirs && mkdir theirs && cp run/*.csv run/*.json theirs && ln run/checkpoint.safetensors theirs
}
resume() { "$convoy" -q train data --epochs 2 --workers 1 --training-only --no-checkpoints --resume "$@"; }
nothing_outside() {
    checks=$((checks + 1))
    [ -z "$(find . -name '*evil*')" ] || fail "written outside the run directory: $(find . -name '*evil*')"
}
# in_metadata OLD NEW: in the checkpoint's header, which keeps its length.
in_metadata() {
    local padded
    padded=$(printf '%-*s' ${#1} "$2")
    LC_ALL=C sed -i "1s|${1//\\/\\\\}|${padded//\\/\\\\}|" theirs/checkpoint.safetensors
    grep -aqF -- "$2" theirs/checkpoint.safetensors || fail "the checkpoint was not changed"
}

# ---- the options in a checkpoint decide results alone ----
for option in 'raport-file\": \"../evil' 'log-every-step\": \"evil.csv' 'workspace\": \"evil'; do
    theirs
    rm theirs/options.json
    in_metadata '\"lr-schedule\": \"cosine\", \"lr-unit\": \"epoch\"' "\\\"$option\\\""
    expect 0 resume theirs/checkpoint.safetensors
    expect_text err "saved option --[a-z-]* is not for this file to decide"
    nothing_outside
done

# ---- nor does options.json lead out of its folder ----
for change in 's|"raport-file": "[^"]*"|"raport-file": "../evil.json"|' \
    's|"raport-file": "[^"]*"|"raport-file": "sub/../../evil.json"|' \
    's|"log_every_step": "[^"]*"|"log_every_step": "'"$PWD"'/evil.csv"|' \
    's|"log_every_step": "[^"]*"|"log_every_step": "'"$PWD"'/theirs/../evil.csv"|' \
    's|"run": {|"run": {"workspace": "evil", |' 's|"run": {|"run": {"log-every-step": "evil.csv", |'; do
    theirs
    sed -i "$change" theirs/options.json
    expect 0 resume theirs
    expect_text err 'is not used|is not for this file to decide'
    nothing_outside
done

# ---- nor do links ----
for name in metrics.csv .lock; do
    theirs
    ln -sf ../evil theirs/$name
    expect 73 resume theirs
    expect_text err '^convoy: .*link that leads out of the run directory$'
    [ ! -e evil ] || fail "$name led out of the run directory"
done

# ---- what is inside stays as it was ----
theirs
sed -i 's|/run/steps.csv|/theirs/steps.csv|' theirs/options.json
expect 0 resume theirs
grep -v replaces err >warned && fail "an honest run directory is warned about: $(cat warned)"
[ "$(wc -l <theirs/steps.csv)" -gt "$(wc -l <run/steps.csv)" ] || fail "the log inside the run directory does not go on"
theirs
expect 0 resume theirs --log-every-step outside.csv
expect_text outside.csv '^1,'
finish
