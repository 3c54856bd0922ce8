#!/bin/bash
# The layout of a plan's images: where two are plausible, both are timed once, the answer is kept, and a checkpoint
# carries it against whatever the kept file says.
. "$(dirname "$0")/support_common.sh"
export CONVOY_KERNELS=once CONVOY_CACHE_DIR=$work/cache
plan=(info resnet18 --plan --image-size 64)

# What is no question, and why.
expect 0 "$convoy" "${plan[@]}" --mode train --batch-size 8 --runs 0
expect_text out '^plan images  blocked: gradients of weights in fp32'
for layout in blocked nhwc; do
    expect 0 env CONVOY_CPU_LAYOUT=$layout "$convoy" "${plan[@]}" --mode train --batch-size 8 --runs 0
    expect_text out "^plan images  $layout: CONVOY_CPU_LAYOUT\$"
done
expect 0 "$convoy" "${plan[@]}" --device ref --runs 0
checks=$((checks + 1))
grep -q '^plan images' out && fail "ref has no layouts to choose from"
if without_bf16; then
    skip_part_unavoidable "a CPU without AVX-512"
    finish
fi
expect 0 "$convoy" "${plan[@]}" --precision bf16 --runs 0
if grep -q amx_bf16 out; then # with tiles there is no question, without them there is
    export CONVOY_CPU_ISA=avx512_bf16
    expect 0 "$convoy" "${plan[@]}" --precision bf16 --runs 0
fi
if ! grep -qE 'on cpu .*avx512_bf16' out || grep -q amx_bf16 out; then
    skip_part_unavoidable "this processor has no question: $(grep '^plan images' out)"
    finish
fi

bf16() { # MODE BATCH: what is known of the plan, as JSON; nothing is timed
    "$convoy" "${plan[@]}" --precision bf16 --mode "$1" --batch-size "$2" --runs 0 --format json >json || fail "no plan"
    python3 -c 'import json; p = json.load(open("json")); print(p["images"], "|", p["images_reason"], "|",
        " ".join(sorted({t["layout"] for t in p["tensors"] if t["dtype"] == "bf16" and len(t["shape"]) == 4
                         and t["shape"][2] > 1 and t["shape"][1] % 16 == 0})))'
}

small=$(bf16 infer 1)
checks=$((checks + 1))
[[ $small == 'blocked | not timed | '* ]] || fail "a small plan: $small"
[ -e cache ] && fail "a dry run keeps something"
# A plan that runs is timed, before it runs, in both layouts.
expect 0 "$convoy" bench infer --arch resnet18 --image-size 64 --batch-size 8 --iterations 1 --precision bf16
expect_text err 'timed the layouts of images, once: blocked [0-9.e+-]+ ms, nhwc [0-9.e+-]+ ms'
kept=$(ls cache/kernels-*.txt)
expect_text $kept '^images [0-9a-f]{16} nodes[0-9]+ b8 infer t1	(blocked|nhwc)	blocked=[1-9][0-9]*	nhwc=[1-9][0-9]*$'
checks=$((checks + 1))
[[ $(bf16 infer 8) =~ ^(blocked|nhwc)' | timed '[0-9.e+-]+' ms; '(blocked|nhwc)' ' ]] || fail "$(bf16 infer 8)"
[[ $(bf16 infer 16) == 'blocked | not timed | '* ]] || fail "another batch: $(bf16 infer 16)"
cp $kept before
expect 0 "$convoy" bench infer --arch resnet18 --image-size 64 --batch-size 8 --iterations 1 --precision bf16
expect_same before $kept
# In the order of preference nothing is timed or looked up.
checks=$((checks + 1))
CONVOY_KERNELS=first bf16 infer 8 >first
[[ $(cat first) == 'blocked | not timed | '* ]] || fail "CONVOY_KERNELS=first: $(cat first)"

# A training, the file telling it one layout and then the other: the checkpoint has it, and a resumed run follows it.
sanitized && finish
make_shapes data 1 1
train() { # FOLDER OPTION...
    mkdir -p "$1" && (cd "$1" && shift && "$convoy" train ../data --arch resnet18 --image-size 64 --batch-size 10 --epochs 2 \
        --lr 0.05 --precision bf16 --workers 2 --workspace run "$@")
}
turn() { # LAYOUT: what the file says of all plans
    awk -F'\t' -v OFS='\t' -v to=$1 '/^images/ { $2 = to } { print }' answers >$kept
}
expect 0 train timed --epochs 1
expect_text err 'timed the layouts of images'
expect_text $kept '^conv2d_bwd_weights .* train nhwc t1	' # in each layout the kernels have times of their own
cp $kept answers
turn blocked
expect 0 train blocked
turn nhwc
expect 0 train nhwc
expect 0 train again --run-epochs 1
checks=$((checks + 1))
python3 - again/run/checkpoint.safetensors <<'END' || fail "the checkpoint does not say nhwc"
import json, struct, sys
file = open(sys.argv[1], "rb")
plan = json.loads(json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))["__metadata__"]["convoy.plan"])
images = [row for key, row in plan["kernels"].items() if key.startswith("images ")]
assert images and set(images) == {"nhwc"}, images
END
checks=$((checks + 1))
cmp -s blocked/run/checkpoint.safetensors nhwc/run/checkpoint.safetensors && fail "the layouts make no difference"
turn blocked
cp -r again once
expect 0 train again --resume run
expect_same nhwc/run/checkpoint.safetensors again/run/checkpoint.safetensors
rm -rf cache
mv again followed && mv once again # paths are in the checkpoint
CONVOY_KERNELS=first expect 0 train again --resume run
expect_same nhwc/run/checkpoint.safetensors again/run/checkpoint.safetensors
# One that was forced is forced again, and none is forced upon a run that chose.
export CONVOY_KERNELS=first
CONVOY_CPU_LAYOUT=blocked expect 0 train forced --run-epochs 1
expect_sentence 2 'CONVOY_CPU_LAYOUT=blocked' train forced --resume run
CONVOY_CPU_LAYOUT=nhwc expect_sentence 2 'CONVOY_CPU_LAYOUT=blocked' train forced --resume run
CONVOY_CPU_LAYOUT=blocked expect 0 train forced --resume run
rm -rf followed/run && expect 0 train followed --run-epochs 1
CONVOY_CPU_LAYOUT=blocked expect_sentence 2 'CONVOY_CPU_LAYOUT=blocked' train followed --resume run
finish
