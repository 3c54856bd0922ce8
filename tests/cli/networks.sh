#!/bin/bash
# Networks and their options from the first command to the last: names, squeeze width and padding in files, resuming,
# outputs that no folder has, what info prints.
. "$(dirname "$0")/support_common.sh"
make_shapes data 2 1

# ---- info ----
expect 0 "$convoy" info && expect_text out '^networks .* resnet152 .*resnext101-32x8d .*se-resnext101-32x4d .*ssd320$'
expect_text out '^drawing +(cairo [0-9.]+|missing: nothing can be drawn without cairo: .*)$'
expect_text out '^server +(libmicrohttpd [0-9.]+|missing: (a server takes libmicrohttpd|this build has no server).*)$'
expect_text out '^openmpi +(Open MPI [0-9.]+|missing: this build has no module for Open MPI .*)$'
expect_text out '^mpich +(MPICH [0-9.]+|missing: this build has no module for MPICH .*)$'
expect 0 "$convoy" info --format json
expect_text out '"mpi": \[\{"name": "openmpi", "available": (true, "description"|false, "reason")'
expect_text out '"server": \{"available": (true, "description": "libmicrohttpd|false, "reason": ")'
expect_text out '"drawing": \{"available": (true, "description": "cairo [0-9.]+"|false, "reason": "nothing can be drawn .*")\}'
expect 0 "$convoy" info seresnext101_32x4d --image-size 64 --batch-size 3
expect_text out '^network +se-resnext101-32x4d$'
expect_text out '^squeeze +16$'
expect_text out '^parameters +45251128$'
expect_text out '^memory +inference, batch of 3: about [0-9]+ MiB'
expect_text out '^memory +training, batch of 3: about [0-9]+ MiB'
expect 0 "$convoy" info se-resnet50 --image-size 32 --squeeze-width C/16 --padding same --num-classes 1001 --format json
expect_text out '"parameters": 28090073, .*"padding": "same", "squeeze_width": "c/16"'
expect 0 "$convoy" info resnet18 --image-size 32 --batch-size 1
expect_text out '^memory +training, batch of 1: batch norm .* more than one value'

# ---- options that make no sense ----
expect_sentence 2 'resnet18 has no squeeze-and-excitation' "$convoy" info resnet18 --squeeze-width 16
expect_sentence 2 'resnet18 has no squeeze-and-excitation' tiny_train data --squeeze-width 16 --workspace none
for value in 0 c/0 -16 c/ 16c x 70000 1e3; do
    expect_sentence 2 '--squeeze-width .*such as c/16' "$convoy" info se-resnet50 "--squeeze-width=$value"
    expect_sentence 2 '--squeeze-width .*such as c/16' "$convoy" train data --arch se-resnet50 "--squeeze-width=$value"
done
expect_sentence 2 'leaves nothing of 256 channels' "$convoy" info se-resnet50 --squeeze-width c/257
expect_sentence 2 '--padding.*torch' "$convoy" info resnet18 --padding valid
expect_sentence 2 '--padding.*torch' "$convoy" train data --padding valid
[ ! -e none ] || fail "a refused command made its run directory"

# ---- TensorFlow's padding, more outputs than folders ----
expect 0 tiny_train data --epochs 2 --run-epochs 1 --padding same --num-classes 12 --workspace same
expect 0 "$convoy" info same/model_best.safetensors && expect_text out '^padding +same$' && expect_text out '^classes +12$'
expect 0 "$convoy" -q evaluate data --weights same/model_best.safetensors --format json
cp out evaluation.json
expect_text out '"images": 10'
expect 0 "$convoy" -q classify data/val --weights same/model_best.safetensors --padding same
expect_sentence 65 'made with --padding same, not torch' "$convoy" classify data/val \
    --weights same/model_best.safetensors --padding torch
expect_sentence 65 'made with --padding same, not torch' "$convoy" info same/model_best.safetensors --padding torch
expect_sentence 2 '--padding torch.*made with same' "$convoy" train data --resume same --padding torch
expect 0 "$convoy" -q train data --resume same --padding same
# A bare file does not say it: the option does, and it matters.
if command -v python3 >/dev/null; then
    python3 - same/model_best.safetensors bare.safetensors <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
length, = struct.unpack("<Q", data[:8])
header = json.loads(data[8:8 + length])
del header["__metadata__"]
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data[8 + length:])
END
    logits() { # logits FILE [OPTION...]
        expect 0 "$convoy" -q classify data/val --image-size 32 --logits --format csv --topk 1 --weights "$@"
        cut -d, -f1,2,5- out
    }
    logits same/model_best.safetensors >stored.txt
    logits bare.safetensors --arch resnet18 --padding same >same.txt
    logits bare.safetensors --arch resnet18 >torch.txt
    expect_same stored.txt same.txt
    checks=$((checks + 1))
    cmp -s same.txt torch.txt && fail "--padding makes no difference"
    # Outputs without names: the folders in order are the first ones.
    expect 0 "$convoy" evaluate data --weights bare.safetensors --arch resnet18 --padding same --image-size 32 --format json
    expect_text err 'has 10 classes and the weights.*12'
    strip() { grep -oE '"(top1|top5|loss|images)": [0-9.e+-]+' "$1"; }
    expect 0 "$convoy" -q evaluate data --weights same/model_best.safetensors --format json
    strip out >named.txt
    expect 0 "$convoy" -q evaluate data --weights bare.safetensors --arch resnet18 --padding same --image-size 32 --format json
    strip out >unnamed.txt
    expect_same named.txt unnamed.txt
else
    skip_part "python3 is missing: bare files"
fi
expect 0 "$convoy" -q train --data-backend synthetic --arch resnet18 --image-size 32 --batch-size 4 --epochs 1 --prof 1 \
    --training-only --num-classes 9 --workspace nine
expect_sentence 65 'has 10 classes, but the weights have 9' "$convoy" evaluate data --weights nine/checkpoint.safetensors

# ---- squeeze-and-excitation: the file's shapes decide ----
expect 0 tiny_train data --arch seresnet50 --squeeze-width c/8 --epochs 2 --run-epochs 1 --prof 1 --workspace squeeze
expect 0 "$convoy" info squeeze/checkpoint.safetensors && expect_text out '^squeeze +c/8$'
expect_text out '^network +se-resnet50$'
expect_sentence 2 '--squeeze-width.*shapes' "$convoy" info squeeze/checkpoint.safetensors --squeeze-width c/8
expect 0 "$convoy" -q classify data/val --weights squeeze/checkpoint.safetensors
expect_sentence 2 '--squeeze-width 16.*made with c/8' "$convoy" train data --resume squeeze --squeeze-width 16
expect_sentence 2 '--arch se-resnext101-32x4d.*made with se-resnet50' "$convoy" train data --resume squeeze \
    --arch seresnext101_32x4d
expect 0 "$convoy" -q train data --resume squeeze --squeeze-width C/8
finish
