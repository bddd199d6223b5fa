//! Enums for columns whose value is one word of a fixed set.

use super::cell::{Cell, Field, Storage};
use super::key::excerpt;
use crate::error::RowError;
use models::{Choice, names};
use std::fmt;

/// Defines an enum with the word in files and a description for each variant.
macro_rules! words {
    ($(#[doc = $doc:literal])+ $type:ident { $first:ident = $first_word:literal: $first_doc:literal, $( $variant:ident = $word:literal: $variant_doc:literal, )* }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $type {
            #[doc = $first_doc]
            #[default]
            $first,
            $( #[doc = $variant_doc] $variant, )*
        }

        impl $type {
            /// All variants, in declaration order.
            pub const ALL: &[$type] = &[$type::$first, $( $type::$variant, )*];

            /// Returns the word that stands for this value in files.
            pub fn name(self) -> &'static str {
                match self { $type::$first => $first_word, $( $type::$variant => $word, )* }
            }

            /// Returns the description.
            pub fn meaning(self) -> &'static str {
                match self { $type::$first => $first_doc, $( $type::$variant => $variant_doc, )* }
            }

            /// Looks up a value by its word.
            pub fn from_name(word: &str) -> Option<$type> {
                $type::ALL.iter().copied().find(|value| value.name() == word)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                let word = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                $type::from_cell(Cell::Text(&word)).map_err(|error| serde::de::Error::custom(error.problem))
            }
        }

        impl Field for $type {
            const STORAGE: Storage = Storage::Text;
            fn empty() -> $type {
                $type::default()
            }
            fn cell(&self) -> Cell<'_> {
                Cell::Text(self.name())
            }
            fn from_cell(cell: Cell<'_>) -> Result<$type, RowError> {
                let Cell::Text(word) = cell else {
                    return Err(RowError::new("the word is missing"));
                };
                $type::from_name(word).ok_or_else(|| {
                    let hint = names::name_hint(word, $type::ALL.iter().map(|value| value.name()));
                    RowError::new(format!("unknown word `{}`; {hint}", excerpt(word)))
                })
            }
        }
    };
}

words! {
    /// How a time was obtained, for example measured or estimated. Times from different sources are never mixed.
    Source {
        Measured = "measured": "Measured on the hardware named in the row.",
        Emulated = "emulated": "Measured on an emulator of the hardware.",
        Simulated = "simulated": "Computed by a simulator.",
        Imported = "imported": "Imported from a file of another program.",
    }
}

words! {
    /// Outcome of an attempt.
    Outcome {
        Ok = "ok": "The candidate was measured.",
        BuildFailed = "build_failed": "The artifact could not be built.",
        RunFailed = "run_failed": "The artifact could not be run.",
        Crashed = "crashed": "The process that built or ran the candidate died.",
        TimedOut = "timed_out": "A deadline passed.",
        WrongResult = "wrong_result": "The output differs from the reference.",
        Skipped = "skipped": "Not attempted; `reason` states why.",
        PassedOver = "passed_over": "Built by a search and rejected by its cost model before a run.",
    }
}

impl Outcome {
    /// Returns whether a time was expected from the attempt but is missing.
    pub fn is_loss(self) -> bool {
        !matches!(self, Outcome::Ok | Outcome::PassedOver)
    }
}

words! {
    /// Whether the caches held the operands at the start of a sample.
    CacheState {
        Warm = "warm": "Caches hold the data of the previous run.",
        Cold = "cold": "Caches were flushed before each sample.",
        Network = "network": "As the other operators of the model leave them: before each sample, the threads read as many bytes as the model's weights and the activations of its largest operator take, and wrote the task's activations.",
    }
}

impl Choice for CacheState {
    const ALL: &'static [CacheState] = CacheState::ALL;

    fn name(self) -> &'static str {
        self.name()
    }

    fn help(self) -> &'static str {
        match self {
            CacheState::Warm => "Caches contain the data of the previous run",
            CacheState::Cold => "Caches are filled with unrelated data before each run",
            CacheState::Network => "Caches are as the operator's neighbours in the model leave them",
        }
    }

    fn aliases(self) -> &'static [&'static str] {
        &[]
    }
}

words! {
    /// Scatter that the interval of a median covers.
    Covers {
        Visit = "visit": "Scatter of samples within one visit; the median of another visit can be outside.",
        Visits = "visits": "The median of another measurement with as many visits.",
    }
}

words! {
    /// Origin of a schedule.
    ScheduleSource {
        Default = "default": "The compiler's default lowering.",
        Template = "template": "Knobs of a hand-written template.",
        MetaSchedule = "metaschedule": "TVM's search.",
        Trace = "trace": "A recorded trace.",
    }
}

words! {
    /// Kind of target.
    Target {
        Llvm = "llvm": "A CPU, through LLVM.",
        Cuda = "cuda": "An NVIDIA GPU.",
        Pynq = "pynq": "A PYNQ board: ARM cores and an FPGA.",
        Tpu = "tpu": "A Sophgo TPU card.",
        Torch = "torch": "A CPU, through PyTorch and its vendor libraries; nothing is compiled.",
        Other = "other": "A CPU, through the program named by `target_text`; the times are from its trace.",
    }
}
