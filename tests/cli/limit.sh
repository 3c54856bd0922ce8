#!/bin/bash
# bench/limit: what it sums up is what the plan says.
. "$(dirname "$0")/support_common.sh"
narrow
limit=$(realpath "$(dirname "$convoy")/bench/limit")
[ -x "$limit" ] || skip "bench/limit is not built"

for mode in train infer; do
    small=(--arch resnet18 --mode $mode --image-size 32 --batch-size 4)
    sanitized && [ $mode = infer ] && continue
    expect 0 "$limit" "${small[@]}" --rounds 1
    expect_text out '^step +[0-9.]+ ms, [0-9.]+ images/s: [0-9.]+ % of the limit$'
    expect 0 "$limit" "${small[@]}" --rounds 1 --cache 0 --json
    cp out limit.json
    expect 0 "$limit" "${small[@]}" --rounds 1 --cache 1024 --json
    cp out cached.json
    expect 0 "$convoy" info resnet18 --plan --runs 0 --mode $mode --image-size 32 --batch-size 4 --format json
    checks=$((checks + 1))
    python3 - limit.json cached.json out <<'END' || fail "the limit of $mode does not add up"
import json, math, sys
limit, cached, plan = (json.load(open(name)) for name in sys.argv[1:4])
assert math.isclose(limit["limit_ms"], limit["kernels_ms"] + limit["rest_ms"])
assert math.isclose(limit["share"], limit["limit_ms"] / limit["step_ms"])
assert limit["images"] == plan["images"] and limit["images_reason"] == plan["images_reason"]
assert {k["images"] for k in limit["kernels"]} <= {"blocked", "nhwc"}
assert math.isclose(limit["images_per_second"], 4e3 / limit["step_ms"])
bandwidth = max(limit["gbps_copy"], limit["gbps_triad"])
assert math.isclose(limit["rest_ms"], limit["rest_bytes"] / bandwidth * 1e-6)
assert math.isclose(limit["kernels_ms"], sum(k["times"] * k["ms"] for k in limit["kernels"]))
products = [s for s in plan["steps"] if s["op"].startswith(("conv2d", "linear")) and not s["op"].endswith("bias")]
assert sum(k["times"] for k in limit["kernels"]) == len(products), "an operation is missing"
flops = sum(k["times"] * k["gflops"] * k["ms"] * 1e6 for k in limit["kernels"])
assert math.isclose(flops, sum(s["flops"] for s in products), rel_tol=1e-9)
sizes = [t["bytes"] for t in plan["tensors"]]
rest = 0
for s in plan["steps"]:
    again = s["phase"] == "backward" and s["op"] in ("batch_norm_apply", "normalize")
    if s in products or s["phase"] == "setup" or again or s["op"] == "reorder":
        continue
    rest += sum(sizes[t] for t in {o["tensor"] for o in s["inputs"]}) + sum(sizes[o["tensor"]] for o in s["outputs"])
if limit["mode"] == "train":
    rest += 20 * plan["parameters"]
assert limit["rest_bytes"] == rest, (limit["rest_bytes"], rest)
assert 0 < cached["rest_bytes"] < rest, "a large cache saves nothing"
END
done
# Kernels for one layout only.
expect 0 env CONVOY_CPU_LAYOUT=nhwc "$limit" --arch resnet18 --mode infer --image-size 32 --batch-size 4 --rounds 1 --json
checks=$((checks + 1))
python3 -c 'import json; p = json.load(open("out")); assert p["images"] == "nhwc" and {k["images"] for k in p["kernels"]} == {"nhwc"}' ||
    fail "another layout than the one asked for"
expect 2 "$limit" --mode nothing
expect 2 "$limit" --arch nothing
expect 2 "$limit" --batch-size
finish
