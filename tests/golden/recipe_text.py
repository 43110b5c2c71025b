"""The recipe of a golden run, which all scripts that make such a run write in the same form."""


def recipe_text(seq, steps, micro_batch, micro_batches, clip, rate, betas, decay, scheduler, warmup, data="",
                training=""):
    """data, training: further lines of these tables, each with its end."""
    return f"""# Paths are relative to this file.
[model]
path = "model"
[data]
train = ["tokens.bin"]
seq_len = {seq}
order = "sequential"
{data}[training]
{training}max_steps = {steps}
micro_batch_size = {micro_batch}
gradient_accumulation_steps = {micro_batches}   # divided by the number of ranks: ranks x this = {micro_batches}
precision = "fp32"
max_grad_norm = {clip}
[optimizer]
name = "adamw"
learning_rate = {rate}
betas = [{betas[0]}, {betas[1]}]
eps = 1e-8
weight_decay = {decay}
[scheduler]
name = "{scheduler}"
warmup_steps = {warmup}
min_lr_ratio = 0.1
"""
