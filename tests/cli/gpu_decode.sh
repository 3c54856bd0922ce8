#!/bin/bash
# --decode gpu and bench data --device cuda, on the emulated GPU with its stand-in for nvJPEG: batches are the
# processor's, a run is the same and continues; what is missing or not for it is said.
. "$(dirname "$0")/support_common.sh"
narrow
tests=${CONVOY_BUILD:?}/tests/emulated_cuda
export CONVOY_CUDA_MODULE=$tests/libconvoy_cuda_emulated.so CONVOY_NVJPEG=$tests/libnvjpeg_emulated.so
export CONVOY_NVJPEG_SMALLEST=1 # the images of this test are small
[ -e "$CONVOY_NVJPEG" ] || fail "there is no stand-in for nvJPEG at $CONVOY_NVJPEG"
"$convoy" -q dataset shapes data --train-per-class 2 --val-per-class 1 --image-size 64 || fail "no data set"
bench() { "$convoy" bench data data --image-size 32 --batch-size 8 --workers 1 --seconds 0.2 --format json "$@"; }

expect 0 "$convoy" info
expect_text out '^cuda .*, nvJPEG 13.0.99, in hardware \(2 engines of 1 core\)$'
CONVOY_NVJPEG=none expect 0 "$convoy" info
expect_text out '^cuda .*, no nvJPEG$'

# ---- bench data ----
expect 0 bench --device cuda --compare 3
expect_text out '"decoder": "nvJPEG 13.0.99, in hardware \(2 engines of 1 core\)"'
expect_text out '"device_share": 1,'
expect_text out '"compared": 24,'
expect_text out '"largest_difference": 0,'
expect 0 bench --device cuda --split val --compare 1 --lanes 3 --host-share 0.5
expect_text out '"device_share": 0.5,'
expect_text out '"largest_difference": 0,'
CONVOY_EMULATED_NVJPEG=software,repeated expect 0 bench --device cuda
expect_text out '"decoder": "nvJPEG 13.0.99, by the GPU, chroma repeated"'
CONVOY_NVJPEG_BACKEND=hybrid CONVOY_NVJPEG_CHROMA=repeated expect 0 bench --device cuda
expect_text out '"decoder": "nvJPEG 13.0.99, by processor and GPU, chroma repeated"'
expect 0 bench --device cpu
! grep -q decoder out || fail "the processor is called a decoder"
expect 0 "$convoy" bench data data --image-size 32 --batch-size 8 --workers 1 --seconds 0.2 --device cuda --compare 1
expect_text out "beside the processor's batches \(8 images\): bytes differ by 0 at most"

CONVOY_NVJPEG=none expect_sentence 69 'CONVOY_NVJPEG=none' bench --device cuda
CONVOY_NVJPEG=$work/none.so expect_sentence 69 'nvJPEG 12 or newer' bench --device cuda
CONVOY_NVJPEG=$CONVOY_CUDA_MODULE expect_sentence 69 'nvJPEG 12 or newer something else' bench --device cuda
CONVOY_EMULATED_NVJPEG=useless expect_sentence 69 'nvJPEG cannot use this GPU' bench --device cuda
CONVOY_NVJPEG_SMALLEST=few expect_sentence 2 'CONVOY_NVJPEG_SMALLEST is a number of pixels, not "few"' bench --device cuda
CONVOY_NVJPEG_SMALLEST=65 expect 0 bench --device cuda --compare 1
expect_text out '"device_share": 0,'
CONVOY_NVJPEG_BACKEND=fast expect_sentence 2 'CONVOY_NVJPEG_BACKEND is not "fast"' bench --device cuda
expect_sentence 69 'device "cuda:7" is not available' bench --device cuda:7
expect_sentence 2 'are for --device cuda' bench --compare 2
expect_sentence 2 'are for --device cuda' bench --device cpu --lanes 2
expect_sentence 2 '--decode fast is for the processor' bench --device cuda --decode fast
expect_sentence 69 'device ref decodes no images' bench --device ref

# ---- training ----
train() { tiny_train data --device cuda --precision fp32 --batch-size 10 --image-size 32 "$@"; }
expect_sentence 2 'decode is exact, fast or gpu, not' train --workspace no --decode quick
expect_sentence 2 'option --decode gpu: .*augmented by the processor' train --workspace no --decode gpu --augmentation autoaugment
expect_sentence 2 "option --decode gpu: .*TensorFlow's transforms" train --workspace no --decode gpu --data-backend tensorflow
expect_sentence 69 'option --decode gpu: device cpu decodes no images' tiny_train data --device cpu --workspace no --decode gpu
CONVOY_NVJPEG=none expect_sentence 69 'option --decode gpu: CONVOY_NVJPEG=none' train --workspace no --decode gpu
expect_sentence 2 '--decode gpu is for --data DIR' "$convoy" bench train --arch resnet18 --decode gpu
expect 0 "$convoy" bench train --arch resnet18 --device cuda --image-size 32 --batch-size 2 --iterations 1 --warmup 1 --data data --decode gpu --precision fp32
sanitized && finish
for decode in exact gpu; do
    expect 0 "$convoy" train data --arch resnet18 --image-size 32 --batch-size 10 --lr 0.02 --workers 2 --device cuda --precision fp32 \
        --epochs 2 --workspace $decode --decode $decode
    data[${#decode}]=$(sed -n 's/^memory .*, data \([0-9.]*\).*/\1/p' err)
done
# Two lanes of two loaders with two pieces of 16 MiB each, at the least.
awk "BEGIN { exit !(${data[3]} - ${data[5]} == 128) }" || fail "the lanes' memory is not in the estimate: ${data[*]}"
expect_same exact/metrics.csv gpu/metrics.csv
expect_text gpu/options.json '"decode": "gpu"'
expect 0 train --epochs 2 --workspace halves --decode gpu --run-epochs 1
CONVOY_EMULATED_LATE=1 expect 0 "$convoy" -q train --resume halves
expect_same gpu/checkpoint.safetensors halves/checkpoint.safetensors
CONVOY_NVJPEG=none expect 69 "$convoy" -q train --resume halves --epochs 3
expect_text err 'option --decode gpu: CONVOY_NVJPEG=none'
finish
