#!/usr/bin/env python3
"""The README's example of classification by Strata, compared with transformers' Trainer: accuracy, F1 and loss over seeds.

    examples/languages.sh
    bench/against_trainer.py --python PYTHON_WITH_TRANSFORMERS [--seeds 3] [--epochs 1] > docs/results/X.md

Both start from the same pretrained encoder and the same texts. They train for the same number of epochs and steps, and
thus with the same mean number of texts per step, with AdamW and the same settings, a linear schedule, fp32, and dropout
as configured, and draw the head, order and dropout from the seed. Needs build/strata (scripts/build.sh) and the files
of examples/languages.sh.
"""
import argparse, csv, datetime, json, os, platform, statistics, subprocess, sys, tempfile, time

RATE, DECAY, BETAS, WARMUP = 3e-4, 0.01, (0.9, 0.999), 20
SEQUENCE, PER_STEP = 512, 4


def peer(folder, steps, batch, epochs, seed, scratch):
    """One process of transformers: prints its results on the validation texts."""
    import numpy, torch
    from sklearn.metrics import accuracy_score, f1_score
    from transformers import (AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, Trainer,
                              TrainingArguments, set_seed)
    torch.set_num_threads(os.cpu_count())
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(os.path.join(folder, "minilm"))
    read = lambda name: list(csv.DictReader(open(os.path.join(folder, name), newline="")))
    train, validation = read("train.csv"), read("validation.csv")
    names = sorted({row["language"] for row in train})
    encode = lambda rows: [dict(tokenizer(row["text"], truncation=True, max_length=128),
                                labels=names.index(row["language"])) for row in rows]
    model = AutoModelForSequenceClassification.from_pretrained(os.path.join(folder, "minilm"), num_labels=len(names))
    arguments = TrainingArguments(output_dir=scratch, seed=seed, max_steps=steps, per_device_train_batch_size=batch,
                                  learning_rate=RATE, weight_decay=DECAY, adam_beta1=BETAS[0], adam_beta2=BETAS[1],
                                  warmup_steps=WARMUP, lr_scheduler_type="linear", max_grad_norm=1.0, report_to=[],
                                  save_strategy="no", use_cpu=True, per_device_eval_batch_size=16, disable_tqdm=True)
    trainer = Trainer(model=model, args=arguments, train_dataset=encode(train), eval_dataset=encode(validation),
                      data_collator=DataCollatorWithPadding(tokenizer))
    begin = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - begin
    result = trainer.predict(encode(validation))
    predicted = numpy.argmax(result.predictions, axis=1)
    print(json.dumps({"eval_accuracy": accuracy_score(result.label_ids, predicted),
                      "eval_f1": f1_score(result.label_ids, predicted, average="macro"),
                      "eval_loss": result.metrics["test_loss"], "seconds": seconds}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=1)
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--folder", default=os.path.join(root, "runs", "languages"))
    parser.add_argument("--peer", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        folder, steps, batch, epochs, seed, scratch = options.peer
        return peer(folder, int(steps), int(batch), int(epochs), int(seed), scratch)

    strata = os.path.join(root, os.environ.get("STRATA_BUILD", "build"), "strata")
    scratch = tempfile.mkdtemp()
    env = dict(os.environ, CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")
    run = lambda command: subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
    for name in "train", "validation":
        run([strata, "tokenize", "--force", "--tokenizer", os.path.join(options.folder, "minilm"), "--labels", "language",
             "--max-length", "128", "-o", os.path.join(scratch, name + ".bin"),
             os.path.join(options.folder, name + ".csv")])
    base = [f"model.path={options.folder}/minilm", f"data.train={scratch}/train.bin",
            f"data.validation={scratch}/validation.bin", f"data.seq_len={SEQUENCE}",
            "training.objective=sequence_classification", "training.precision=fp32", "training.micro_batch_size=1",
            f"training.global_batch_size={PER_STEP}", f"optimizer.learning_rate={RATE}",
            f"optimizer.weight_decay={DECAY}", f"optimizer.betas=[{BETAS[0]},{BETAS[1]}]", "scheduler.name=linear",
            "scheduler.min_lr_ratio=0", f"scheduler.warmup_steps={WARMUP}", "control.listen=off"]

    def ours(seed, steps):
        log = os.path.join(scratch, "run.jsonl")
        sets = base + [f"training.seed={seed}", f"training.max_steps={steps}", f"evaluation.every={steps}",
                       f"report.jsonl={log}", f"report.summary={scratch}/summary.json"]
        begin = time.perf_counter()
        run([strata, "train", "--force"] + [x for s in sets for x in ("--set", s)])
        lines = [json.loads(l) for l in open(log)]
        return {**lines[0], **[l for l in lines if "eval_loss" in l][-1], "seconds": time.perf_counter() - begin}

    texts = sum(1 for _ in csv.DictReader(open(os.path.join(options.folder, "train.csv"), newline="")))
    sequences = round(PER_STEP / ours(0, 1)["epoch"])
    steps = round(options.epochs * sequences / PER_STEP)
    batch = round(options.epochs * texts / steps)
    rows = []
    for seed in range(1, options.seeds + 1):
        for who, of in (("Strata", lambda: ours(seed, steps)),
                        ("Trainer", lambda: json.loads(run([
                            options.python, os.path.abspath(__file__), "--peer", options.folder, str(steps), str(batch),
                            str(options.epochs), str(seed), scratch]).splitlines()[-1]))):
            rows.append((who, seed, of()))
            print(rows[-1], file=sys.stderr, flush=True)

    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.processor())
    print(f"# Classification compared with transformers' Trainer\n\n{datetime.date.today()}, {cpu}, {os.cpu_count()} cores; "
          f"`bench/against_trainer.py --seeds {options.seeds} --epochs {options.epochs}`:\n{texts} texts, {steps} steps, "
          f"{batch} texts per step in the mean, fp32.\n")
    print("| | seed | accuracy | macro F1 | loss | seconds |\n|---|---|---|---|---|---|")
    for who, seed, r in rows:
        print(f"| {who} | {seed} | {r['eval_accuracy']:.4f} | {r['eval_f1']:.4f} | {r['eval_loss']:.4f} | "
              f"{r['seconds']:.0f} |")
    for who in "Strata", "Trainer":
        of = lambda key: [r[key] for w, _, r in rows if w == who]
        spread = statistics.stdev(of("eval_accuracy")) if options.seeds > 1 else 0
        print(f"| {who} | mean | {statistics.mean(of('eval_accuracy')):.4f} ± {spread:.4f} | "
              f"{statistics.mean(of('eval_f1')):.4f} | {statistics.mean(of('eval_loss')):.4f} | "
              f"{statistics.mean(of('seconds')):.0f} |")


if __name__ == "__main__":
    main()
