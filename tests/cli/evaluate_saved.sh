#!/bin/bash
# train --evaluate of what another run has saved: the weights count, not how that run was cut short; batches are those of -b,
# and a report is written where one is named. A warm-up may be longer than the training.
. "$(dirname "$0")/support_common.sh"
narrow
make_shapes data 2 2

expect 0 tiny_train data --epochs 1 --warmup 8 --prof 1 --training-only --workspace run
# The reference program's own line: 20 images in batches of 7 are 3, though the run that is read had --prof 1 and a batch
# of 10.
expect 0 "$convoy" -q train data --arch resnet18 --evaluate --epochs 1 --resume run/checkpoint.safetensors -b 7 -p 1 \
    --raport-file bench.json
expect_text out ': 20 images$'
cp out seven
[ ! -s err ] || fail "--evaluate says something: $(cat err)"
checks=$((checks + 1))
[ "$(grep -o '"step": \[[0-9]*, [0-9]*, [0-9]*\], "data": {"val.top1"' bench.json | wc -l)" = 3 ] || fail "bench.json has other records: $(cat bench.json)"
[ ! -e runs ] || fail "--evaluate made a run directory"
# Quantiles of 20 batches are the largest and the second largest of their times, of which the mean is, too.
expect 0 "$convoy" -q train data --arch resnet18 --evaluate --resume run/checkpoint.safetensors -b 1 -p 1 --raport-file single.json
checks=$((checks + 1))
/usr/bin/python3 - <<'PY' || fail "the times of single.json are not those of its batches"
import json

records = [json.loads(line[5:]) for line in open("single.json")]
times = sorted(r["data"]["val.compute_latency_at100"] for r in records if r.get("step", "")[2:] and "val.data_time" in r["data"])
last = records[-1]["data"]
assert len(times) == 20, len(times)
assert last["val.compute_latency_at100"] == last["val.compute_latency_at99"] == times[19]
assert last["val.compute_latency_at95"] == times[18]
assert abs(20 * last["val.compute_latency"] - sum(times)) < 1e-9 * sum(times)
PY
expect 0 "$convoy" -q train data --evaluate --resume run -b 7 --prof 2
expect_text out ': 14 images$'
expect_sentence 2 'cannot change it' "$convoy" -q train data --evaluate --resume run --arch resnet34

# Without weights, which only benchmarks mean.
expect 0 "$convoy" -q train data --evaluate --arch resnet18 --image-size 32 -b 7
expect_text err '^convoy: warning: neither --resume nor --pretrained-weights names weights to evaluate: random ones are$'
expect 0 "$convoy" -q train data --evaluate --arch resnet18 --image-size 32 -b 7 --prof 1
checks=$((checks + 1))
[ ! -s err ] || fail "a benchmark is warned: $(cat err)"

# A file with weights alone.
expect 0 "$convoy" -q convert run/checkpoint.safetensors weights.pth.tar --weights-only
expect 0 "$convoy" -q train data --arch resnet18 --image-size 32 --evaluate --epochs 1 --resume weights.pth.tar -b 7
expect_same seven out
# A loss that is no number has no sign, whatever its bits say: here logits are infinite, whose difference is the NaN that
# x86 makes, 0xffc00000.
expect 0 "$convoy" -q convert run/checkpoint.safetensors plain.safetensors --weights-only
python3 - <<'END' || fail "no weights beyond all bounds"
import json, struct
b = bytearray(open("plain.safetensors", "rb").read())
n = struct.unpack("<Q", b[:8])[0]
for name, tensor in json.loads(b[8:8 + n]).items():
    if name == "fc.weight":
        first, last = tensor["data_offsets"]
        b[8 + n + first:8 + n + last] = struct.pack("<f", 3e38) * ((last - first) // 4)
        open("huge.safetensors", "wb").write(b)
END
expect 0 "$convoy" -q evaluate data --weights huge.safetensors --device cpu
expect_text out 'loss nan   images 20 '
expect 0 "$convoy" -q train data --arch resnet18 --image-size 32 --evaluate --epochs 1 --resume huge.safetensors -b 7
expect_text out ', loss nan: 20 images$'
# Answers with other names than the file's.
for i in 0 1 2 3 4 5 6 7 8 9; do echo "n0000000$i thing $i, or so"; done >names.txt
image=$(find data/val -name '*.jpg' | sort | head -n 1)
expect 0 "$convoy" -q classify "$image" --weights run/checkpoint.safetensors --topk 1 --format csv --class-names names.txt
expect_text out ',1,([0-9]),"thing [0-9], or so",'
echo more >>names.txt
expect_sentence 65 'more names than the 10 classes' "$convoy" -q classify "$image" --weights run/checkpoint.safetensors \
    --class-names names.txt
finish
