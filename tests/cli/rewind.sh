#!/bin/bash
# --rewinds: a training that diverges goes back to its last good state and halves its rate, says so, and is the same run
# once more, whatever is saved on the way, and stopped and resumed. Without the option nothing goes back.
. "$(dirname "$0")/support_common.sh"
narrow
rate=64 # such networks survive more
. "$(dirname "$0")/support_rewind.sh"
per_class=6
make_shapes data $per_class 1

# ---- what it does, and says ----
expect 0 train calm
cp err calm.err
expect_text calm.err '^advice +60 images are few .*convoy pull resnet18, then --pretrained-weights resnet18 --reset-head'
count=$(rewinds calm.err)
checks=$((checks + 3))
[ "$count" -ge 2 ] && [ "$count" -le 8 ] || { fail "$count rewinds"; show; }
[ "$(tail -n +2 calm/run/steps.csv | cut -d, -f2 | uniq | wc -l)" = 30 ] || fail "steps.csv does not have each step once"
# The last rate is that of the schedule, $rate * 29 / 30, halved as often.
awk -F, -v n="$count" -v rate=$rate 'END { want = rate * 29 / 30 / 2 ^ n; exit !($4 > want * 0.999999 && $4 < want * 1.000001) }' \
    calm/run/steps.csv || fail "the rate is not halved $count times: $(tail -n 1 calm/run/steps.csv)"
expect_text calm/run/experiment_raport.json '"diagnosis.rewind": "the loss has risen to'

# ---- the same bits: with other checkpoints on the way, and stopped and resumed ----
stop_and_resume stopped 12 --checkpoint-every 5
same_as calm stopped

# ---- resumed with an average that the checkpoint has not ----
again=(--use-ema 0.99)
stops=0
stop_and_resume averaged 12
[ $stops = 0 ] || expect_text err 'no moving average of the weights is in the file'
again=()

# ---- weights that are worse than guessing: nothing has risen that was there with the first step ----
python=$(command -v python3) || skip "python3 is missing"
"$python" - calm/run/model_best.safetensors wrong.safetensors <<'END'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
length, = struct.unpack_from("<Q", data)
begin, end = json.loads(data[8:8 + length])["fc.bias"]["data_offsets"]
# Sure of one class, whatever is on the image.
struct.pack_into(f"<{(end - begin) // 4}f", data, 8 + length + begin, *([60.0] + [0.0] * ((end - begin) // 4 - 1)))
open(sys.argv[2], "wb").write(data)
END
worse=(--pretrained-weights ../wrong.safetensors --lr 0.1 --batch-size 12)
expect 0 train calm "${worse[@]}"
checks=$((checks + 2))
awk -F, 'NR == 2 { exit !($3 > 30) }' calm/run/steps.csv || fail "the weights are no worse than guessing: $(sed -n 2p calm/run/steps.csv)"
[ "$(rewinds err)" = 0 ] || { fail "what was there from the first step on is taken for a divergence"; show; }
stop_and_resume stopped 6 "${worse[@]}"
same_as calm stopped

# ---- off: --rewinds 0, and what published recipes say ----
expect 0 train off --rewinds 0 --epochs 1 --training-only --no-checkpoints
checks=$((checks + 1))
[ "$(rewinds err)" = 0 ] || { fail "--rewinds 0 goes back"; show; }
for recipe in reference resnet50-90e ssd320-1gpu resnet50-tf-dgx1-amp-90e; do
    expect 0 "$convoy" train --print-recipe --recipe $recipe
    expect_text out '^rewinds = 0$'
done
expect 2 "$convoy" train data --rewinds -1
finish
