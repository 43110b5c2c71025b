#include "runtime/recipe/names_elsewhere.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace strata::runtime {
namespace {

constexpr std::string_view kSteps = "epochs x sequences / sequences per step, which the start says";
constexpr std::string_view kSequences = "in sequences of data.seq_len tokens";
constexpr std::string_view kTokenFile = "a token file that strata tokenize writes";
constexpr std::string_view kPrecision = R"("bf16", "fp16" or "fp32")";
constexpr std::string_view kUnits = "in units: embedding, a block, head";
constexpr std::string_view kRecompute = R"("block", "sqrt", "none" or a list of blocks)";
constexpr std::string_view kTier = R"("device", "host" or "nvme")";

// The names, divided by blanks, that stand for one key; the rest is of NameElsewhere.
struct NamesElsewhere {
  std::string_view names, key, note;
};

// docs/coming-from.md explains what these sentences only name.
constexpr NamesElsewhere kRows[] = {
    // The model and its data.
    {"model_name_or_path base_model", "model.path", "a folder"},
    {"ignore_mismatched_sizes", "model.new_head", "for a classifier of other classes"},
    {"train_file dataset datasets dataset_name", "data.train", kTokenFile},
    {"validation_file eval_dataset val_set_size", "data.validation", kTokenFile},
    {"max_length max_seq_length sequence_len cutoff_len block_size", "data.seq_len", ""},
    {"sample_packing group_by_length", "data.packing", R"("documents")"},
    {"dataset_text_field remove_unused_columns", "", "use strata tokenize --field NAME"},
    {"assistant_only_loss", "", "use strata tokenize --train-on assistant"},
    {"train_on_inputs", "", "use strata tokenize --train-on assistant, or all"},
    {"completion_only_loss", "", "use strata tokenize --train-on completion"},
    {"chat_template chat_template_path template", "", "use strata tokenize --chat-template FILE"},
    {"dataloader_num_workers", "", "it is not needed: token files are mapped into memory"},
    // Batches and steps.
    {"per_device_train_batch_size train_micro_batch_size_per_gpu", "training.micro_batch_size", kSequences},
    {"per_device_eval_batch_size", "training.micro_batch_size", "an evaluation has the micro-batch of training"},
    {"auto_find_batch_size", "training.micro_batch_size", R"("auto", with memory.device)"},
    {"train_batch_size", "training.global_batch_size", kSequences},
    {"num_train_epochs num_epochs epochs", "training.max_steps", kSteps},
    {"total_num_steps", "training.max_steps", ""},
    {"bf16 mixed_precision torch_dtype", "training.precision", kPrecision},
    {"gradient_clipping", "training.max_grad_norm", ""},
    {"gradient_checkpointing activation_checkpointing", "training.recompute", kRecompute},
    {"adapter lora lora_r peft_config use_peft", "",
     "adapters are not built: all weights are trained, and offload is what makes them fit"},
    {"load_in_4bit load_in_8bit", "",
     "quantized weights are not built: zero.parameters and zero.optimizer move state off the GPU"},
    {"label_smoothing_factor neftune_noise_alpha", "", "it is not built"},
    // The optimizer and its schedule.
    {"optimizer.type", "optimizer.name", ""},
    {"scheduler.type", "scheduler.name", ""},
    {"lr", "optimizer.learning_rate", ""},
    {"optim", "optimizer.name", ""},
    {"adam_beta1 adam_beta2", "optimizer.betas", "[beta1, beta2]"},
    {"adam_epsilon", "optimizer.eps", ""},
    {"lr_scheduler_type lr_scheduler", "scheduler.name", ""},
    {"warmup_ratio", "scheduler.warmup_steps", "in steps: the ratio x training.max_steps"},
    {"warmup_num_steps", "scheduler.warmup_steps", ""},
    {"cos_min_ratio cosine_min_lr_ratio", "scheduler.min_lr_ratio", ""},
    // Where state lies.
    {"zero_stage", "zero.stage", ""},
    {"fsdp", "zero.stage", "3 for full_shard, 2 for shard_grad_op, 0 for no_shard"},
    {"sharding_strategy", "zero.stage", "3 for FULL_SHARD, 2 for SHARD_GRAD_OP, 0 for NO_SHARD"},
    {"offload_optimizer", "zero.optimizer", kTier},
    {"offload_param offload_params", "zero.parameters", kTier},
    {"cpu_checkpointing", "zero.activations", kTier},
    {"nvme_path", "memory.nvme", ""},
    {"stage3_max_live_parameters stage3_prefetch_bucket_size", "memory.prefetch", kUnits},
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
    {"eval_strategy evaluation_strategy evals_per_epoch", "evaluation.every", "in steps"},
    {"eval_on_start", "evaluation.at_start", ""},
    {"max_eval_samples", "evaluation.max_sequences", kSequences},
    {"metric_for_best_model", "evaluation.metric", ""},
    {"early_stopping_patience", "evaluation.patience", ""},
    // Reports.
    {"logging_steps steps_per_print", "report.every", ""},
    {"logging_dir", "report.tensorboard", "a folder"},
    {"report_to", "report.tensorboard", "a folder; the guide's Output says how wandb and mlflow read a run"},
    {"wandb_project", "report.tensorboard", "a folder; the guide's Output says how wandb reads a run"},
    {"wall_clock_breakdown", "report.trace", "a file"},
    {"ddp_timeout", "control.stuck_after", "in seconds"},
    // DeepSpeed.
    {"zero_optimization", "zero.stage", "0 to 3"},
    {"fp16", "training.precision", R"("fp16")"},
    {"bfloat16 float16 half", "training.precision", kPrecision},
    {"loss_scale", "", "it is not needed: the scale is dynamic, from fp16.initial_scale"},
    {"hysteresis min_loss_scale consecutive_hysteresis", "",
     "it is not needed: the loss scale halves with every overflow, and a run whose scale has vanished ends"},
    {"auto_cast fp16_master_weights_and_grads", "",
     "it is not needed: master weights are fp32, all else is in training.precision"},
    {"overlap_comm contiguous_gradients reduce_scatter allgather_partitions round_robin_gradients", "",
     "it is not needed: always so"},
    {"allgather_bucket_size reduce_bucket_size stage3_max_reuse_distance", "memory.prefetch", kUnits},
    {"sub_group_size", "", "it is not needed: offloaded updates go in chunks of 2 Mi elements"},
    {"stage3_param_persistence_threshold stage3_model_persistence_threshold", "",
     "there is none: at stage 3 every unit is gathered"},
    {"stage3_gather_16bit_weights_on_model_save stage3_gather_fp16_weights_on_model_save zero_to_fp32", "",
     "use strata export CHECKPOINT -o DIR, with --dtype bf16 or in fp32"},
    {"pin_memory buffer_count buffer_size max_in_cpu fast_init", "",
     "it is not needed: buffers are planned, and memory.device and memory.host are the limits"},
    {"ratio", "", "there is none: a tier holds all of a kind of state"},
    {"cpu_offload", "zero.optimizer", kTier},
    {"cpu_offload_params", "zero.parameters", kTier},
    {"aio queue_depth single_submit overlap_events intra_op_parallelism use_gds thread_count", "memory.io_engine",
     "with memory.io_direct and memory.io_registered"},
    {"params", "", "its keys are those of optimizer or scheduler"},
    {"adam_w_mode torch_adam", "", "there is none: optimizer.name = adamw decouples its weight decay"},
    {"warmup_min_lr warmup_type", "", "there is none: the warm-up is linear from 0"},
    {"warmup_max_lr", "optimizer.learning_rate", ""},
    {"WarmupLR", "scheduler.name", R"("constant", with scheduler.warmup_steps; linear, not logarithmic)"},
    {"WarmupDecayLR", "scheduler.name", R"("linear", with scheduler.warmup_steps and scheduler.min_lr_ratio = 0)"},
    {"WarmupCosineLR", "scheduler.name", R"("cosine", with scheduler.warmup_steps)"},
    {"OneCycle LRRangeTest", "", "it is not built: scheduler.name lists the schedules"},
    {"Lamb Muon OneBitAdam ZeroOneAdam OneBitLamb", "", "it is not built: optimizer.name lists the optimizers"},
    {"partition_activations number_checkpoints synchronize_checkpoint_boundary contiguous_memory_optimization", "",
     "there is none: training.recompute and zero.activations say what is kept, and where"},
    {"csv_monitor", "report.csv", "a file"},
    {"wandb comet mlflow", "report.tensorboard", "a folder; the guide's Output says how wandb and mlflow read a run"},
    {"flops_profiler comms_logger memory_breakdown", "report.summary",
     "it has tflops, comm_bytes and memory; before the run: strata plan"},
    {"autotuning", "", "use strata plan --max-batch, and strata plan --machine for what would be faster"},
    {"elasticity load_universal universal_checkpoint", "",
     "it is not needed: every checkpoint loads on any number of ranks"},
    {"communication_data_type prescale_gradients gradient_predivide_factor sparse_gradients", "",
     "there is none: gradients travel in training.precision and are summed in fp32"},
    {"zero_quantized_weights zero_quantized_gradients zero_quantized_nontrainable_weights zero_hpz_partition_size "
     "mics_shard_size mics_hierarchical_params_gather",
     "", "it is not built: state is sharded over all ranks"},
    {"zero_allow_untested_optimizer zero_force_ds_cpu_optimizer ignore_unused_parameters", "",
     "it is not needed: every optimizer goes with every stage"},
    {"data_efficiency curriculum_learning sparse_attention compression_training", "", "it is not built"},
    {"dump_state memory_efficient_linear", "", "there is none: strata plan says what takes memory"},
    {"hostfile", "", "use strata launch --hosts FILE -- train, which reads the same file"},
    {"zero3_init_flag deepspeed_config_file deepspeed", "",
     "there is none: a recipe says all; docs/coming-from.md maps its keys"},
    // FSDP and Accelerate.
    {"fsdp_sharding_strategy", "zero.stage", "3 for FULL_SHARD, 2 for SHARD_GRAD_OP, 0 for NO_SHARD"},
    {"FULL_SHARD", "zero.stage", "3"},
    {"SHARD_GRAD_OP", "zero.stage", "2"},
    {"NO_SHARD DDP", "zero.stage", "0"},
    {"HYBRID_SHARD _HYBRID_SHARD_ZERO2", "", "it is not built: state is sharded over all ranks"},
    {"reshard_after_forward fsdp_reshard_after_forward", "zero.stage", "3 for true, 2 for false"},
    {"fsdp_config fsdp_version fsdp2", "", "its parts have keys of their own; zero.stage = 3 is full_shard"},
    {"CPUOffload fsdp_offload_params", "zero.parameters",
     R"(and zero.gradients, zero.optimizer: "host" or "nvme", each for itself)"},
    {"MixedPrecision mixed_precision_policy fp16_full_eval bf16_full_eval", "training.precision", kPrecision},
    {"param_dtype reduce_dtype", "training.precision", "gradients travel in it, and are summed in fp32"},
    {"buffer_dtype cast_forward_inputs cast_root_forward_inputs keep_low_precision_grads", "",
     "there is none: training.precision holds for all but master weights and sums"},
    {"GradScaler", "fp16.initial_scale", "and fp16.growth_interval"},
    {"growth_factor backoff_factor", "", "there is none: the loss scale doubles and halves"},
    {"auto_wrap_policy fsdp_auto_wrap_policy transformer_layer_cls_to_wrap fsdp_transformer_layer_cls_to_wrap "
     "min_num_params fsdp_min_num_params",
     "", "it is not needed: a unit is the embedding, a block or the head"},
    {"backward_prefetch forward_prefetch fsdp_backward_prefetch fsdp_forward_prefetch", "memory.prefetch",
     "in units, in both directions; 0: none"},
    {"limit_all_gathers", "", "it is not needed: memory.prefetch is a limit, and memory is planned"},
    {"sync_module_states cpu_ram_efficient_loading use_orig_params ignored_modules fsdp_sync_module_states "
     "fsdp_cpu_ram_efficient_loading fsdp_use_orig_params",
     "", "it is not needed: each rank reads what it needs of model.path, and all parameters are trained"},
    {"fsdp_activation_checkpointing checkpoint_wrapper gradient_checkpointing_kwargs gradient_checkpointing_enable "
     "use_gradient_checkpointing",
     "training.recompute", kRecompute},
    {"no_sync", "training.reduce", R"("fast")"},
    {"find_executable_batch_size", "training.micro_batch_size", R"("auto", with memory.device)"},
    {"accumulate", "training.gradient_accumulation_steps", ""},
    {"clip_grad_norm_ clip_grad_norm", "training.max_grad_norm", "over the whole gradient"},
    {"state_dict_type fsdp_state_dict_type SHARDED_STATE_DICT", "checkpoint.dir",
     "sharded checkpoints load on any number of ranks"},
    {"FULL_STATE_DICT merge-weights", "", "use strata export CHECKPOINT -o DIR"},
    {"LOCAL_STATE_DICT", "", "there is none: docs/formats.md says what a checkpoint is"},
    {"dataloader Dataset data_collator", "data.train", kTokenFile},
    {"set_seed data_seed", "training.seed", ""},
    {"profiler profile", "report.trace", "a file"},
    {"compile callbacks", "", "it is not needed: there is no Python to compile"},
    {"num_processes num_machines machine_rank main_process_ip main_process_port gpu_ids distributed_type "
     "nproc_per_node nnodes",
     "", "use strata launch --hosts FILE -- train, or mpirun -n N"},
    {"tp_size tensor_parallel tensor_model_parallel_size autotp_size", "",
     "it is not built: zero.stage = 3 shards each layer's state, its work is not shared"},
    {"pipeline pipeline_model_parallel_size pp_size", "",
     "it is not built: zero.stage = 3 shards state, and zero.* moves it elsewhere"},
    {"context_parallel_size cp_size sequence_parallel sequence_parallel_size expert_model_parallel_size num_experts "
     "moe",
     "", "it is not built"},
    // Trainer, TRL, axolotl, LLaMA-Factory.
    {"optimizer_type", "optimizer.name", ""},
    {"per_gpu_train_batch_size batch_size", "training.micro_batch_size", kSequences},
    {"eval_batch_size", "training.micro_batch_size", "an evaluation has the micro-batch of training"},
    {"eval_accumulation_steps prediction_loss_only", "",
     "it is not needed: scores of an evaluation are kept on the host"},
    {"lr_scheduler_kwargs lr_scheduler_args", "",
     "scheduler.min_lr_ratio and scheduler.warmup_steps are keys of their own"},
    {"min_lr", "scheduler.min_lr_ratio", "as a fraction of the peak"},
    {"min_lr_rate", "scheduler.min_lr_ratio", ""},
    {"tf32", "", "there is none: fp32 is fp32"},
    {"use_cpu no_cuda", "device.kind", R"("cpu")"},
    {"dtype", "training.precision", kPrecision},
    {"gradient_accumulation", "training.gradient_accumulation_steps", ""},
    {"save_strategy saves_per_epoch", "checkpoint.every", "in steps"},
    {"save_only_model save_safetensors", "",
     "use strata export CHECKPOINT -o DIR: a checkpoint has all that resuming needs"},
    {"overwrite_output_dir", "checkpoint.resume", R"("none" starts over)"},
    {"auto_resume_from_checkpoints", "checkpoint.resume", R"("auto")"},
    {"logging_strategy logging_first_step", "report.every", "in steps"},
    {"run_name project", "", "there is none: report.dir names a run's folder"},
    {"test_file predict_file", "", "use strata predict MODEL IN -o OUT.jsonl"},
    {"max_train_samples max_samples", "training.max_steps", kSteps},
    {"padding pad_to_max_length pad_to_sequence_len padding_free", "",
     "it is not needed: sequences are cut or packed, not padded"},
    {"packing_strategy neat_packing multipack", "data.packing", R"("documents")"},
    {"eval_packing eval_sample_packing", "data.packing", "an evaluation packs as training does"},
    {"train_on_prompt mask_history", "", "use strata tokenize --train-on assistant, or all"},
    {"dataset_prepared_path dataset_dir", "data.train", kTokenFile},
    {"tokenizer_name tokenizer_name_or_path", "", "use strata tokenize --tokenizer FOLDER"},
    {"trust_remote_code", "", "there is none: no code of a model is run"},
    {"attn_implementation flash_attention flash_attn xformers_attention sdp_attention use_flash_attention_2", "",
     "it is not needed: attention is fused, and its bits are fixed"},
    {"use_cache", "", "it is not needed: a training keeps no cache of keys and values"},
    {"use_liger_kernel liger_kernel", "", "it is not needed: the head's loss is computed in chunks"},
    {"device_map low_cpu_mem_usage", "", "it is not needed: zero.* says where state lies"},
    {"full_determinism deterministic", "", "it is not needed: runs have the same bits"},
    {"lora_alpha lora_dropout lora_target_modules lora_target lora_rank target_modules quantization_bit "
     "bnb_4bit_quant_type qlora",
     "", "adapters and quantized weights are not built: all weights are trained, and offload is what makes them fit"},
    {"dpo beta reward_model", "", "only supervised training is built: training.objective lists what a model can learn"},
    {"early_stopping_threshold", "evaluation.patience", "any improvement counts"},
    {"do_train do_eval do_predict", "", "train, eval and predict are commands"},
    {"push_to_hub hub_model_id hub_token", "",
     "there is none: use strata export CHECKPOINT -o DIR, and upload the folder"},
    {"ddp_find_unused_parameters ddp_bucket_cap_mb ddp_backend ddp_broadcast_buffers", "",
     "it is not needed: each unit's gradients are exchanged as soon as they are computed"},
    {"dataloader_drop_last dataloader_pin_memory dataloader_prefetch_factor preprocessing_num_workers", "",
     "it is not needed: token files are mapped into memory"},
    {"skip_memory_metrics include_tokens_per_second include_num_input_tokens_seen", "report.summary",
     "it has memory and tokens_per_s"},
    {"fp16_opt_level half_precision_backend fp16_backend apex", "",
     "it is not needed: training.precision = fp16 is all"},
    {"use_8bit_optimizer", "optimizer.moments", R"("8bit")"},
    {"layerwise_learning_rate lr_groups loraplus_lr_ratio embedding_lr", "",
     "there is none: all tensors have one learning rate"},
    {"mix_strategy interleave_probs", "data.train", "[[data.train]] with files and weight"},
    // Megatron-LM.
    {"train_iters", "training.max_steps", ""},
    {"lr_decay_iters", "training.max_steps", "the learning rate falls until the last step"},
    {"lr_warmup_iters lr_warmup_fraction lr_warmup_samples", "scheduler.warmup_steps", "in steps"},
    {"lr_decay_style", "scheduler.name", ""},
    {"clip_grad", "training.max_grad_norm", ""},
    {"seq_length encoder_seq_length max_position_embeddings", "data.seq_len", ""},
    {"recompute_granularity recompute_method recompute_num_layers recompute_activations checkpoint_activations",
     "training.recompute", kRecompute},
    {"use_distributed_optimizer", "zero.stage", "1"},
    {"use_megatron_fsdp data_parallel_sharding_strategy", "zero.stage", "3"},
    {"overlap_grad_reduce overlap_param_gather", "", "it is not needed: always so"},
    {"optimizer_cpu_offload", "zero.optimizer", R"("host")"},
    {"save_interval", "checkpoint.every", ""},
    {"log_interval", "report.every", ""},
    {"eval_interval", "evaluation.every", ""},
    {"eval_iters", "evaluation.max_sequences", kSequences},
    {"init_method_std", "model.preset", "as model.config.initializer_range"},
    {"hidden_dropout attention_dropout", "model.path", "as a key of config.json: model.config.KEY"},
    {"num_layers hidden_size num_attention_heads ffn_hidden_size", "model.preset",
     "as a key of config.json: model.config.KEY"},
    {"initial_loss_scale", "fp16.initial_scale", ""},
    {"sgd_momentum", "optimizer.momentum", ""},
    {"nesterov sgd_nesterov", "optimizer.momentum", "which is SGD's plain momentum: Nesterov's is not built"},
    {"data_path train_data_path", "data.train", kTokenFile},
    {"valid_data_path", "data.validation", kTokenFile},
};

}  // namespace

std::span<const NameElsewhere> names_elsewhere() {
  static const std::vector<NameElsewhere> names = [] {
    std::vector<NameElsewhere> out;
    for (const auto& [all, key, note] : kRows)
      for (std::size_t at = 0, end; at < all.size(); at = end + 1) {
        end = std::min(all.find(' ', at), all.size());
        out.push_back({all.substr(at, end - at), key, note});
      }
    return out;
  }();
  return names;
}

std::string folded(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

const NameElsewhere* find_elsewhere(std::string_view key) {
  // "offload_optimizer.device" is known by its section, "training.lr" by its last part.
  key = key.substr(0, 256);
  if (key.ends_with(".enabled")) key.remove_suffix(std::string_view(".enabled").size());
  const auto names = names_elsewhere();
  const auto known = [&](std::string_view part) {
    return std::ranges::find_if(names, [&](const auto& name) { return folded(name.name) == folded(part); });
  };
  if (const auto found = known(key); found != names.end()) return &*found;
  for (std::size_t end = key.size(); end != key.npos && end > 0;) {
    const std::size_t dot = key.substr(0, end).rfind('.');
    const std::string_view part = key.substr(dot + 1, end - dot - 1);
    // Of what has the name of a section here, a mistyped key is nearer than another program's section.
    if (part == "fp16" && end != key.size()) break;
    const auto found = known(part);
    if (found != names.end()) return &*found;
    end = dot;
  }
  return nullptr;
}

std::string text_of(const NameElsewhere& name) {
  if (name.key.empty()) return std::string(name.note);
  return fmt::format("here it is {}{}{}", name.key, name.note.empty() ? "" : ", ", name.note);
}

}  // namespace strata::runtime
