#!/bin/bash
# Results depend on the number of threads asked for, never on how many OpenMP gives: one that gives too few is refused or
# followed, and with OMP_DYNAMIC, which gives a busy machine's programs fewer, a run has the bits of any other.
. "$(dirname "$0")/support_common.sh"
unset OMP_NUM_THREADS
make_shapes data 2 1
train() { # FOLDER OPTION...: in folders of their own, so that all runs know the same paths
    (mkdir "$1" && cd "$1" && timeout -k 5 60 "$convoy" -q train ../data --arch resnet18 --image-size 32 --batch-size 10 \
        --run-steps 2 --lr 0.05 --workspace run "${@:2}")
}

# What OpenMP cannot give.
for limit in OMP_THREAD_LIMIT=1 OMP_MAX_ACTIVE_LEVELS=0; do
    expect_sentence 2 '2 threads are asked for, and OpenMP gives 1 \(OMP_THREAD_LIMIT' env $limit "$convoy" train data --threads 2
    expect 0 env OMP_NUM_THREADS=2 $limit "$convoy" info
    expect_text out ', 1 thread$'
done

# More threads than there are cores: with OMP_DYNAMIC OpenMP gives fewer.
threads=$(($(nproc) + 1))
isas=avx2
without_bf16 || isas="avx2 avx512 all"
for isa in $isas; do
    if [ $isa = all ]; then unset CONVOY_CPU_ISA; else export CONVOY_CPU_ISA=$isa; fi
    for precision in fp32 bf16; do
        [ $isa-$precision = avx2-bf16 ] && continue
        rm -rf usual fewer
        expect 0 train usual --threads $threads --precision $precision
        OMP_DYNAMIC=true expect 0 train fewer --threads $threads --precision $precision
        expect_same usual/run/checkpoint.safetensors fewer/run/checkpoint.safetensors
    done
done
finish
