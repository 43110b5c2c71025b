#!/usr/bin/env python3
"""ZeRO-3 over nodes compared with PyTorch's FSDP2 on the same nodes, alternating; prints a Markdown table of tokens/s and of
the bytes that enter all nodes per step.

    bench/against_fsdp.py --hosts n1:2,n2:2 --interface eth0 --torch-train TORCH_TRAIN.py --python PYTHON_WITH_TORCH

Run it on the first host. mpirun reaches the other hosts by ssh, and paths are the same on all of them. Both sides train
gpt2-124m in bf16 (--precision) on --micro-batches (8) of 1 x 1,024 tokens per rank, and reduce gradients after every micro-batch.
TORCH_TRAIN.py is the peer: with --fsdp it shards over all ranks; HSDP gives it a mesh of nodes x ranks instead. Needs
build/strata.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile

ap = argparse.ArgumentParser()
ap.add_argument("--hosts", required=True, help="host:ranks,...")
ap.add_argument("--interface", default="eth0")
ap.add_argument("--torch-train")
ap.add_argument("--python", default=sys.executable)
ap.add_argument("--rounds", type=int, default=1)
ap.add_argument("--steps", type=int, default=3)
ap.add_argument("--precision", default="bf16", choices=["bf16", "fp32"])
ap.add_argument("--micro-batches", type=int, default=8)
ap.add_argument("--only", nargs="*")
a = ap.parse_args()
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
strata = os.path.join(root, os.environ.get("STRATA_BUILD", "build"), "strata")
hosts = [word.split(":") for word in a.hosts.split(",")]
per_node, nodes = int(hosts[0][1]), len(hosts)
ranks = per_node * nodes
env = dict(os.environ, CUDA_VISIBLE_DEVICES="", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
scratch = tempfile.mkdtemp()
with open(os.path.join(scratch, "tokens.bin"), "wb") as f:  # any tokens: speed does not depend on them
    f.write(b"".join((i * 2654435761 % 50257 % 65536).to_bytes(2, "little") for i in range(300000)))
with open(os.path.join(scratch, "peer.py"), "w") as f:  # sets torchrun's variables from mpirun's, and HSDP's mesh
    f.write(f"""import os, sys
for name, value in (("RANK", "RANK"), ("WORLD_SIZE", "SIZE"), ("LOCAL_RANK", "LOCAL_RANK")):
    os.environ[name] = os.environ["OMPI_COMM_WORLD_" + value]
os.environ.setdefault("GLOO_SOCKET_IFNAME", "{a.interface}")
import torch.distributed.device_mesh as meshes
if os.environ.get("HSDP"):
    flat = meshes.init_device_mesh
    meshes.init_device_mesh = lambda device, shape: flat(device, ({nodes}, {per_node}),
                                                         mesh_dim_names=("replicate", "shard"))
import runpy, torch.utils.checkpoint
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
""")


def mpirun(words, per, variables=()):
    cmd = ["mpirun", "--bind-to", "none", "--host", ",".join(f"{host}:{per}" for host, _ in hosts), "-n",
           str(per * nodes)]
    for name in variables:
        cmd += ["-x", name]
    return subprocess.run(cmd + words, env=env, check=True, capture_output=True, text=True).stdout


def received():
    """The bytes that have entered all nodes so far."""
    out = mpirun(["cat", "/proc/net/dev"], 1)
    return sum(int(line.split()[1]) for line in out.splitlines() if line.strip().startswith(a.interface + ":"))


def ours(keys):
    out = os.path.join(scratch, "summary.json")
    words = [strata, "train"]
    for s in ["model.preset=gpt2-124m", "model.config.vocab_size=50304", f"data.train={scratch}/tokens.bin",
              "data.seq_len=1024", f"training.precision={a.precision}", f"training.gradient_accumulation_steps={a.micro_batches}",
              f"training.max_steps={a.steps}", "device.threads=1", "zero.stage=3", f"report.summary={out}"] + keys:
        words += ["--set", s]
    mpirun(words, per_node)
    r = json.load(open(out))
    for stage in r["stages"]:
        assert stage["planned_peak_bytes"] == stage["measured_peak_bytes"], r["stages"]
    return r["tokens_per_s"], r["weights_hash"]


def theirs(mesh):
    env.update(MASTER_ADDR=hosts[0][0], MASTER_PORT="29511", OMP_NUM_THREADS="1", HSDP=mesh)
    out = mpirun([a.python, os.path.join(scratch, "peer.py"), a.torch_train, "--model", "gpt2-124m", "--batch", "1",
                  "--seq", "1024", "--accum", str(a.micro_batches), "--dtype", a.precision, "--steps", str(a.steps), "--warmup", "1",
                  "--fsdp"], per_node, ["MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "HSDP"])
    return json.loads([line for line in out.splitlines() if line.startswith("{")][-1])["tokens_per_s"], ""


groups = [f"zero.{state}_group=node" for state in ("parameters", "gradients", "optimizer")]
cases = [("strata, flat", lambda: ours([])), ("strata, vertical order", lambda: ours(["memory.order=vertical"]))]
if per_node > 1:
    cases += [("strata, parameters in the node", lambda: ours(groups[:1])),
              ("strata, all in the node", lambda: ours(groups)),
              ("strata, parameters in the node, reduce_group of a node",
               lambda: ours(groups[:1] + [f"training.reduce_group={per_node}"]))]
if a.torch_train:
    cases.append(("FSDP2, flat", lambda: theirs("")))
    if per_node > 1 and nodes > 1:
        cases.append(("FSDP2, HSDP", lambda: theirs("1")))
cases = [case for case in cases if not a.only or any(word in case[0] for word in a.only)]
speed, entered, hashes = {}, {}, {}
for _ in range(a.rounds):
    for name, measure in cases:
        before = received()
        tokens, weights = measure()
        speed.setdefault(name, []).append(tokens)
        entered.setdefault(name, []).append((received() - before) / a.steps)
        hashes[name] = weights
peer = statistics.median(speed["FSDP2, flat"]) if "FSDP2, flat" in speed else None
print(f"| {nodes} x {per_node} | tokens/s | of FSDP2 | MB between nodes per step | weights |\n|---|---|---|---|---|")
for name, _ in cases:
    tokens = statistics.median(speed[name])
    print(f"| {name} | {tokens:.0f} | {'' if not peer else f'{tokens / peer:.2f}'} | "
          f"{statistics.median(entered[name]) / 1e6:.0f} | {hashes[name][:8]} |", flush=True)
