#!/bin/bash
# What a run writes down: the report, TensorBoard's events, validation.json, the page; whole after kills and resumes;
# early failures in words.
. "$(dirname "$0")/support_common.sh"
narrow
make_shapes data 8 10
steps=8

train() { # WORKSPACE [options]
    tiny_train data --epochs 2 --workspace "$@" --print-freq 3
}

# ---- one run, and one that is stopped in between ----
expect 0 train plain
checks=$((checks + 1))
[ ! -s err ] || { fail "a healthy run says something"; show; }
# In a subshell that the program replaces: the kill must not hit a shell that waits for it.
(exec "$convoy" -q train data --arch resnet18 --image-size 32 --batch-size 10 --lr 0.02 --workers 2 --epochs 2 \
    --print-freq 3 --workspace stopped --checkpoint-every 2 --log-every-step stopped/steps.csv) >out 2>err &
process=$!
for _ in $(seq 300); do # until the second epoch
    [ -e stopped/steps.csv ] && [ "$(wc -l <stopped/steps.csv)" -gt 11 ] && break
    sleep 0.1
done
kill -9 $process 2>/dev/null
wait $process 2>/dev/null
expect 0 "$convoy" -q train data --resume stopped
if command -v python3 >/dev/null; then
    expect 0 python3 "$sources/tests/cli/records.py" plain --steps $steps
    expect 0 python3 "$sources/tests/cli/records.py" stopped --steps $steps --plain plain
else
    skip_part "no python3 here to read the records"
fi
expect_text stopped/experiment_raport.json '"resumed.epoch"'

# ---- the page ----
for page in plain/report.html stopped/report.html; do
    checks=$((checks + 1))
    [ -s $page ] || fail "there is no $page"
    expect_text $page '<h1>resnet18 on data</h1>'
    expect_text $page 'Finished: 2 epochs'
    expect_text $page 'data:image/jpeg;base64,/9j/'
    grep -qE '(src|href)="(https?:)?/' $page && fail "$page fetches something"
done
expect_text stopped/report.html 'resumed once'
grep -q 'class="panel notes"' plain/report.html && fail "the page of a healthy run has remarks"
mv plain/report.html before.html
expect 0 "$convoy" report plain
expect_text out '^plain/report.html$'
expect_same before.html plain/report.html
rm plain/model_best.safetensors plain/validation.json
expect 0 "$convoy" report plain/ --output other.html
expect_text other.html 'Validation accuracy'
expect_sentence 66 'not a run directory' "$convoy" report data
expect_sentence 66 'no options.json' "$convoy" report nowhere
expect_sentence 2 'RUNDIR' "$convoy" report
expect_sentence 73 'no/page.html' "$convoy" report plain -o no/page.html

# ---- evaluate writes the same about weights ----
expect 0 "$convoy" -q evaluate data --weights stopped/checkpoint.safetensors --report page.html --details details.json
expect_text page.html '<h1>resnet18: validation</h1>'
checks=$((checks + 1))
details=$(sed 's/"epoch": -1/"epoch": 1/' details.json)
[ "$details" = "$(cat stopped/validation.json)" ] || fail "evaluate and train tell different details"

# ---- what goes wrong: hundreds of steps, which say nothing new about memory ----
sanitized && finish
expect 0 "$convoy" -q train data --arch resnet18 --image-size 32 --batch-size 4 --epochs 3 --lr 8 --rewinds 0 --precise-bn 0 --workers 2 \
    --workspace high --no-checkpoints
expect_text err 'the learning rate is too high; try a tenth of --lr'
expect_text high/experiment_raport.json '"step": \[[01], [0-9]+\], "data": \{"diagnosis.learning_rate": "the loss has risen'
expect_text high/report.html 'the learning rate is too high'

# A network that says the same of every image: the bias of one class is far above all others, and nothing moves.
expect 0 "$convoy" -q train data --arch resnet18 --image-size 32 --batch-size 10 --epochs 1 --prof 1 --workspace begun
python3 - begun/checkpoint.safetensors biased.safetensors <<'END' || fail "no biased weights"
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
size, = struct.unpack("<Q", data[:8])
at = 8 + size + json.loads(data[8:8 + size])["fc.bias"]["data_offsets"][0]
data[at:at + 4] = struct.pack("<f", 30)
open(sys.argv[2], "wb").write(data)
END
expect 0 "$convoy" -q train data --pretrained-weights biased.safetensors --arch resnet18 --image-size 32 --batch-size 4 --epochs 3 \
    --lr 1e-9 --rewinds 0 --workers 2 --workspace biased --no-checkpoints
expect_text err '100 of the 100 validation images are taken for "'
expect_text biased/report.html 'has collapsed to one class'

# Labels that mean nothing, and a rate at which nothing is learnt by heart either: the loss stays that of guessing.
mkdir -p noise/train
i=0
for file in $(find data/train -name '*.jpg' | sort); do
    mkdir -p noise/train/$((i % 2))
    cp "$file" "noise/train/$((i % 2))/$i.jpg"
    i=$((i + 1))
done
cp -r noise/train noise/val
expect 0 "$convoy" -q train noise --arch resnet18 --image-size 32 --batch-size 2 --epochs 6 --lr 1e-6 --lr-schedule cosine \
    --label-smoothing 0.5 --workers 2 --workspace flat --training-only --no-checkpoints
expect_text err 'is still that of guessing'
expect_text flat/report.html 'is still that of guessing'
finish
