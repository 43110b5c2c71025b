#include "runtime/recipe/names/names_elsewhere.h"

namespace strata::runtime {
namespace {

constexpr std::string_view kSequences = "in sequences of data.seq_len tokens";
constexpr std::string_view kTokenFile = "a token file that strata tokenize writes";
constexpr std::string_view kPrecision = R"("bf16", "fp16" or "fp32")";
constexpr std::string_view kUnits = "in units: embedding, a block, head";
constexpr std::string_view kRecompute = R"("block", "sqrt", "none" or a list of blocks)";
constexpr std::string_view kTier = R"("device", "host" or "nvme")";

// docs/coming-from.md explains what these sentences only name.
constexpr NamesElsewhere kRows[] = {
    // DeepSpeed.
    {"zero_optimization", "zero.stage", "0 to 3"},
    {"fp16", "training.precision", R"("fp16")"},
    {"bfloat16 float16 half", "training.precision", kPrecision},
    {"loss_scale", "", "not needed: the scale is dynamic, from fp16.initial_scale"},
    {"hysteresis min_loss_scale consecutive_hysteresis", "",
     "not needed: the loss scale halves with every overflow, and a run whose scale has vanished ends"},
    {"auto_cast fp16_master_weights_and_grads", "",
     "not needed: master weights are fp32, all else is in training.precision"},
    {"overlap_comm contiguous_gradients reduce_scatter allgather_partitions round_robin_gradients", "",
     "not needed: always so"},
    {"allgather_bucket_size reduce_bucket_size stage3_max_reuse_distance", "memory.prefetch", kUnits},
    {"sub_group_size", "", "not needed: offloaded updates go in chunks of 2 Mi elements"},
    {"stage3_param_persistence_threshold stage3_model_persistence_threshold", "",
     "no counterpart: at stage 3 every unit is gathered"},
    {"stage3_gather_16bit_weights_on_model_save stage3_gather_fp16_weights_on_model_save zero_to_fp32", "",
     "use strata export CHECKPOINT -o DIR, with --dtype bf16 or in fp32"},
    {"pin_memory buffer_count buffer_size max_in_cpu fast_init", "",
     "not needed: buffers are planned, and memory.device and memory.host are the limits"},
    {"ratio", "", "no counterpart: a tier holds all of a kind of state"},
    {"cpu_offload", "zero.optimizer", kTier},
    {"cpu_offload_params", "zero.parameters", kTier},
    {"aio queue_depth single_submit overlap_events intra_op_parallelism use_gds thread_count", "memory.io_engine",
     "with memory.io_direct and memory.io_registered"},
    {"params", "", "its keys are those of optimizer or scheduler"},
    {"adam_w_mode torch_adam", "", "no counterpart: optimizer.name = adamw decouples its weight decay"},
    {"warmup_min_lr warmup_type", "", "no counterpart: the warm-up is linear from 0"},
    {"warmup_max_lr", "optimizer.learning_rate", ""},
    {"WarmupLR", "scheduler.name", R"("constant", with scheduler.warmup_steps; linear, not logarithmic)"},
    {"WarmupDecayLR", "scheduler.name", R"("linear", with scheduler.warmup_steps and scheduler.min_lr_ratio = 0)"},
    {"WarmupCosineLR", "scheduler.name", R"("cosine", with scheduler.warmup_steps)"},
    {"OneCycle LRRangeTest", "", "not supported: scheduler.name lists the schedules"},
    {"Lamb Muon OneBitAdam ZeroOneAdam OneBitLamb", "", "not supported: optimizer.name lists the optimizers"},
    {"partition_activations number_checkpoints synchronize_checkpoint_boundary contiguous_memory_optimization", "",
     "no counterpart: training.recompute and zero.activations say what is kept, and where"},
    {"csv_monitor", "report.csv", "a file"},
    {"wandb comet mlflow", "report.tensorboard", "a folder; the guide's Output says how wandb and mlflow read a run"},
    {"flops_profiler comms_logger memory_breakdown", "report.summary",
     "it has tflops, comm_bytes and memory; before the run: strata plan"},
    {"autotuning", "", "use strata plan --max-batch, and strata plan --machine for what would be faster"},
    {"elasticity load_universal universal_checkpoint", "", "not needed: every checkpoint loads on any number of ranks"},
    {"communication_data_type prescale_gradients gradient_predivide_factor sparse_gradients", "",
     "no counterpart: gradients travel in training.precision and are summed in fp32"},
    {"zero_hpz_partition_size", "zero.parameters_group", "the same number"},
    {"mics_shard_size", "zero.optimizer_group", "the same number, with zero.stage = 3"},
    {"zero_quantized_weights zero_quantized_gradients zero_quantized_nontrainable_weights "
     "mics_hierarchical_params_gather",
     "", "not supported"},
    {"zero_allow_untested_optimizer zero_force_ds_cpu_optimizer ignore_unused_parameters", "",
     "not needed: every optimizer works with every stage"},
    {"data_efficiency curriculum_learning sparse_attention compression_training", "", "not supported"},
    {"dump_state memory_efficient_linear", "", "no counterpart: strata plan says what takes memory"},
    {"hostfile", "", "use strata launch --hosts FILE -- train, which reads the same file"},
    {"zero3_init_flag deepspeed_config_file deepspeed", "",
     "no counterpart: a recipe says all; docs/coming-from.md maps its keys"},
    // FSDP and Accelerate.
    {"fsdp_sharding_strategy", "zero.stage", "3 for FULL_SHARD, 2 for SHARD_GRAD_OP, 0 for NO_SHARD"},
    {"FULL_SHARD", "zero.stage", "3"},
    {"SHARD_GRAD_OP", "zero.stage", "2"},
    {"NO_SHARD DDP", "zero.stage", "0"},
    {"HYBRID_SHARD", "zero.optimizer_group", "\"node\", with zero.stage = 3"},
    {"_HYBRID_SHARD_ZERO2", "zero.optimizer_group", "\"node\", with zero.stage = 2"},
    {"reshard_after_forward fsdp_reshard_after_forward", "zero.stage", "3 for true, 2 for false"},
    {"fsdp_config fsdp_version fsdp2", "", "its parts have keys of their own; zero.stage = 3 is full_shard"},
    {"CPUOffload fsdp_offload_params", "zero.parameters",
     R"(and zero.gradients, zero.optimizer: "host" or "nvme", each for itself)"},
    {"MixedPrecision mixed_precision_policy fp16_full_eval bf16_full_eval", "training.precision", kPrecision},
    {"param_dtype reduce_dtype", "training.precision", "gradients travel in it, and are summed in fp32"},
    {"buffer_dtype cast_forward_inputs cast_root_forward_inputs keep_low_precision_grads", "",
     "no counterpart: training.precision holds for all but master weights and sums"},
    {"GradScaler", "fp16.initial_scale", "and fp16.growth_interval"},
    {"growth_factor backoff_factor", "", "no counterpart: the loss scale doubles and halves"},
    {"auto_wrap_policy fsdp_auto_wrap_policy transformer_layer_cls_to_wrap fsdp_transformer_layer_cls_to_wrap "
     "min_num_params fsdp_min_num_params",
     "", "not needed: a unit is the embedding, a block or the head"},
    {"backward_prefetch forward_prefetch fsdp_backward_prefetch fsdp_forward_prefetch", "memory.prefetch",
     "in units, in both directions; 0: none"},
    {"limit_all_gathers", "", "not needed: memory.prefetch is a limit, and memory is planned"},
    {"sync_module_states cpu_ram_efficient_loading use_orig_params ignored_modules fsdp_sync_module_states "
     "fsdp_cpu_ram_efficient_loading fsdp_use_orig_params",
     "", "not needed: each rank reads what it needs of model.path, and all parameters are trained"},
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
    {"LOCAL_STATE_DICT", "", "no counterpart: docs/formats.md says what a checkpoint is"},
    {"dataloader Dataset data_collator", "data.train", kTokenFile},
    {"set_seed data_seed", "training.seed", ""},
    {"profiler profile", "report.trace", "a file"},
    {"compile callbacks", "", "not needed: there is no Python to compile"},
    {"num_processes num_machines machine_rank main_process_ip main_process_port gpu_ids distributed_type "
     "nproc_per_node nnodes",
     "", "use strata launch --hosts FILE -- train, or mpirun -n N"},
    {"tp_size tensor_parallel tensor_model_parallel_size autotp_size tensor_parallel_size tensor_parallel_degree",
     "parallel.tensor", "a power of two; the same bits for each at one parallel.tensor_shards"},
    {"pipeline pipeline_model_parallel_size pp_size pipeline_parallel_size pipeline_parallel_degree", "parallel.stages",
     ""},
    {"pipeline_parallel_schedule", "parallel.schedule", R"("1f1b", "interleaved" or "all_forward_all_backward")"},
    {"decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers pipeline_model_parallel_layout",
     "parallel.split", "a list of blocks per stage"},
    {"virtual_pipeline_model_parallel_size num_layers_per_virtual_pipeline_stage num_virtual_stages_per_pipeline_rank",
     "parallel.chunks", "with parallel.schedule = interleaved"},
    {"sequence_parallel", "parallel.sequence", "with parallel.tensor above 1; the same bits with and without it"},
    {"context_parallel_size cp_size sequence_parallel_size expert_model_parallel_size num_experts "
     "moe",
     "", "not supported"},
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
    {"overlap_grad_reduce overlap_param_gather", "", "not needed: always so"},
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
    {"nesterov sgd_nesterov", "optimizer.momentum", "which is SGD's plain momentum: Nesterov's is not supported"},
    {"data_path train_data_path", "data.train", kTokenFile},
    {"valid_data_path", "data.validation", kTokenFile},
};

}  // namespace

std::span<const NamesElsewhere> names_of_frameworks() {
  return kRows;
}

}  // namespace strata::runtime
