#!/bin/bash
# Post-training quantisation as a person meets it: a file that everybody takes, the same for any number of threads; layers
# that stay in floats; a stop that leaves nothing; files and options that are refused.
. "$(dirname "$0")/support_common.sh"
images=40
sanitized && images=6 && narrow # how much memory it takes is looked at without
make_shapes data $((images * 3 / 10)) 1
expect 0 tiny_train data --epochs 1 --prof 1 --workspace base
weights=base/model_best.safetensors

quantize() { # --max-drop: the accuracy of such a network is chance
    "$convoy" quantize $weights --batch-size 10 "$@"
}

# ---- a quantised network for everybody ----
expect 0 quantize int8.safetensors --data data --images $images --max-drop 100 --threads 1 --bias-correction --format json
for key in '"calibration_images": '$images '"validation_images": 10' '"lost": ' '"agreement": [0-9]' '"name": "layer1.0.conv1"' \
    '"sqnr_db": [0-9]'; do
    expect_text out "$key"
done
cp out first.json
top1=$(sed -n 's/.*"int8": {"top1": \([0-9.]*\),.*/\1/p' out)
expect 0 "$convoy" -q evaluate data --weights int8.safetensors --format json
expect_text out ".*\"top1\": ${top1:-none},"
expect 0 "$convoy" info int8.safetensors
expect_text out '^quantized +'
expect_text out "^calibration +.mean., $images images"
expect 0 "$convoy" -q classify data/val/*/000000.* --weights int8.safetensors
expect 0 "$convoy" -q bench infer --weights int8.safetensors --data data --iterations 1 --batch-size 10

# In integers where the processor has them, else in floats; the reference computes in integers everywhere.
expect 0 env CONVOY_CPU_ISA=base "$convoy" info int8.safetensors
expect_text out '^inference +in floats'
expect_text out '^plan +inference of 1 image, fp32,'
expect 0 "$convoy" info int8.safetensors --plan --runs 1 --device ref
expect_text out '^plan +inference of 1 image, int8,'
expect_text out 'conv2d_int8 +layer1.0.conv1 +[0-9.]+ ms'
expect_text out '^conv2d_int8 +21 +[0-9.]+ ms'
plan_mib() { # of inference of 32 images
    expect 0 "$convoy" info int8.safetensors --batch-size 32 --device ref --format json "$@"
    sed -n 's/.*"inference_memory": {[^}]*"plan_mib": \([0-9.]*\).*/\1/p' out
}
checks=$((checks + 1))
awk -v bytes="$(plan_mib)" -v floats="$(plan_mib --precision fp32)" 'BEGIN { exit !(bytes > 0 && 2 * bytes < floats) }' ||
    fail "integers are said to take as much memory as floats"
expect 0 "$convoy" info int8.safetensors --plan --device ref --precision fp32
expect_text out 'fake_quantize'

# Where the processor has integers, and the size of its cache is known, a batch is computed by streams.
expect 0 "$convoy" info int8.safetensors --batch-size 32 --threads 2 --plan --runs 1
if grep -q '^plan .*, int8, ' out && grep -q '^plan .* at a time' out; then
    expect_text out '^plan +inference of 32 images, [0-9]+ at a time in each of 2 streams, int8,'
    expect_text out '^plan memory +activations [0-9.]+ MiB of each stream '
    expect_text out '^plan pass .*, of one part$'
    expect_text out '^all steps [0-9.]+ ms.* in each of 2 streams; with '
    expect 0 "$convoy" info int8.safetensors --batch-size 32 --threads 2 --format json
    expect_text out '"streams": 2,'
    expect_text out '"streams_mib": 0*[1-9.]'
    expect 0 "$convoy" info int8.safetensors --batch-size 31 --threads 2
    expect_text out '^plan +inference of 31 images, 1 at a time in each of 2 streams, int8,'
fi

# ---- whatever the threads are; another draw of the images gives other ranges ----
ranges() { # the ranges of the quantizers of both files that are on, a name and six numbers in a line
    /usr/bin/python3 - "$@" <<'PY'
import json, struct, sys
def states(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {name: struct.unpack("<3f", data[8 + size + entry["data_offsets"][0]:][:12])
            for name, entry in header.items() if name.endswith("_quantizer.observed")}
first, second = map(states, sys.argv[1:])
for name in first:
    if first[name][2] and second[name][2]:
        print(name, *first[name], *second[name])
PY
}
if ! sanitized; then
    expect 0 quantize again.safetensors --data data --images $images --max-drop 100 --threads 2 --workers 3 --bias-correction
    expect_same int8.safetensors again.safetensors
    expect_text out '^lost [-0-9.]+ points on 10 images; the same answer for [0-9.]+ % of them'
    # Nothing may be lost: what costs the most stays in floats until nothing is.
    weights=base # the folder of the run
    expect 0 quantize strict.safetensors --data data --images $((3 * images)) --max-drop 0 --seed 2 --format json
    awk '/"lost": / { exit !($2 + 0 <= 0) }' out || fail "more is lost than --max-drop says"
    # A run's checkpoint is larger than its network: the bytes are the network's, whose file is as large with 8 bits.
    grep -oE '"bytes": [0-9]+' out | tr -dc '0-9\n' | paste -sd ' ' | awk '{ exit !(NF == 2 && $1 > 0.98 * $2 && $1 < $2) }' ||
        fail "bytes of both networks: $(grep -oE '"bytes": [0-9]+' out)"
    expect_text err 'validation images counts for [0-9.]+ points: with --max-drop 0 a single one decides$'
    weights=base/model_best.safetensors
    # Three times as many images take no more memory: the values of one of them take 2 MiB.
    checks=$((checks + 1))
    sed -n 's/.*"peak_memory_mib": \([0-9.]*\).*/\1/p' first.json out | tr '\n' ' ' | awk '{ exit !($1 > 50 && $2 < $1 + 40) }' ||
        fail "the memory grows with the number of images"
    ranges int8.safetensors strict.safetensors >both || skip "no python3"
    checks=$((checks + 1))
    awk '/input_quantizer/ && $3 != $6 { other++ } /weight_quantizer/ && $3 != $6 { weights++ } END { exit !(other > 0 && weights == 0) }' both ||
        fail "the seed does not decide which images ranges are chosen from"
    expect 0 "$convoy" -q convert int8.safetensors int8.onnx
    grep -q QuantizeLinear int8.onnx || fail "the ONNX file has no integers"
fi

# ---- a stop leaves no file, and an old one as it was ----
echo old >stopped.safetensors
expect 0 wide tiny_train data --epochs 1 --prof 1 --workspace slow # long enough to be stopped
(program=$convoy; wide exec "$program" quantize slow/model_best.safetensors stopped.safetensors --data data --max-drop 0 --images $images) >out 2>err &
process=$!
sleep 0.3
kill -TERM $process
wait $process
rc=$?
checks=$((checks + 1))
[ $rc != 0 ] || fail "a stopped quantisation ends with 0"
[ "$(cat stopped.safetensors)" = old ] || fail "a stop changes the file that was there"
! ls stopped.safetensors.* 2>/dev/null || fail "a stop leaves a temporary file"

# ---- what is refused ----
expect_sentence 2 'quantize needs --data DIR' quantize x.safetensors
expect_sentence 2 'quantize needs WEIGHTS' "$convoy" quantize
expect_sentence 2 'must end in .safetensors' quantize x.onnx --data data
expect_sentence 2 'option --calibration is minmax, mean, percentile, mse or entropy, not "max"' quantize x.safetensors --data data --calibration max
expect_sentence 2 'option --max-drop' quantize x.safetensors --data data --max-drop nan
expect_sentence 66 'missing' "$convoy" quantize missing.safetensors x.safetensors --data data
expect_sentence 65 'int8.safetensors" is quantised already' "$convoy" quantize int8.safetensors x.safetensors --data data
expect_sentence 73 'nowhere' quantize nowhere/x.safetensors --data data --images 2 --max-drop 100
[ ! -e x.safetensors ] || fail "a refused command writes a file"

# patch FILE TENSOR X Y Z: another state of a quantizer.
patch() {
    /usr/bin/python3 - "$@" <<'PY'
import json, struct, sys
data = bytearray(open("int8.safetensors", "rb").read())
size = struct.unpack("<Q", data[:8])[0]
at = 8 + size + json.loads(data[8:8 + size])[sys.argv[2]]["data_offsets"][0]
data[at:at + 12] = struct.pack("<3f", *map(float, sys.argv[3:6]))
open(sys.argv[1], "wb").write(data)
PY
}
hostile() { # X Y Z PATTERN
    patch bad.safetensors "${5:-layer1.0.conv1.input_quantizer.observed}" "$1" "$2" "$3" || skip "no python3"
    expect_sentence 65 "bad.safetensors\": the quantizer .*quantizer.observed $4" "$convoy" -q evaluate data --weights bad.safetensors
}
hostile 0 nan 5 'has a number that is not finite'
hostile -inf 1 5 'has a number that is not finite' conv1.weight_quantizer.observed
hostile 0 0 5 'has a scale of zero'
hostile 0 0 5 'has a scale of zero' layer1.0.conv1.weight_quantizer.observed
hostile 0 1 nan 'has a number that is not finite'
hostile 0 -1 5 'has a range without 0 in it'
hostile 0 1 -3 'counts fewer batches than none'
hostile 0 1 0 'has a range of no batch'
for name in conv1.input layer1.0.conv1.input conv1.weight; do # of values with signs, of others, of weights
    hostile $([ $name = conv1.input ] && echo -1e-40 || echo 0) 1e-40 5 'has a scale so small' ${name}_quantizer.observed
done

# reshape KIND: the file without a quantizer, or with one of another shape or type.
reshape() {
    /usr/bin/python3 - "$1" <<'PY'
import json, struct, sys
data = open("int8.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8:8 + size]), data[8 + size:]
name = "layer1.0.conv1.input_quantizer.observed"
entry = header.pop(name)
if sys.argv[1] == "type":
    header[name] = dict(entry, dtype="I32")
elif sys.argv[1] == "shape":
    header[name] = dict(entry, shape=[3, 1])
else:
    header["unknown"] = entry
text = json.dumps(header).encode()
open("bad.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
PY
}
for kind in missing type shape; do
    reshape $kind
    expect_sentence 65 'bad.safetensors" does not hold the tensors of resnet18 .*"layer1.0.conv1.input_quantizer.observed"' \
        "$convoy" -q evaluate data --weights bad.safetensors
done
# What no calibration gives, but a number can be: answers, not a crash.
patch bad.safetensors layer1.0.conv1.input_quantizer.observed 0 3e38 5
expect 0 "$convoy" -q evaluate data --weights bad.safetensors
patch bad.safetensors layer1.0.conv1.input_quantizer.observed 0 2e-36 5
expect 0 "$convoy" -q evaluate data --weights bad.safetensors

# ---- what a file is that does not say so: tensors alone, as other programs save them ----
# silent NAME=X,Y,Z...: a file without metadata, with other states of the quantizers whose names end so.
silent() {
    /usr/bin/python3 - "$@" <<'PY'
import json, struct, sys
data = open("int8.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8:8 + size]), bytearray(data[8 + size:])
del header["__metadata__"]
for change in sys.argv[1:]:
    end, values = change.split("=")
    for name, entry in header.items():
        if name.endswith(end + "_quantizer.observed"):
            at = entry["data_offsets"][0]
            body[at:at + 12] = struct.pack("<3f", *map(float, values.split(",")))
text = json.dumps(header).encode()
open("silent.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
PY
}
silent fc.weight=0,0,0 fc.input=0,0,0 # a head that --max-drop left in floats
expect 0 "$convoy" info silent.safetensors --arch resnet18
expect_text out 'quantized +channels'
silent layer1.0.conv1.weight=-1,1,5
expect_sentence 65 'silent.safetensors" does not say how it is quantised, and its tensors do not agree: .* one scale: 1, with .*: 20' \
    "$convoy" info silent.safetensors --arch resnet18
silent weight=0,0,0
expect 0 "$convoy" info silent.safetensors --arch resnet18
expect_text err 'silent.safetensors" has quantizers of weights, and all of them are off'
finish
