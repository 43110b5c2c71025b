"""Reads a checkpoint of Strata (docs/formats.md, "Checkpoints"): python3 read_checkpoint.py DIR/step-00000100"""
import json, os, struct, sys
import numpy

TYPES = {"F32": numpy.float32, "BF16": numpy.uint16, "F16": numpy.float16, "U8": numpy.uint8}  # BF16 and 8-bit blocks as they lie there


def read(folder):
    """The manifest, and {"master/transformer.wte.weight": array, ...}. Verifies checksums if xxhash is installed."""
    manifest = json.load(open(os.path.join(folder, "manifest.json")))
    shapes, pieces = {t["name"]: t["shape"] for t in manifest["model"]["tensors"]}, {}
    for file in manifest["files"]:
        data = open(os.path.join(folder, file["name"]), "rb").read()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        places = header.pop("__metadata__")
        for name, entry in header.items():
            shape, *box, begin, end, sums = places[name].split(" ")
            offset, size = [sizes(x) for x in box] or ([0] * len(sizes(shape)), sizes(shape))
            first, last = (8 + length + x for x in entry["data_offsets"])
            check(name, data[first:last], sums)
            part = (offset, size, int(begin), sizes(shape), numpy.frombuffer(data[first:last], TYPES[entry["dtype"]]))
            pieces.setdefault(name[: name.rindex("[")] if box else name, []).append(part)
    return manifest, {name: whole(parts, shapes[name.split("/", 1)[1]]) for name, parts in pieces.items()}


def sizes(text):
    return [int(x) for x in text.split(",")]


def whole(parts, shape):
    """Assembles a tensor from its parts, which are ranges of boxes. 8-bit blocks keep their order, box after box."""
    parts.sort(key=lambda part: part[:3])
    if parts[0][-1].dtype == numpy.uint8:
        return numpy.concatenate([part[-1] for part in parts])
    out = numpy.empty(parts[0][3], parts[0][-1].dtype)
    for offset, size in sorted({(tuple(p[0]), tuple(p[1])) for p in parts}):
        data = numpy.concatenate([p[-1] for p in parts if (tuple(p[0]), tuple(p[1])) == (offset, size)])
        out[tuple(slice(o, o + s) for o, s in zip(offset, size))] = data.reshape(size)
    return out.reshape(shape)


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
