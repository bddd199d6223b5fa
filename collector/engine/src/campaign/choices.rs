//! Settings with a fixed list of values.

use datasets::CacheState;
use models::choice;

choice! {
    /// The source of a model.
    pub enum ModelSource {
        /// The built-in zoo
        Local = "local",
        /// One operator given as text
        Simple = "simple",
        /// An ONNX file
        Onnx = "onnx",
        /// An ONNX file that was fetched from elsewhere
        Remoteonnx = "remoteonnx",
        /// A TFLite file
        Tflite = "tflite",
        /// An archive of `torch.export`, a `.pt2` file
        Torch = "torch",
        /// A transformer by its configuration
        Transformers = "transformers",
    }
}

choice! {
    /// The source of schedules.
    pub enum Sampler {
        /// Our own templates: tile, split, reorder, unroll, vectorise, parallel, compute-at
        Template = "template",
        /// TVM's MetaSchedule space
        MetaSchedule = "metaschedule",
    }
}

choice! {
    /// The representation of attention in tasks.
    pub enum AttentionChoice {
        /// One task
        Fused = "fused",
        /// Two products and a softmax
        Split = "split",
        /// Both, so that they can be compared
        Both = "both",
    }
}

choice! {
    /// The sizes that compiled code supports.
    #[derive(Default)]
    pub enum Executor {
        /// One size
        #[default]
        Default = "default",
        /// All sizes of a model
        Vm = "vm",
    }
}

choice! {
    /// The library that computes the tasks.
    #[derive(Default)]
    pub enum Backend {
        /// Code that TVM compiles
        #[default]
        Tvm = "tvm",
        /// PyTorch's library
        Torch = "torch",
    }
}

choice! {
    /// Contents of the caches before a timed run.
    pub enum CacheChoice {
        /// What the previous run left
        Warm = "warm",
        /// Other data
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
