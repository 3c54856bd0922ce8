#!/bin/bash
# info --plan: runs the plan and says what each step takes; --runs 0 only looks.
. "$(dirname "$0")/support_common.sh"
narrow # up to where layouts and streams depend on the width
small=(--image-size 32 --batch-size 4 --num-classes 10)

for mode in train infer; do
    expect 0 "$convoy" info resnet18 --plan --mode $mode "${small[@]}" --runs 2
    expect_text err 'running the plan 2 times to measure its steps'
    expect_text out '^forward  conv2d +layer4.1.conv2 +[0-9.]+ ms +[0-9.]+ GFLOP/s cpu\.'
    expect_text out '^forward  max_pool +- +[0-9.]+ ms +[0-9.]+ GB/s '
    expect_text out '^conv2d +20 +[0-9.]+ ms +[0-9.]+ GFLOP/s +[0-9.]+ % +[0-9.]+ %$'
    expect_text out '^all steps [0-9.]+ ms; with what is around them [0-9.]+ ms, [0-9.]+ images/s$'
    expect_text out '^the limit of this machine: [1-9][0-9]* GFLOP/s in fp32'
    expect 0 "$convoy" info resnet18 --plan --mode $mode "${small[@]}" --runs 2 --format json
    checks=$((checks + 1))
    python3 - out $mode <<'END' || fail "the measured plan of $mode does not add up"
import json, math, sys
plan = json.load(open(sys.argv[1]))
steps, measured = plan["steps"], plan["measured"]
work = [s for s in steps if s["phase"] != "setup"]
assert measured["runs"] == 2
assert all(s["seconds"] > 0 for s in work), "a step takes no time"
for s in work:
    assert math.isclose(s["gflops"] * s["seconds"] * 1e9, s["flops"], rel_tol=1e-9), s
    assert math.isclose(s["gbps"] * s["seconds"] * 1e9, s["bytes"], rel_tol=1e-9), s
kinds = {k["op"]: k for k in measured["kinds"]}
assert set(kinds) == {s["op"] for s in work}
for op, kind in kinds.items():
    mine = [s for s in work if s["op"] == op]
    assert kind["steps"] == len(mine) and math.isclose(kind["seconds"], sum(s["seconds"] for s in mine)), op
    assert math.isclose(kind["gbps"] * kind["seconds"] * 1e9, sum(s["bytes"] for s in mine)), op
assert math.isclose(measured["seconds"], sum(s["seconds"] for s in work))
assert measured["iteration_seconds"] > 0
assert math.isclose(measured["limit_seconds"], sum(k["limit_seconds"] for k in kinds.values()))
# The limit of a convolution is at least that of its operations at the peak, of everything else its bytes.
best = max(measured["gbps_copy"], measured["gbps_triad"])
for op, kind in kinds.items():
    assert kind["limit_seconds"] >= 0.999 * kind["gbps"] * kind["seconds"] / best, op
    if op.startswith("conv2d"):
        assert kind["limit_seconds"] >= 0.999 * kind["gflops"] * kind["seconds"] / measured["gflops_f32"], op
END
    expect 0 "$convoy" info resnet18 --plan --mode $mode "${small[@]}" --runs 0 --format json
    checks=$((checks + 1))
    [ -s err ] && fail "a dry run says something on stderr"
    python3 -c 'import json; p = json.load(open("out")); assert "measured" not in p and "seconds" not in p["steps"][0]' ||
        fail "a plan that was not run has times"
done
# The reason column says what is worth saying: no step is there to explain why it is not another kind of work.
expect 0 "$convoy" info resnet18 --plan --mode train "${small[@]}" --runs 0
checks=$((checks + 1))
grep -qE 'no reorder from|only 3x3' out && fail "trivial refusals are shown"
expect_sentence 2 '--runs' "$convoy" info resnet18 --plan --runs -1
export LD_LIBRARY_PATH=$wide_path
# Channels-last images: nothing between convolutions is laid out anew, and the plan says which layout it has.
if "$convoy" info resnet50 --plan --precision bf16 --batch-size 1 --runs 0 2>&1 | grep -qE 'cpu.*(avx512_bf16|amx_bf16)'; then
    expect 0 env CONVOY_CPU_LAYOUT=nhwc "$convoy" info resnet50 --plan --precision bf16 --batch-size 1 --runs 0
    expect_text out 'conv2d .*:bf16:nhwc'
    checks=$((checks + 1))
    grep -E 'cpu\.reorder ' out && fail "channels-last images are laid out anew"
    # Weights are cast and laid out for the kernels once, not in every pass; in training, where each step changes them,
    # once for each kernel that reads them.
    for mode in infer train; do
        expect 0 env CONVOY_CPU_LAYOUT=nhwc "$convoy" info resnext50-32x4d --plan --mode $mode --precision bf16 --batch-size 1 \
            --runs 0 --format json
        checks=$((checks + 1))
        python3 - out $mode <<'END' || fail "weights of $mode are laid out more often than they change"
import collections, json, sys
plan = json.load(open(sys.argv[1]))
moved = [s for s in plan["steps"] if s["op"] in ("cast", "reorder") and len(s["inputs"][0]["shape"]) == 4]
if sys.argv[2] == "infer":
    assert moved and all(s["phase"] == "setup" for s in moved), [s for s in moved if s["phase"] != "setup"][:1]
else:
    weights = collections.Counter((s["op"], s["phase"], s["scope"], s["inputs"][0]["dtype"]) for s in moved if s["kernel"] != "cpu.reorder")
    assert weights and max(weights.values()) == 1, weights.most_common(1)
END
    done
    # 1x1 convolutions and weight gradients by tiles, in memory where the processor has none.
    expect 0 env CONVOY_CPU_LAYOUT=nhwc CONVOY_CPU_TILES=model CONVOY_KERNELS=first \
        "$convoy" info resnet18 --plan --mode train --precision bf16 "${small[@]}" --runs 0
    expect_text out 'cpu.conv2d_bwd_weights_tiles \(tiles:amx_bf16'
    expect_text out 'cpu.conv2d_tiles \(tiles:amx_bf16'
    expect_text out 'cpu.conv2d_bwd_data_tiles \(tiles:amx_bf16'
    expect 0 env CONVOY_CPU_TILES=model CONVOY_KERNELS=first \
        "$convoy" info resnext50-32x4d --plan --mode train --precision bf16 "${small[@]}" --runs 0
    expect_text out 'cpu.grouped_conv2d \(direct:amx_bf16'
    expect_text out 'cpu.grouped_conv2d_bwd_data \(direct:amx_bf16'
    expect_text out 'cpu.grouped_conv2d_bwd_weights \(direct:amx_bf16'
fi
# In bf16, where the size of the cache is known, a batch is computed by streams of four images at least: by two threads,
# of 8 images, whatever the cache is; not by one, and not in training.
if ! without_bf16; then
    eight=(--image-size 32 --batch-size 8 --num-classes 10 --precision bf16)
    expect 0 "$convoy" info resnet18 --plan --runs 1 --threads 2 "${eight[@]}"
    if grep -q '^plan .* at a time' out; then
        expect_text out '^plan +inference of 8 images, 4 at a time in each of 2 streams, bf16, '
        expect_text out '^plan memory +activations [0-9.]+ MiB of each stream '
        expect_text out '^all steps [0-9.]+ ms in each of 2 streams; with '
        expect 0 "$convoy" info resnet18 --threads 2 "${eight[@]}" --format json
        expect_text out '"streams": 2,'
        expect_text out '"streams_mib": 0*[1-9.]'
    else
        skip_part_unavoidable "the size of the cache is not known"
    fi
    expect 0 "$convoy" info resnet18 --plan --runs 0 --threads 1 "${eight[@]}"
    expect_text out '^plan +inference of 8 images, bf16, '
    expect 0 "$convoy" info resnet18 --plan --runs 0 --threads 2 "${eight[@]}" --mode train
    expect_text out '^plan +training of 8 images, bf16, '
fi
expect_sentence 2 'CONVOY_CPU_LAYOUT is auto, blocked or nhwc' env CONVOY_CPU_LAYOUT=nchw "$convoy" info resnet18 --plan --runs 0
# Another device measures its steps too, and says nothing about limits that it does not know.
expect 0 "$convoy" info resnet18 --plan --device ref "${small[@]}" --runs 1
expect_text out '^all steps '
checks=$((checks + 1))
grep -q 'limit' out && fail "ref knows no limit"
finish
