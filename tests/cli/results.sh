#!/bin/bash
# What the verbs print: formats, streams, and that evaluate and classify agree.
. "$(dirname "$0")/support_common.sh"
narrow
make_shapes data 4 3
expect 0 tiny_train data --epochs 2 --workspace run
expect_text out '^convoy classify .*\.jpg --weights run/model_best.safetensors$'
command=$(tail -n 1 out)
expect 0 bash -c "${command/convoy/\"$convoy\"}"
for file in checkpoint.safetensors model_best.safetensors experiment_raport.json metrics.csv validation.json plot.svg report.html; do
    checks=$((checks + 1))
    [ -s run/$file ] || fail "the run directory has no $file"
done
expect_text run/metrics.csv '^epoch,train.loss,val.loss,val.top1,val.top5'
checks=$((checks + 1))
[ "$(wc -l <run/metrics.csv)" = 3 ] || fail "metrics.csv does not hold one row for each epoch"
grep -vqE '^DLLL \{.*\}$' run/experiment_raport.json && fail "experiment_raport.json is not made of DLLL lines"

weights=run/model_best.safetensors
# ---- evaluate and classify give the same accuracy, to the last image ----
expect 0 "$convoy" -q evaluate data --weights $weights --format json
top1=$(grep -oE '"top1": [0-9.e+-]+' out | cut -d' ' -f2)
expect_text out '"images": 30'
expect 0 "$convoy" -q classify data/val --weights $weights --format csv --topk 1
counted=$(awk -F, 'NR > 1 { split($1, part, "/"); n++; ok += part[3] == $4 } END { printf "%.10g", 100 * ok / n }' out)
checks=$((checks + 1))
[ "$counted" = "$top1" ] || fail "classify finds $counted %, evaluate $top1 %"
expect_text out '^file,rank,index,class,probability$'
checks=$((checks + 1))
[ "$(wc -l <out)" = 31 ] || fail "CSV with --topk 1 does not hold one line for each image"
tail -n +2 out | LC_ALL=C sort -c -t, -k1,1 || fail "the files are not in bytewise order"
# The images computed together do not change the answer.
cp out one.csv
expect 0 "$convoy" -q classify data/val --weights $weights --format csv --topk 1 --batch-size 7
cut -d, -f1-4 out >seven.txt
cut -d, -f1-4 one.csv >one.txt
expect_same one.txt seven.txt

# ---- a run's folder stands for its best weights; an image on standard input ----
one=$(find data/val -name '*.jpg' | sort | head -n 1)
expect 0 "$convoy" -q classify "$one" --weights $weights
tail -n +2 out >by_file
expect 0 "$convoy" -q classify - --weights run <"$one"
expect_text out '^standard input'
tail -n +2 out >by_input
expect_same by_file by_input
mkdir -p last nothing && cp run/checkpoint.safetensors last
expect 0 "$convoy" -q evaluate data --weights last
expect_sentence 66 'a folder without model_best.safetensors and checkpoint.safetensors' "$convoy" classify "$one" --weights nothing
expect_sentence 65 'standard input' "$convoy" classify - --weights run </dev/null
expect_sentence 2 'stands alone' "$convoy" classify - data --weights run </dev/null
expect_sentence 66 'an address on a network' "$convoy" classify "$one" --weights https://example.org/weights.pth
expect_sentence 66 'an address on a network' "$convoy" classify https://example.org/cat.jpg --weights run
expect 0 "$convoy" version
expect_text out '^convoy [0-9]'

# ---- JSON ----
if command -v python3 >/dev/null; then
    json() { # json CODE-IN-PYTHON COMMAND...: `x` is the parsed output
        local code=$1
        shift
        expect 0 "$@" || return
        python3 -c "import json, sys; x = json.load(open('out')); assert $code" 2>>err || { fail "$code: $*"; show; }
    }
    one=$(find data/val -name '*.jpg' | sort | head -n 1)
    odd=$'odd "name"\n.jpg'
    cp "$one" "$odd"
    json "len(x) == 1 and set(x[0]) == {'file', 'predictions'} and len(x[0]['predictions']) == 5" \
        "$convoy" -q classify "$one" --weights $weights --format json
    json "len(x[0]['logits']) == 10 and len(x[0]['predictions']) == 10 and abs(sum(p['probability'] for p in x[0]['predictions']) - 1) < 1e-5" \
        "$convoy" -q classify "$one" --weights $weights --format json --logits --topk 99
    json "x[0]['file'] == 'odd \"name\"\\n.jpg'" "$convoy" -q classify "$odd" --weights $weights --format json
    json "set(x) >= {'top1', 'top5', 'loss', 'images', 'skipped'}" "$convoy" -q evaluate data --weights $weights --format json
    json "0 < x['latency_ms']['p50'] <= x['latency_ms']['p90'] <= x['latency_ms']['p95'] <= x['latency_ms']['p99'] and x['latency_ms']['average'] * x['images'] / x['batch_size'] < 1000 * x['images'] / x['images_per_second'] + x['latency_ms']['p99']" \
        "$convoy" -q evaluate data --weights $weights --batch-size 8 --format json
    json "x['arch'] == 'resnet50' and x['parameters'] == 25557032 and abs(x['gmac'] - 4.09) < 0.01" \
        wide "$convoy" info resnet50 --format json
    json "x['arch'] == 'resnet18'" "$convoy" info $weights --format json
    json "isinstance(x, dict)" "$convoy" info --format json
    json "x['train_images'] == 40 and x['val_images'] == 30 and len(x['classes']) == 10 and x['problems'] == []" \
        "$convoy" check data --format json
    json "[r['batch_size'] for r in x] == [1, 2] and all(r['images_per_second'] > 0 and set(r['latency_ms']) == {'average', 'p50', 'p90', 'p95', 'p99'} for r in x)" \
        "$convoy" bench infer --arch resnet18 --image-size 32 --batch-size 1,2 --warmup 1 --iterations 3 --format json
    json "x[0]['arch'] == 'resnet18' and x[0]['images_per_second'] > 0 and x[0]['peak_memory_mib'] > 0" \
        "$convoy" bench train --arch resnet18 --image-size 32 --batch-size 4 --warmup 1 --iterations 2 --format json
    json "(x[0]['data_time'] >= 0 and abs(x[0]['compute_images_per_second'] * x[0]['compute_time'] - 4) < 1e-3 and
          abs((x[0]['data_time'] + x[0]['compute_time']) * x[0]['images_per_second'] - 4) < 1e-3 and
          abs((x[0]['data_time'] + x[0]['compute_time']) * 1e3 / x[0]['latency_ms']['average'] - 1) < 1e-3)" \
        "$convoy" bench train --arch resnet18 --image-size 32 --batch-size 4 --data data --iterations 3 --format json
    json "x['images_per_second'] > 0 and x['threads'] == 1" \
        "$convoy" bench data data --image-size 32 --workers 1 --seconds 0.3 --format json
else
    skip_part "no python3 here to read JSON"
fi

# ---- the same options write the same data set; another seed another one; train and val differ ----
make_shapes again 4 3
checks=$((checks + 1))
diff -r data again >/dev/null || fail "dataset shapes is not reproducible"
"$convoy" -q dataset shapes other --train-per-class 1 --val-per-class 1 --image-size 40 --seed 1
one=$(cd other && find train -name '*.jpg' | sort | head -n 1)
cmp -s "other/$one" "data/$one" && fail "another seed gives the same image"

# ---- results on stdout, the rest on stderr; --quiet leaves stderr empty ----
expect 0 tiny_train data --epochs 1 --workspace quiet
checks=$((checks + 1))
[ ! -s err ] || { fail "--quiet printed on stderr"; show; }
expect 0 "$convoy" train --print-recipe --recipe reference
expect_text out 'lr-schedule'
finish
