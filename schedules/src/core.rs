//! The schedule space of a task on the FPGA accelerator of a board: tile extents, and the number of virtual threads.

use super::{Axis, Knobs, Setting, Space, SpaceLimits, Template};
use accelerator::{Core, Layer, check_fit, default_knobs, knob_choices, layer_of};
use models::Task;

const MEANINGS: [&str; 7] = [
    "batch elements per pass of the accelerator",
    "result rows per pass of the accelerator",
    "result columns per pass of the accelerator",
    "input channel blocks that are loaded together",
    "result channel blocks per pass of the accelerator",
    "virtual threads over result channels, which alternate between loading and computing",
    "virtual threads over result rows, which alternate between loading and computing",
];

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CoreLimits {
    core: Core,
    layer: Option<Layer>,
}

/// Returns the space of a task; for an unsupported one, a space of one point, which its limits reject.
pub fn core_space(task: &Task, core: &Core) -> Space {
    let layer = layer_of(task).ok();
    let (axes, default) = match &layer {
        None => (Vec::new(), Knobs::default()),
        Some(layer) => {
            let settings = knob_choices(core, layer).into_iter().zip(accelerator::Knobs::NAMES).zip(MEANINGS);
            let axes = settings.map(|((settings, name), meaning)| Axis {
                name,
                meaning,
                settings: settings.into_iter().map(|one| Setting::Number(one.into())).collect(),
            });
            (axes.collect(), knobs_of(&default_knobs(core, layer).unwrap_or(accelerator::Knobs::LEAST)))
        }
    };
    let limits = SpaceLimits::Core(CoreLimits { core: *core, layer });
    // The template has no effect, since no compiler generates code for accelerator cores.
    Space { template: Template::Contraction, axes, default, limits }
}

impl CoreLimits {
    pub(crate) fn allows_point(&self, knobs: &Knobs) -> bool {
        let cut = core_knobs(knobs).zip(self.layer.as_ref());
        cut.is_some_and(|(knobs, layer)| check_fit(&self.core, layer, &knobs).is_ok())
    }
}

fn knobs_of(knobs: &accelerator::Knobs) -> Knobs {
    let numbers = accelerator::Knobs::NAMES.into_iter().zip(knobs.as_array());
    Knobs(numbers.map(|(name, number)| (name.to_owned(), Setting::Number(number.into()))).collect())
}

/// Returns the knobs of the accelerator, or None for a point of another space.
pub fn core_knobs(knobs: &Knobs) -> Option<accelerator::Knobs> {
    let number = |name: &str| u32::try_from(knobs.number(name)?).ok();
    let numbers = accelerator::Knobs::NAMES.map(number);
    let is_own = knobs.0.len() == numbers.len() && numbers.iter().all(Option::is_some);
    is_own.then(|| accelerator::Knobs::from_array(numbers.map(|number| number.unwrap_or(1))))
}
