#!/usr/bin/env python3
"""Makes gpu-DATE.json and gpu-DATE.md in OUT from the results of gpu-check.sh so far: PARTS.tsv has a line per part,
and LOGS has logs and figures. Exits with 0 if every part passed, otherwise with 1.

    gpu_check_report.py PARTS.tsv LOGS OUT
"""
import datetime
import glob
import json
import os
import re
import sys

parts_file, logs, out = sys.argv[1:]
PEAK_FLOPS = 989e12  # dense bf16 of an H100 or H200
COPY_SHARE = 0.85  # the share of a copy's speed that a memory-bound kernel should reach


def text_of(name):
    path = os.path.join(logs, name + ".log")
    return open(path, errors="replace").read() if os.path.exists(path) else ""


def json_of(path):
    try:
        return json.load(open(path))
    except (OSError, json.JSONDecodeError):  # a run that ended early
        return {}


def last_json(text):
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except json.JSONDecodeError:
                pass
    return {}


def number(x, form, scale=None):
    return form.format(x / scale if scale else x) if x is not None else ""


def ratio(a, b):
    return a / b if a and b else None


def first(pattern, text):
    found = re.search(pattern, text)
    return found[1].strip() if found else None


def read_parts():
    parts = []
    for line in open(parts_file):
        name, status, seconds, command = line.rstrip("\n").split("\t")
        text = text_of(name)
        passed, skipped = first(r"\[  PASSED  \] (\d+) test", text), first(r"\[  SKIPPED \] (\d+) test", text)
        failed = sorted(set(re.findall(r"\[  FAILED  \] (\S+?),? ", text)))
        if status == "0" and passed == "0" and not failed:
            status = "no test ran"
        parts.append(dict(name=name, status=int(status) if status.isdigit() else status, seconds=int(seconds), command=command,
                          passed=int(passed) if passed else None, skipped=int(skipped) if skipped else None, failed=failed))
    return parts


def strata_run(name, summary):
    tokens, memory = summary.get("tokens_per_s"), summary.get("memory", {}).get("device", {})
    text = text_of("strata-" + name)
    run = dict(strata_tokens_per_s=tokens, strata_planned_bytes=memory.get("planned_peak_bytes"),
               strata_counted_bytes=memory.get("measured_peak_bytes"), graph_steps=summary.get("graph_steps"),
               attention=first(r"strata: attention by (.*)", text), not_a_graph=first(r"not as a graph: (.*)", text))
    if tokens:
        run["strata_mfu"] = tokens * summary.get("model_flops_per_token", 0) / PEAK_FLOPS
    # The driver's count includes what the run used and what CUDA used before (its context, code and other data).
    gpu = summary.get("gpu_memory")
    if gpu:
        run["driver_taken_bytes"] = gpu["free_before_bytes"] - gpu["free_at_end_bytes"]
        run["driver_before_bytes"] = gpu["total_bytes"] - gpu["free_before_bytes"]
    return run


def read_runs():
    runs = {}
    for path in sorted(glob.glob(os.path.join(logs, "strata-*.json"))):
        name = os.path.basename(path)[len("strata-"):-len(".json")]
        runs[name] = strata_run(name, json_of(path))
    for path in sorted(glob.glob(os.path.join(logs, "torch-*.log"))):
        name = os.path.basename(path)[len("torch-"):-len(".log")]
        figures = last_json(text_of("torch-" + name))
        if figures.get("tokens_per_s"):
            runs.setdefault(name, {}).update(torch_tokens_per_s=figures["tokens_per_s"], torch_mfu=figures.get("mfu"),
                                             torch_device_bytes=figures.get("peak_device_bytes"))
    return runs


def state(part):
    status = part["status"]
    return "passed" if status == 0 else f"ended with {status}" if isinstance(status, int) else status


def table(head, rows):
    return "\n".join(["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]]) + "\n"


def part_table(parts):
    rows = [[p["name"], state(p), number(p["passed"], "{}"), number(p["skipped"], "{}"), str(p["seconds"]),
             f"`{p['command'][:300]}`" if p["command"] else ""] for p in parts]
    text = table(["part", "result", "tests passed", "skipped", "seconds", "command"], rows)
    for p in parts:
        if p["failed"] and p["status"] != 0:  # a planted error is a test that must fail
            text += f"\nFailed in {p['name']}: {', '.join(p['failed'])}.\n"
    return text


def run_tables(runs):
    speed, memory, notes = [], [], ""
    for name, r in runs.items():
        get = r.get
        speed.append([name, number(get("strata_tokens_per_s"), "{:.0f}"), number(get("strata_mfu"), "{:.1%}"),
                      number(get("torch_tokens_per_s"), "{:.0f}"), number(get("torch_mfu"), "{:.1%}"),
                      number(ratio(get("strata_tokens_per_s"), get("torch_tokens_per_s")), "{:.2f}"), number(get("graph_steps"), "{}")])
        taken, planned = get("driver_taken_bytes"), get("strata_planned_bytes")
        memory.append([name, number(planned, "{:.3f}", 1e9), number(get("strata_counted_bytes"), "{:.3f}", 1e9),
                       number(taken, "{:.3f}", 1e9), number(ratio(taken, planned), "{:.4f}"),
                       number(get("driver_before_bytes"), "{:.3f}", 1e9), number(get("torch_device_bytes"), "{:.3f}", 1e9)])
        if get("attention"):
            notes += f"\n{name}: attention by {r['attention']}."
        if get("not_a_graph"):
            notes += f"\n{name}: steps were no graph: {r['not_a_graph']}."
    return ("\n" + table(["run", "Strata tokens/s", "MFU", "PyTorch tokens/s", "MFU", "ratio", "steps as a graph"], speed) +
            "\nDevice memory, GB: planned, counted by the run, and taken according to the driver in addition to what CUDA took before.\n\n" +
            table(["run", "planned", "counted", "taken", "taken / planned", "before", "PyTorch"], memory) + notes + "\n")


def kernel_table(figures):
    rows = [[k["kernel"], f"{k['ms']:.3f}", f"{k['gb_per_s']:.0f}",
             f"{k['of_copy']:.2f}" + ("" if k["of_copy"] >= COPY_SHARE else " (below)")] for k in figures["kernels"]]
    return f"\nOn {figures['device']}; a copy's speed counts bytes read and written; the target is {COPY_SHARE}.\n\n" + table(
        ["kernel", "ms", "GB/s", "of a copy's"], rows)


def write(name, text):
    path = os.path.join(out, name)
    with open(path + ".new", "w") as file:
        file.write(text)
    os.replace(path + ".new", path)


parts, runs, kernels = read_parts(), read_runs(), json_of(os.path.join(logs, "kernels.json"))
machine = (text_of("gpu").splitlines() or [""])[0].split(", ")
gpu, driver = (machine[0], machine[1]) if len(machine) == 3 else (None, None)
date = datetime.date.today().isoformat()
write(f"gpu-{date}.json", json.dumps(dict(date=date, gpu=gpu, driver=driver, parts=parts, runs=runs, kernels=kernels), indent=1))
text = f"# On a GPU, {date}\n\n{gpu or 'No GPU that nvidia-smi names'}, driver {driver}; `gpu-check.sh`.\n\n" + part_table(parts)
if runs:
    text += run_tables(runs)
if kernels.get("kernels"):
    text += kernel_table(kernels)
write(f"gpu-{date}.md", text)
sys.exit(0 if all(p["status"] == 0 for p in parts) else 1)
