#!/usr/bin/env python3
"""Makes gpu-DATE.json and gpu-DATE.md of what gpu-check.sh left: a line a part in PARTS.tsv, logs and summaries in OUT.

    gpu_check_report.py PARTS.tsv OUT
"""
import datetime
import glob
import json
import os
import re
import sys

parts_file, out = sys.argv[1:]
PEAK_FLOPS = 989e12  # dense bf16 of an H100 or H200


def text_of(name):
    path = os.path.join(out, name + ".log")
    return open(path, errors="replace").read() if os.path.exists(path) else ""


def last_json(text):
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except json.JSONDecodeError:
                pass
    return {}


parts = []
for line in open(parts_file):
    name, status, seconds, command = line.rstrip("\n").split("\t")
    tests = re.search(r"\[  PASSED  \] (\d+) test", text_of(name))
    skipped = re.search(r"\[  SKIPPED \] (\d+) test", text_of(name))
    failed = re.findall(r"\[  FAILED  \] (\S+),? ", text_of(name))
    parts.append(dict(name=name, status=int(status), seconds=int(seconds), command=command,
                      passed=int(tests[1]) if tests else None, skipped=int(skipped[1]) if skipped else None, failed=sorted(set(failed))))

runs = {}
for path in sorted(glob.glob(os.path.join(out, "strata-*.json"))):
    name = os.path.basename(path)[len("strata-"):-len(".json")]
    try:
        s = json.loads(open(path).read())
    except json.JSONDecodeError:
        continue
    if not s.get("tokens_per_s"):
        continue
    run = runs.setdefault(name, {})
    run["strata_tokens_per_s"] = s["tokens_per_s"]
    run["strata_mfu"] = s["tokens_per_s"] * s.get("model_flops_per_token", 0) / PEAK_FLOPS
    device = s.get("memory", {}).get("device", {})
    run["strata_device_bytes"] = device.get("measured_peak_bytes")
    run["strata_planned_bytes"] = device.get("planned_peak_bytes")
for part in parts:
    if part["name"].startswith("torch-"):
        t = last_json(text_of(part["name"]))
        if t.get("tokens_per_s"):
            run = runs.setdefault(part["name"][len("torch-"):], {})
            run.update(torch_tokens_per_s=t["tokens_per_s"], torch_mfu=t.get("mfu"),
                       torch_device_bytes=t.get("peak_device_bytes"))

gpu = re.search(r"NVIDIA ([A-Z][\w ]*?)  ", text_of("nvidia-smi"))
driver = re.search(r"Driver Version: (\S+)", text_of("nvidia-smi"))
date = datetime.date.today().isoformat()
result = dict(date=date, gpu=gpu[1] if gpu else None, driver=driver[1] if driver else None, parts=parts, runs=runs)
json.dump(result, open(os.path.join(out, f"gpu-{date}.json"), "w"), indent=1)


def number(x, form):
    return form.format(x) if x is not None else ""


with open(os.path.join(out, f"gpu-{date}.md"), "w") as md:
    print(f"# On a GPU, {date}\n\n{result['gpu']}, driver {result['driver']}; `gpu-check.sh`.\n", file=md)
    print("| part | result | tests passed | skipped | seconds | command |\n|---|---|---|---|---|---|", file=md)
    for p in parts:
        state = "passed" if p["status"] == 0 else f"ended with {p['status']}"
        print(f"| {p['name']} | {state} | {p['passed'] or ''} | {p['skipped'] or ''} | {p['seconds']} | `{os.path.basename(p['command'])[:90]}` |",
              file=md)
    for p in parts:
        if p["failed"]:
            print(f"\nFailed in {p['name']}: {', '.join(p['failed'])}.", file=md)
    if runs:
        print("\n| run | Strata tokens/s | MFU | PyTorch tokens/s | ratio | Strata device GB (planned) | PyTorch |\n"
              "|---|---|---|---|---|---|---|", file=md)
    for name, r in runs.items():
        ours, theirs = r.get("strata_tokens_per_s"), r.get("torch_tokens_per_s")
        print("| {} | {} | {} | {} | {} | {} ({}) | {} |".format(
            name, number(ours, "{:.0f}"), number(r.get("strata_mfu"), "{:.1%}"), number(theirs, "{:.0f}"),
            number(ours / theirs if ours and theirs else None, "{:.2f}"),
            number(r["strata_device_bytes"] / 1e9 if r.get("strata_device_bytes") else None, "{:.2f}"),
            number(r["strata_planned_bytes"] / 1e9 if r.get("strata_planned_bytes") else None, "{:.2f}"),
            number(r["torch_device_bytes"] / 1e9 if r.get("torch_device_bytes") else None, "{:.2f}")), file=md)
print(open(os.path.join(out, f"gpu-{date}.md")).read())
sys.exit(0 if all(p["status"] == 0 for p in parts) else 1)
