#include "runtime/recipe/names_elsewhere.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace strata::runtime {
namespace {

constexpr std::string_view kSteps =
    "epochs x sequences / sequences per step; strata plan says how many steps an epoch has";
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
    {"dataloader_num_workers", "", "not needed: token files are mapped into memory"},
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
     "adapters are not supported: all weights are trained, and offload is what makes them fit"},
    {"load_in_4bit load_in_8bit", "",
     "quantized weights are not supported: zero.parameters and zero.optimizer move state off the GPU"},
    {"label_smoothing_factor neftune_noise_alpha", "", "not supported"},
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
    {"torch_compile", "", "not needed: there is no Python to compile"},
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
     "not needed: every optimizer goes with every stage"},
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
    {"HYBRID_SHARD", "zero.optimizer_group", "the ranks of a node, with zero.stage = 3"},
    {"_HYBRID_SHARD_ZERO2", "zero.optimizer_group", "the ranks of a node, with zero.stage = 2"},
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
    {"tp_size tensor_parallel tensor_model_parallel_size autotp_size", "",
     "not supported: zero.stage = 3 shards each layer's state, its work is not shared"},
    {"pipeline pipeline_model_parallel_size pp_size", "",
     "not supported: zero.stage = 3 shards state, and zero.* moves it elsewhere"},
    {"context_parallel_size cp_size sequence_parallel sequence_parallel_size expert_model_parallel_size num_experts "
     "moe",
     "", "not supported"},
    // Trainer, TRL, axolotl, LLaMA-Factory.
    {"optimizer_type", "optimizer.name", ""},
    {"per_gpu_train_batch_size batch_size", "training.micro_batch_size", kSequences},
    {"eval_batch_size", "training.micro_batch_size", "an evaluation has the micro-batch of training"},
    {"eval_accumulation_steps prediction_loss_only", "", "not needed: scores of an evaluation are kept on the host"},
    {"lr_scheduler_kwargs lr_scheduler_args", "",
     "scheduler.min_lr_ratio and scheduler.warmup_steps are keys of their own"},
    {"min_lr", "scheduler.min_lr_ratio", "as a fraction of the peak"},
    {"min_lr_rate", "scheduler.min_lr_ratio", ""},
    {"tf32", "", "no counterpart: fp32 is fp32"},
    {"use_cpu no_cuda", "device.kind", R"("cpu")"},
    {"dtype", "training.precision", kPrecision},
    {"gradient_accumulation", "training.gradient_accumulation_steps", ""},
    {"save_strategy saves_per_epoch", "checkpoint.every", "in steps"},
    {"save_only_model save_safetensors", "",
     "use strata export CHECKPOINT -o DIR: a checkpoint has all that resuming needs"},
    {"overwrite_output_dir", "checkpoint.resume", R"("none" starts over)"},
    {"auto_resume_from_checkpoints", "checkpoint.resume", R"("auto")"},
    {"logging_strategy logging_first_step", "report.every", "in steps"},
    {"run_name project", "", "no counterpart: report.dir names a run's folder"},
    {"test_file predict_file", "", "use strata predict MODEL IN -o OUT.jsonl"},
    {"max_train_samples max_samples", "training.max_steps", kSteps},
    {"padding pad_to_max_length pad_to_sequence_len padding_free", "",
     "not needed: sequences are cut or packed, not padded"},
    {"packing_strategy neat_packing multipack", "data.packing", R"("documents")"},
    {"eval_packing eval_sample_packing", "data.packing", "an evaluation packs as training does"},
    {"train_on_prompt mask_history", "", "use strata tokenize --train-on assistant, or all"},
    {"dataset_prepared_path dataset_dir", "data.train", kTokenFile},
    {"tokenizer_name tokenizer_name_or_path", "", "use strata tokenize --tokenizer FOLDER"},
    {"trust_remote_code", "", "no counterpart: no code of a model is run"},
    {"attn_implementation flash_attention flash_attn xformers_attention sdp_attention use_flash_attention_2", "",
     "not needed: attention is fused, and its bits are fixed"},
    {"use_cache", "", "not needed: a training keeps no cache of keys and values"},
    {"use_liger_kernel liger_kernel", "", "not needed: the head's loss is computed in chunks"},
    {"device_map low_cpu_mem_usage", "", "not needed: zero.* says where state lies"},
    {"full_determinism deterministic", "", "not needed: runs have the same bits"},
    {"lora_alpha lora_dropout lora_target_modules lora_target lora_rank target_modules quantization_bit "
     "bnb_4bit_quant_type qlora",
     "",
     "adapters and quantized weights are not supported: all weights are trained, and offload is what makes them fit"},
    {"dpo beta reward_model", "",
     "only supervised training is supported: training.objective lists what a model can learn"},
    {"early_stopping_threshold", "evaluation.patience", "any improvement counts"},
    {"do_train do_eval do_predict", "", "train, eval and predict are commands"},
    {"push_to_hub hub_model_id hub_token", "",
     "no counterpart: use strata export CHECKPOINT -o DIR, and upload the folder"},
    {"ddp_find_unused_parameters ddp_bucket_cap_mb ddp_backend ddp_broadcast_buffers", "",
     "not needed: each unit's gradients are exchanged as soon as they are computed"},
    {"dataloader_drop_last dataloader_pin_memory dataloader_prefetch_factor preprocessing_num_workers", "",
     "not needed: token files are mapped into memory"},
    {"skip_memory_metrics include_tokens_per_second include_num_input_tokens_seen", "report.summary",
     "it has memory and tokens_per_s"},
    {"fp16_opt_level half_precision_backend fp16_backend apex", "", "not needed: training.precision = fp16 is all"},
    {"use_8bit_optimizer", "optimizer.moments", R"("8bit")"},
    {"layerwise_learning_rate lr_groups loraplus_lr_ratio embedding_lr", "",
     "no counterpart: all tensors have one learning rate"},
    {"mix_strategy interleave_probs", "data.train", "[[data.train]] with files and weight"},
    // A model, its classes and its metrics.
    {"num_labels id2label label2id problem_type", "",
     "not needed: the training data decide, or the model does if it names its classes (model.config.KEY)"},
    {"AutoModelForMaskedLM", "training.objective", R"("masked_lm", the default of encoders)"},
    {"AutoModelForCausalLM", "training.objective", R"("causal_lm", the default of decoders)"},
    {"AutoModelForSequenceClassification", "training.objective", R"("sequence_classification")"},
    {"AutoModelForTokenClassification", "training.objective", R"("token_classification")"},
    {"DataCollatorForLanguageModeling", "training.mlm_probability", R"(with training.objective = "masked_lm")"},
    {"mask_replace_prob random_replace_prob", "",
     "not supported: 80% of the chosen tokens are masked and 10% replaced; training.mlm_probability says how many are "
     "chosen"},
    {"DataCollatorForWholeWordMask", "", "not supported: tokens are masked one by one (training.mlm_probability)"},
    {"DataCollatorWithPadding", "data.packing", R"("documents": texts share sequences in place of padding)"},
    {"group_texts", "data.packing", R"("documents", or "stream" for one stream of tokens)"},
    {"tokenizer", "", "use strata tokenize --tokenizer FOLDER"},
    {"compute_metrics preprocess_logits_for_metrics include_for_metrics batch_eval_metrics", "evaluation.metric",
     "every evaluation computes what it lists"},
    {"seqeval eval_overall_precision eval_overall_recall eval_overall_f1 eval_overall_accuracy", "evaluation.metric",
     "of token classification, for classes named O, B-TYPE and I-TYPE"},
    {"label_names label_column", "", "use strata tokenize --labels FIELD"},
    {"CrossEntropyLoss class_weight", "training.class_weights", "one number per class"},
    {"compute_loss_func loss_type loss_func", "", "not supported: training.objective decides which loss there is"},
    {"Trainer.predict predict_with_generate", "", "use strata predict MODEL IN -o OUT.jsonl, or strata generate"},
    {"model_type cls_model_config base_model_config config_name model_init_kwargs model_kwargs", "model.path",
     "a folder; its config.json says what the model is"},
    {"overrides_of_model_config rope_scaling rope_theta tie_word_embeddings", "model.path",
     "as a key of config.json: model.config.KEY"},
    {"model_revision revision_of_model cache_dir", "model.path",
     "a folder that is already here: nothing is downloaded"},
    {"train_from_scratch", "model.init", R"("random")"},
    {"resize_vocab resize_token_embeddings resize_token_embeddings_to_32x add_tokens added_tokens_overrides "
     "shrink_embeddings mean_resizing_embeddings",
     "", "not supported: the model's vocabulary stays as it is"},
    {"finetuning_type", "", "not needed: all weights are trained (full)"},
    {"unfrozen_parameters freeze_trainable_layers freeze_trainable_modules freeze_extra_modules freeze_layers "
     "requires_grad trainable_parameters",
     "", "not supported: all weights are trained"},
    {"plugins strict debug tool_format media_dir", "", "no counterpart"},
    // Their data.
    {"special_tokens eos_token pad_token bos_token unk_token tokens eot_tokens", "",
     "not needed: the tokenizer's folder says it; strata tokenize --eot TOKEN names another token between documents"},
    {"tokenizer_type tokenizer_config tokenizer_use_fast use_fast_tokenizer tokenizer_legacy processing_class "
     "split_special_tokens tokenizer_use_mistral_common",
     "", "use strata tokenize --tokenizer FOLDER, whose files say what it is"},
    {"roles_to_train train_on_eos train_on_eot", "",
     "use strata tokenize --train-on assistant, last, completion or all"},
    {"message_field_training message_field_training_detail", "",
     "not needed: \"train\" or \"weight\" of a turn says if it is trained on"},
    {"field_messages message_property_mappings message_field_role message_field_content field_human field_model "
     "formatting_func dataset_kwargs",
     "", "use strata tokenize --field NAME for a text; fields of conversations have to be renamed"},
    {"chat_template_jinja chat_template_kwargs", "", "use strata tokenize --chat-template FILE"},
    {"default_system_message default_system enable_thinking", "",
     "no counterpart: write it into the data, or into the chat template"},
    {"dataset_num_proc dataset_processes dataset_batch_size preprocessing_batch_size", "",
     "use strata tokenize --threads N"},
    {"overwrite_cache dataset_keep_in_memory dataset_shard_num tokenized_path skip_prepare_dataset "
     "dataloader_persistent_workers dataloader_multiprocessing_context dataloader_in_order data_shared_file_system",
     "", "not needed: strata tokenize writes token files, which are mapped into memory"},
    {"streaming pretraining_dataset", "data.train", kTokenFile},
    {"test_datasets val_size validation_split eval_on_each_dataset", "data.validation", kTokenFile},
    {"shuffle_dataset shuffle_merged_datasets shuffle_before_merging_datasets train_sampling_strategy "
     "curriculum_sampling",
     "data.order", R"("shuffle" or "sequential")"},
    {"excess_length_strategy eval_sequence_len", "data.long", R"("cut", "drop" or "refuse")"},
    {"sample_packing_group_size sample_packing_bin_size sample_packing_sequentially multipack_real_batches "
     "batch_flattening",
     "data.packing", R"("documents")"},
    {"pad_to_multiple_of length_column_name ignore_pad_token_for_loss", "",
     "not needed: sequences are cut or packed, not padded"},
    // Their runs.
    {"eval_table_size eval_max_new_tokens", "evaluation.prompts", "a file of prompts that each evaluation answers"},
    {"plot_loss use_tensorboard", "report.tensorboard", "a folder; strata report makes a page of report.dir"},
    {"wandb_name wandb_entity wandb_run_id wandb_watch wandb_log_model mlflow_tracking_uri mlflow_experiment_name "
     "comet_project_name trackio_space_id trackio_bucket_id trackio_static_space_id",
     "report.tensorboard", "a folder; the guide's Output says how wandb and mlflow read a run"},
    {"log_level log_level_replica log_on_each_node logging_nan_inf_filter disable_tqdm", "report.every",
     "in steps; STRATA_PROGRESS=lines or live says how steps are shown"},
    {"include_effective_tokens_per_second include_num_input_tokens", "report.summary", "it has tokens_per_s"},
    {"profiler_steps", "report.trace_steps", ""},
    {"loss_watchdog_threshold loss_watchdog_patience", "", "not needed: a run ends if its loss is not finite"},
    {"eval_delay", "evaluation.every", "in steps, from the first on"},
    {"eval_do_concat_batches eval_use_gather_object torch_empty_cache_steps", "",
     "not needed: memory is planned before the first step"},
    {"ignore_data_skip restore_callback_states_from_checkpoint save_on_each_node save_first_step "
     "enable_jit_checkpoint",
     "", "not needed: a checkpoint has all that resuming needs, and a signal writes one"},
    {"average_tokens_across_devices", "", "not needed: the loss is the mean over all labels of the global batch"},
    {"optim_args optim_target_modules optimizers adam_beta3 adam_epsilon2", "",
     "no counterpart: the keys of optimizer say all"},
    {"use_galore use_apollo use_badam use_adam_mini use_muon relora", "",
     "not supported: optimizer.name lists the optimizers"},
    {"cosine_constant_lr_ratio lr_div_factor lr_quadratic_warmup", "",
     "not supported: scheduler.name lists the schedules"},
    {"noisy_embedding_alpha", "", "not supported"},
    {"pure_bf16", "training.precision", R"("bf16", whose master weights are fp32)"},
    {"activation_offloading", "zero.activations", kTier},
    {"offload_folder", "memory.nvme", "a folder per drive"},
    {"max_memory gpu_memory_limit", "memory.device", ""},
    {"disable_gradient_checkpointing", "training.recompute", R"("none")"},
    {"activation_checkpointing_kwargs use_reentrant_gc", "training.recompute", kRecompute},
    {"flex_attention s2_attention shift_attn cut_cross_entropy chunked_cross_entropy use_unsloth "
     "enable_liger_kernel liger_kernel_config",
     "", "not needed: attention is fused, and the head's loss is computed in chunks"},
    {"torch_compile_backend torch_compile_mode", "", "not needed: there is no Python to compile"},
    {"ddp_static_graph accelerator_config", "", "not needed: a step is planned before it runs"},
    {"parallelism_config sequence_parallel_degree tensor_parallel_size dp_replicate_size", "",
     "not supported: ranks share the batch, and zero.stage = 3 shards state"},
    {"dp_shard_size", "zero.stage", "3"},
    {"local_rank world_size", "", "use strata launch --hosts FILE -- train, or mpirun -n N"},
    {"adapter_name_or_path use_rslora use_dora pissa_init lora_on_cpu gptq quantization_method", "",
     "adapters and quantized weights are not supported: all weights are trained, and offload is what makes them fit"},
    {"rl rl_beta pref_beta pref_loss kto grpo", "",
     "only supervised training is supported: training.objective lists what a model can learn"},
    {"hub_strategy hub_always_push hub_private_repo hub_revision push_dataset_to_hub hf_use_auth_token hf_hub_token",
     "", "no counterpart: use strata export CHECKPOINT -o DIR, and upload the folder"},
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
  for (const char c : text)
    out += c == '-' || c == ' ' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
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
  const bool more = name.note.starts_with("and ") || name.note.starts_with("with ");
  return fmt::format("use {}{}{}", name.key, name.note.empty() ? "" : more ? ", " : ": ", name.note);
}

}  // namespace strata::runtime
