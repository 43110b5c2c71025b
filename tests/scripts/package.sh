#!/usr/bin/env bash
# Tests the Debian package: cpack makes it, apt installs it in a bare root of this release, and the demo's commands run
# there without the source tree. Needs root and the network, and takes a minute.
#   tests/scripts/package.sh BUILD FOLDER
set -euo pipefail
build=$(realpath "$1")
. "$(dirname "$0")/debian_root.sh"
make_root "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$2"

rm -rf "$root/package"
mkdir "$root/package"
(cd "$build" && cpack -G DEB -B "$root/package") >>"$root.log" 2>&1 || { tail "$root.log" && exit 1; }
package=$(basename "$(ls "$root"/package/strata_*_amd64.deb)")
in_root apt-get install -y --no-install-recommends "/package/$package" bible-kjv bible-kjv-text

cat >"$root/demo.sh" <<'END'
set -euxo pipefail
mkdir /root/run
cd /root/run
examples=/usr/share/strata/examples
bible -f gen1:1-rev22:21 >bible.txt
strata tokenize --tokenizer byte -o bible.bin bible.txt
strata plan $examples/bible.toml --set data.train=bible.bin --set zero.stage=3 --ranks 2
few=(--set data.train=bible.bin --set training.max_steps=3 --set scheduler.warmup_steps=0)
mpirun -n 2 --oversubscribe --bind-to none strata train $examples/bible.toml "${few[@]}" --set zero.stage=3 \
  --set report.dir=zero3
strata train $examples/bible.toml "${few[@]}" --set report.dir=rank1
strata report zero3 -o zero3.html
strata doctor .
hash() { grep -o '"weights_hash":"[^"]*"' $1/summary.json; }
[ -n "$(hash zero3)" ] && [ "$(hash zero3)" = "$(hash rank1)" ]
for file in docs/guide.md docs/recipe.md docs/formats.md README.md; do test -s /usr/share/doc/strata/$file; done
test -s $examples/machines/h100-x8.toml
test -s /usr/share/strata/slurm/train.sbatch
test -s /usr/share/strata/kubernetes/mpijob.yaml
END
in_root bash /demo.sh
echo "$package: $(stat -c %s "$root/package/$package") bytes, $(chroot "$root" dpkg-query -W -f='${Depends}' strata)"
