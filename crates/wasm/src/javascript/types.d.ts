/** A file that is read slice by slice. */
export interface Source {
  /** Bytes in all. */
  readonly size: number;
  /** At least one byte from `offset` on, at most `length`. */
  read(offset: number, length: number): Uint8Array;
}

/** What a Keras file does not say, and `open` has to be told. */
export type Told = Pick<Plan, "input" | "layer">;

export type Framework = "pytorch" | "tensorflow" | "burn";
export type Precision = "fp32" | "mixed-fp16" | "mixed-bf16" | "fp16" | "bf16";

/** How a model is trained; what is left out is the framework's default. */
export interface Plan {
  batch_size?: number;
  /** Named sizes: `{ seq: 512 }`. */
  set?: Record<string, number>;
  /** Whole input shapes: `{ image: [8, 3, 224, 224] }`. */
  input?: Record<string, number[]>;
  framework?: Framework;
  precision?: Precision;
  mode?: "train" | "infer";
  optimizer?: string;
  optimizer_impl?: "foreach" | "fused" | "loop";
  weight_decay?: boolean;
  /** Gradients are clipped by the norm of all of them together. */
  global_clipnorm?: boolean;
  accumulate?: number;
  checkpoint?: "none" | "block" | "full";
  freeze?: string[];
  keep_gradients?: boolean;
  loss?: "auto" | "cross-entropy" | "mse" | "bce" | "none";
  ema?: boolean;
  master_weights?: boolean;
  cudnn_benchmark?: boolean;
  channels_last?: boolean;
  autocast_backward?: boolean;
  composed_attention?: boolean;
  assume_batchnorm?: boolean;
  assume_dropout?: boolean;
  /** Whether the output layer shares the embedding's matrix, where an inference export shows two. */
  tied_embeddings?: boolean;
  xla?: boolean;
  /** Keras: the step is run operation by operation, without a graph. */
  run_eagerly?: boolean;
  loss_scale?: boolean;
  as_fake_tensors?: boolean;
  /** GPUs that train together; the batch size is that of one of them. */
  gpus?: number;
  /** How they share the work; `tp` and `pp` take all of them for one of the splits below. */
  parallel?: "ddp" | "zero1" | "zero2" | "zero3" | "tp" | "pp";
  /** GPUs that each layer is split over. */
  tensor_parallel?: number;
  /** Stages that the layers are split into. */
  pipeline_stages?: number;
  /** DeepSpeed's options, in elements, where it is DeepSpeed that shares. */
  deepspeed?: {
    reduce_bucket_size?: number;
    stage3_prefetch_bucket_size?: number;
    stage3_max_live_parameters?: number;
    stage3_max_reuse_distance?: number;
    stage3_param_persistence_threshold?: number;
  };
  /** The card for a verdict: a name, a size (`24GiB`), a MIG slice. */
  gpu?: string;
  /** What other processes hold of it. */
  other_processes_bytes?: number;
  /** It drives a display too. */
  display?: boolean;
  /** The framework's allocator, as an estimate shows it. */
  allocator?: {
    expandable_segments?: boolean;
    max_split_size_bytes?: number | null;
    cuda_malloc_async?: boolean;
    memory_growth?: boolean;
    memory_fraction_thousandths?: number | null;
    memory_limit_bytes?: number | null;
  };
  /** What `PYTORCH_ALLOC_CONF` holds. */
  allocator_conf?: string;
  /** CUDA's own pool in the framework's place. */
  cuda_malloc_async?: boolean;
  /** TensorFlow's memory growth. */
  memory_growth?: boolean;
  /** Validation runs between steps, with this batch size. */
  validation_batch?: number;
  /** Batches that a pipeline puts on the device ahead of their step. */
  prefetch_to_device?: number;
  /** Batches whose predictions are all kept on the device. */
  predict_batches?: number;
  /** Models of earlier runs that are still alive. */
  stale_models?: number;
  /** Keras: steps that run in one call of the graph. */
  steps_per_execution?: number;
  /** What a Keras file does not say of a custom layer, by name or class; `open` reads it. */
  layer?: Record<string, { shape?: number[]; params?: number; state?: number }>;
}

/** Bytes by what they are for. */
export interface State {
  parameters_bytes: number;
  buffers_bytes: number;
  gradients_bytes: number;
  optimizer_bytes: number;
  activations_bytes: number;
  activation_gradients_bytes: number;
  workspace_bytes: number;
  inputs_bytes: number;
  transients_bytes: number;
}

export interface Layer {
  name: string;
  op: string;
  output_shapes: number[][];
  parameters: number;
  parameter_bytes: number;
  gradient_bytes: number;
  optimizer_bytes: number;
  saved_bytes: number;
  workspace_bytes: number;
  at_peak: State;
}

/** What the plan of an estimate always says. */
type Always =
  | "framework" | "precision" | "mode" | "optimizer" | "optimizer_impl" | "weight_decay" | "accumulate" | "checkpoint"
  | "freeze" | "keep_gradients" | "loss" | "ema" | "master_weights" | "cudnn_benchmark" | "channels_last" | "autocast_backward"
  | "composed_attention" | "assume_batchnorm" | "assume_dropout" | "as_fake_tensors";
/** What it says where it means something or is not at its default. */
type Sometimes =
  | "tied_embeddings" | "global_clipnorm" | "xla" | "run_eagerly" | "gpus" | "parallel" | "tensor_parallel" | "pipeline_stages"
  | "allocator" | "allocator_conf" | "loss_scale" | "deepspeed";

/** Something outside of the framework's allocator. */
export interface Item {
  name: string;
  low_bytes: number;
  expected_bytes: number;
  high_bytes: number;
  /** Where the numbers are from. */
  source: string;
}

/** The step inside of a card. */
export interface Fit {
  gpu: string;
  capacity_bytes: number;
  usable_bytes: number;
  reserved_bytes: number;
  headroom_bytes: number;
  verdict: Verdict;
  /** How often the allocator gave back what it cached and asked again. */
  retries: number;
  /** What the framework takes at its start, if it does. */
  preallocated_bytes: number | null;
  kept_by_driver_bytes: number;
  left_to_system_bytes: number;
  others: Item[];
  /** What could not be had. */
  shortage: {
    tensor: string;
    layer: string;
    phase: Phase;
    request_bytes: number;
    free_bytes: number;
    unusable_bytes: number;
    largest_free_bytes: number;
  } | null;
}

export type Phase = "setup" | "forward" | "backward" | "optimizer_step";

/** `memfit estimate --format json`, schema version 1. */
export interface Estimate {
  schema_version: 1;
  /** The model's file, in JSON Lines. */
  file?: string;
  tool: { name: "memfit"; version: string };
  model: {
    name: string;
    format: "onnx" | "keras";
    parameters_trainable: number;
    parameters_frozen: number;
    buffers: number;
    operators: number;
  };
  plan: Required<Pick<Plan, Always>> & Pick<Plan, Sometimes> & { batch_size: number | null };
  peak: {
    allocated_bytes: number;
    reserved_bytes: number;
    device_bytes: number;
    phase: Phase;
    layer: string;
    device_low_bytes: number;
    device_high_bytes: number;
  };
  breakdown: State & { allocator_bytes: number; context_bytes: number };
  /** What `breakdown.context_bytes` is made of. */
  context: Item[];
  saved_for_backward_bytes: number;
  /** With `gpu` in the plan. */
  fit?: Fit;
  /** Where the plan says what happens beside the step. */
  scenario?: { worst: string; allocated_bytes: number; phases: { name: string; allocated_bytes: number }[] };
  /** With a second host, which the command line takes. */
  comparison?: {
    fit: Fit;
    components: {
      name: string;
      side: "has" | "off" | "usable" | "needs" | "reserved";
      this_bytes: number;
      that_bytes: number;
    }[];
  };
  layers: Layer[];
  largest: { name: string; layer: string; category: string; size_bytes: number }[];
  unknown: string[];
  assumptions: string[];
  warnings: string[];
}

/** `memfit inspect --format json`. */
export interface Inspection {
  schema_version: 1;
  tool: { name: "memfit"; version: string };
  model: { name: string; format: string; producer: string; opset: number | null; operators: number };
  inputs: string[];
  outputs: string[];
  tensors: Record<string, unknown>;
  operators: Record<string, number>;
  unknown: string[];
  warnings: string[];
}

/** What is searched for beside a plan. */
export interface Search {
  /** Names, sizes, slices; the plan's card where none is given. */
  gpus?: string[];
  precisions?: Precision[];
  optimizers?: string[];
  /** `batch`, `image`, `seq` or a named size. */
  max?: string;
}

/** `memfit fit --format json`. */
export interface Fits {
  model: string;
  axis: string;
  batch_size: number | null;
  results: {
    gpu: string;
    precision: Precision;
    optimizer: string;
    max_batch_size?: number;
    max_size: number;
    safe_size: number;
    device_bytes: number;
    usable_bytes: number;
    capacity_bytes: number;
    monotone: boolean;
    model_ends: boolean;
    search_ends: boolean;
    /** Not exact: the shapes or the rules of some operators are not known, so nothing is safe. */
    is_partial: boolean;
  }[];
  smallest: { precision: Precision; optimizer: string; gpu: string }[];
  warnings: string[];
}

export type Verdict = "fits" | "tight" | "does-not-fit";

/** What a changed step comes to. */
export interface Outcome {
  device_bytes: number;
  reserved_bytes: number;
  usable_bytes: number;
  verdict: Verdict;
  /** What the driver shows for the process. */
  held_bytes: number;
  /** Not exact: the shapes or the rules of some operators are not known, so nothing is safe. */
  is_partial: boolean;
}

/** `memfit advise --format json`. */
export interface Advice {
  model: string;
  gpu: string;
  batch_size: number | null;
  now: Outcome;
  /** Each change alone, the most useful first. */
  changes: {
    name: string;
    title: string;
    /** 1 is a setting, 2 a change of the training loop, 3 touches what is learnt. */
    effort: number;
    cost: string;
    /** What the step needs less, or the process holds where `for_others`. */
    saving_bytes: number;
    /** Whether others have what is saved, and the step needs as much as before. */
    for_others: boolean;
    result: Outcome;
    /** What differs in the plan: `{ ...plan, ...change.plan }` is the plan after the change. */
    plan: Plan;
    /** The code that does it. */
    snippet: string;
  }[];
  /** The smallest set of changes that makes it fit. */
  combination: { changes: { name: string; title: string; snippet: string }[]; result: Outcome; plan: Plan } | null;
  warnings: string[];
}

/** `memfit gpus --format json`. */
export interface Gpus {
  gpus: {
    id: string;
    name: string;
    vendor: string;
    compute_capability: string | null;
    memory_bytes: number;
    total_bytes: number;
    total_source: string | null;
    visible_bytes: number;
    visible_source: string | null;
    shares_memory: boolean;
  }[];
}

export interface Problem {
  place: string;
  op: string;
  message: string;
  hint: string;
}

/** What is thrown when a file or a plan has problems. */
export interface MemfitError extends Error {
  problems: Problem[];
}
