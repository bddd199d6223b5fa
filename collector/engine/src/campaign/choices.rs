//! Settings with a fixed list of values.

use datasets::CacheState;
use models::choice;

choice! {
    /// The source of a model.
    pub enum ModelSource {
        /// The built-in model zoo
        Local = "local",
        /// One operator, written as text
        Simple = "simple",
        /// An ONNX file
        Onnx = "onnx",
        /// An ONNX file from elsewhere, by path or `file://` address
        Remoteonnx = "remoteonnx",
        /// A TFLite file
        Tflite = "tflite",
        /// A file of `torch.export` (`.pt2`) or TorchScript (`.pt`)
        Torch = "torch",
        /// A transformer, by its configuration
        Transformers = "transformers",
    }
}

choice! {
    /// The source of schedules.
    pub enum SamplerName {
        /// Templates: tile, split, reorder, unroll, vectorise, parallel, compute-at
        Template = "template",
        /// TVM's MetaSchedule space
        MetaSchedule = "metaschedule",
    }
}

choice! {
    /// The representation of attention in tasks.
    pub enum AttentionChoice {
        /// One attention task
        Fused = "fused",
        /// Two matrix products and a softmax
        Split = "split",
        /// Attention as one task and as its parts, for comparison
        Both = "both",
    }
}

choice! {
    /// The sizes that compiled code supports.
    #[derive(Default)]
    pub enum Executor {
        /// Separate code for each size
        #[default]
        Default = "default",
        /// Code with dynamic sizes, for all sizes of a model
        Vm = "vm",
    }
}

choice! {
    /// The library that computes the tasks.
    #[derive(Default)]
    pub enum Backend {
        /// Code compiled by TVM
        #[default]
        Tvm = "tvm",
        /// PyTorch's library
        Torch = "torch",
    }
}

choice! {
    /// Contents of the caches before a timed run.
    pub enum CacheChoice {
        /// Data left by the previous run
        Warm = "warm",
        /// Caches filled with unrelated data
        Cold = "cold",
    }
}

impl From<CacheChoice> for CacheState {
    fn from(choice: CacheChoice) -> CacheState {
        match choice {
            CacheChoice::Warm => CacheState::Warm,
            CacheChoice::Cold => CacheState::Cold,
        }
    }
}
