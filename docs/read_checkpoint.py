"""Reads a checkpoint of Strata (docs/formats.md, "Checkpoints"): python3 read_checkpoint.py DIR/step-00000100"""
import json, os, struct, sys
import numpy

TYPES = {"F32": numpy.float32, "BF16": numpy.uint16, "F16": numpy.float16, "U8": numpy.uint8}  # BF16 and 8-bit blocks as they lie there


def read(folder):
    """The manifest, and {"master/transformer.wte.weight": array, ...}; checksums need the xxhash module, where it is."""
    manifest = json.load(open(os.path.join(folder, "manifest.json")))
    shapes, pieces = {t["name"]: t["shape"] for t in manifest["model"]["tensors"]}, {}
    for file in manifest["files"]:
        data = open(os.path.join(folder, file["name"]), "rb").read()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        places = header.pop("__metadata__")
        for name, entry in header.items():
            shape, begin, end, sums = places[name].split(" ")
            first, last = (8 + length + x for x in entry["data_offsets"])
            check(name, data[first:last], sums)
            pieces.setdefault(name, []).append((int(begin), numpy.frombuffer(data[first:last], TYPES[entry["dtype"]])))
    whole = {name: numpy.concatenate([a for _, a in sorted(p, key=lambda x: x[0])]) for name, p in pieces.items()}
    return manifest, {n: a if a.dtype == numpy.uint8 else a.reshape(shapes[n.split("/", 1)[1]]) for n, a in whole.items()}


def check(name, data, sums):
    try:
        import xxhash
    except ImportError:
        return
    for i in range(0, len(data), 1 << 20):
        assert xxhash.xxh3_64_hexdigest(data[i : i + (1 << 20)]) == sums[i >> 16 : (i >> 16) + 16], f"{name} is damaged"


if __name__ == "__main__":
    manifest, state = read(sys.argv[1])
    print("step", manifest["step"], *(f"\n{n} {a.dtype} {list(a.shape)} {a.astype(float).mean():.6g}" for n, a in state.items()))
