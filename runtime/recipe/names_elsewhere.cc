#include "runtime/recipe/names_elsewhere.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata::runtime {
namespace {

constexpr std::string_view kSteps = "epochs x sequences / sequences per step, which the start says";
constexpr std::string_view kSequences = "in sequences of data.seq_len tokens";
constexpr std::string_view kTokenFile = "a token file that strata tokenize writes";
constexpr std::string_view kPrecision = R"("bf16", "fp16" or "fp32")";
constexpr std::string_view kTier = R"("device", "host" or "nvme")";

// docs/coming-from.md explains what these sentences only name.
constexpr NameElsewhere kNames[] = {
    // The model and its data.
    {"model_name_or_path", "model.path", "a folder"},
    {"base_model", "model.path", "a folder"},
    {"ignore_mismatched_sizes", "model.new_head", "for a classifier of other classes"},
    {"train_file", "data.train", kTokenFile},
    {"dataset", "data.train", kTokenFile},
    {"datasets", "data.train", kTokenFile},
    {"dataset_name", "data.train", kTokenFile},
    {"validation_file", "data.validation", kTokenFile},
    {"eval_dataset", "data.validation", kTokenFile},
    {"val_set_size", "data.validation", kTokenFile},
    {"max_length", "data.seq_len", ""},
    {"max_seq_length", "data.seq_len", ""},
    {"sequence_len", "data.seq_len", ""},
    {"cutoff_len", "data.seq_len", ""},
    {"block_size", "data.seq_len", ""},
    {"sample_packing", "data.packing", R"("documents")"},
    {"group_by_length", "data.packing", R"("documents")"},
    {"dataset_text_field", "", "use strata tokenize --field NAME"},
    {"assistant_only_loss", "", "use strata tokenize --train-on assistant"},
    {"train_on_inputs", "", "use strata tokenize --train-on assistant, or all"},
    {"completion_only_loss", "", "use strata tokenize --train-on completion"},
    {"chat_template", "", "use strata tokenize --chat-template FILE"},
    {"chat_template_path", "", "use strata tokenize --chat-template FILE"},
    {"dataloader_num_workers", "", "it is not needed: token files are mapped into memory"},
    {"remove_unused_columns", "", "use strata tokenize --field NAME"},
    // Batches and steps.
    {"per_device_train_batch_size", "training.micro_batch_size", kSequences},
    {"train_micro_batch_size_per_gpu", "training.micro_batch_size", kSequences},
    {"per_device_eval_batch_size", "training.micro_batch_size", "an evaluation has the micro-batch of training"},
    {"auto_find_batch_size", "training.micro_batch_size", R"("auto", with memory.device)"},
    {"train_batch_size", "training.global_batch_size", kSequences},
    {"num_train_epochs", "training.max_steps", kSteps},
    {"num_epochs", "training.max_steps", kSteps},
    {"epochs", "training.max_steps", kSteps},
    {"total_num_steps", "training.max_steps", ""},
    {"bf16", "training.precision", kPrecision},
    {"mixed_precision", "training.precision", kPrecision},
    {"torch_dtype", "training.precision", kPrecision},
    {"gradient_clipping", "training.max_grad_norm", ""},
    {"gradient_checkpointing", "training.recompute", R"("block", "sqrt" or "none")"},
    {"activation_checkpointing", "training.recompute", R"("block", "sqrt" or "none")"},
    {"adapter", "", "adapters are not built: all weights are trained, and offload is what makes them fit"},
    {"lora", "", "adapters are not built: all weights are trained, and offload is what makes them fit"},
    {"lora_r", "", "adapters are not built: all weights are trained, and offload is what makes them fit"},
    {"peft_config", "", "adapters are not built: all weights are trained, and offload is what makes them fit"},
    {"use_peft", "", "adapters are not built: all weights are trained, and offload is what makes them fit"},
    {"load_in_4bit", "", "quantized weights are not built: zero.parameters and zero.optimizer move state off the GPU"},
    {"load_in_8bit", "", "quantized weights are not built: zero.parameters and zero.optimizer move state off the GPU"},
    {"label_smoothing_factor", "", "it is not built"},
    {"neftune_noise_alpha", "", "it is not built"},
    // The optimizer and its schedule.
    {"lr", "optimizer.learning_rate", ""},
    {"optim", "optimizer.name", ""},
    {"adam_beta1", "optimizer.betas", "[beta1, beta2]"},
    {"adam_beta2", "optimizer.betas", "[beta1, beta2]"},
    {"adam_epsilon", "optimizer.eps", ""},
    {"lr_scheduler_type", "scheduler.name", ""},
    {"lr_scheduler", "scheduler.name", ""},
    {"warmup_ratio", "scheduler.warmup_steps", "in steps: the ratio x training.max_steps"},
    {"warmup_num_steps", "scheduler.warmup_steps", ""},
    {"cos_min_ratio", "scheduler.min_lr_ratio", ""},
    {"cosine_min_lr_ratio", "scheduler.min_lr_ratio", ""},
    // Where state lies.
    {"zero_stage", "zero.stage", ""},
    {"fsdp", "zero.stage", "3 for full_shard, 2 for shard_grad_op, 0 for no_shard"},
    {"sharding_strategy", "zero.stage", "3 for FULL_SHARD, 2 for SHARD_GRAD_OP, 0 for NO_SHARD"},
    {"offload_optimizer", "zero.optimizer", kTier},
    {"offload_param", "zero.parameters", kTier},
    {"offload_params", "zero.parameters", kTier},
    {"cpu_checkpointing", "zero.activations", kTier},
    {"nvme_path", "memory.nvme", ""},
    {"stage3_max_live_parameters", "memory.prefetch", "in units: embedding, a block, head"},
    {"stage3_prefetch_bucket_size", "memory.prefetch", "in units: embedding, a block, head"},
    {"initial_scale_power", "fp16.initial_scale", "the scale itself: 65536 for 16"},
    {"loss_scale_window", "fp16.growth_interval", ""},
    {"torch_compile", "", "it is not needed: there is no Python to compile"},
    // Checkpoints and evaluation.
    {"output_dir", "checkpoint.dir", ""},
    {"save_steps", "checkpoint.every", ""},
    {"save_total_limit", "checkpoint.keep", ""},
    {"resume_from_checkpoint", "checkpoint.resume", R"("auto", "none" or a folder)"},
    {"load_best_model_at_end", "checkpoint.keep_best", "the best checkpoint is kept"},
    {"eval_steps", "evaluation.every", ""},
    {"eval_strategy", "evaluation.every", "in steps"},
    {"evaluation_strategy", "evaluation.every", "in steps"},
    {"evals_per_epoch", "evaluation.every", "in steps"},
    {"eval_on_start", "evaluation.at_start", ""},
    {"max_eval_samples", "evaluation.max_sequences", kSequences},
    {"metric_for_best_model", "evaluation.metric", ""},
    {"early_stopping_patience", "evaluation.patience", ""},
    // Reports.
    {"logging_steps", "report.every", ""},
    {"steps_per_print", "report.every", ""},
    {"logging_dir", "report.tensorboard", "a folder"},
    {"report_to", "report.tensorboard", "a folder; the guide's Output says how wandb and mlflow read a run"},
    {"wandb_project", "report.tensorboard", "a folder; the guide's Output says how wandb reads a run"},
    {"wall_clock_breakdown", "report.trace", "a file"},
    {"ddp_timeout", "control.stuck_after", "in seconds"},
};

}  // namespace

std::span<const NameElsewhere> names_elsewhere() {
  return kNames;
}

const NameElsewhere* find_elsewhere(std::string_view key) {
  // "offload_optimizer.device" is known by its section, "training.lr" by its last part.
  for (std::size_t end = key.size(); end != key.npos && end > 0;) {
    const std::size_t dot = key.substr(0, end).rfind('.');
    const std::string_view part = key.substr(dot + 1, end - dot - 1);
    const auto* found = std::ranges::find(kNames, part, &NameElsewhere::name);
    if (found != std::end(kNames)) return found;
    end = dot;
  }
  return nullptr;
}

std::string text_of(const NameElsewhere& name) {
  if (name.key.empty()) return std::string(name.note);
  return fmt::format("here it is {}{}{}", name.key, name.note.empty() ? "" : ", ", name.note);
}

}  // namespace strata::runtime
