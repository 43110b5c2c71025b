#!/usr/bin/env bash
# Compares docs/read_checkpoint.py with the program: a checkpoint of one rank and, if mpirun exists, one of two ranks
# read like those that `strata inspect` shows. If the xxhash module is installed, a flipped bit is detected.
#   read_checkpoint.sh STRATA FOLDER     STRATA_PYTHON: a Python with numpy
set -euo pipefail
strata=$1 folder=$2 python=${STRATA_PYTHON:-python3}
docs=$(cd "$(dirname "$0")/../../docs" && pwd)
"$python" -c "import numpy" 2>/dev/null || { echo "Skipped: $python has no numpy (STRATA_PYTHON names another)"; exit 77; }
rm -rf "$folder" && mkdir -p "$folder"
head -c 4096 "$strata" | od -An -v -tu1 -w1 | while read -r byte; do printf "\\x$(printf %02x "$byte")\\x00"; done >"$folder/tokens.bin"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for ranks in 1 2; do
  mpirun -n $ranks --oversubscribe "$strata" train --set model.preset=tiny-gpt2 --set model.config.n_layer=1 \
    --set model.config.vocab_size=256 --set data.train="$folder/tokens.bin" --set data.seq_len=16 \
    --set training.max_steps=2 --set training.global_batch_size=2 --set zero.stage=2 \
    --set checkpoint.dir="$folder/$ranks" --set checkpoint.every=2 2>/dev/null
done
"$strata" inspect --tensors "$folder/1" >"$folder/inspected"
"$python" - "$docs" "$folder" <<'END'
import os, sys

sys.path.insert(0, sys.argv[1])
folder = sys.argv[2]
import numpy
from read_checkpoint import read, whole

manifest, one = read(folder + "/1/step-00000002")
_, two = read(folder + "/2/step-00000002")
assert manifest["step"] == 2 and manifest["next_micro_batch"] == 4 and one.keys() == two.keys()
for name in one:
    assert one[name].tobytes() == two[name].tobytes(), name
seen = 0
for line in open(folder + "/inspected"):
    words = line.split()
    if words[-1] != "ok":
        continue
    array = one[words[1] + "/" + words[0]]
    assert str(list(array.shape)) in line, line
    mean = float(words[-4])  # five digits, of a sum in another order
    assert abs(array.astype(float).mean() - mean) <= 1e-4 * abs(mean) + 1e-12, line
    seen += 1
assert seen == len(one) and seen % 3 == 0 and seen > 10
# A matrix in two boxes, each with the same columns of both halves. One of the boxes is in two parts.
matrix = numpy.arange(4 * 6, dtype=numpy.float32).reshape(4, 6)
halves = matrix.reshape(4, 2, 3)
left, right = halves[:, :, :1].flatten(), halves[:, :, 1:].flatten()
parts = [
    ([0, 0, 1], [4, 2, 2], 6, [4, 2, 3], right[6:]),
    ([0, 0, 0], [4, 2, 1], 0, [4, 2, 3], left),
    ([0, 0, 1], [4, 2, 2], 0, [4, 2, 3], right[:6]),
]
assert (whole(parts, [4, 6]) == matrix).all()
try:
    import xxhash
except ImportError:
    print("no xxhash module: checksums not tried")
    sys.exit()
file = folder + "/2/step-00000002/rank-00001-of-00002.safetensors"
data = bytearray(open(file, "rb").read())
data[-5] ^= 1
open(file, "wb").write(data)
try:
    read(os.path.dirname(file))
except AssertionError as error:
    assert "is damaged" in str(error)
else:
    sys.exit("a flipped bit was not noticed")
END
