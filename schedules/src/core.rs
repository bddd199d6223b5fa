//! The space of a task on a board's core: how its extents are cut, and which of its parts take turns.

use super::{Axis, Knobs, Setting, Space, SpaceLimits, Template};
use accelerator::{Core, Layer, check_fit, default_knobs, knob_choices, layer_of};
use models::Task;

const MEANINGS: [&str; 7] = [
    "elements of batch that are on the core together",
    "rows of the result that are on the core together",
    "places of a row that are on the core together",
    "blocks of channels of the data that are loaded together",
    "blocks of channels of the result that are on the core together",
    "threads over channels of the result, which take turns",
    "threads over rows of the result, which take turns",
];

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CoreLimits {
    core: Core,
    layer: Option<Layer>,
}

/// Returns one rejected point for a task that the core cannot run.
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
    // Of a core all tasks are cut by the template of products, which no compiler applies there.
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

/// Returns None for points of other spaces.
pub fn core_knobs(knobs: &Knobs) -> Option<accelerator::Knobs> {
    let number = |name: &str| u32::try_from(knobs.number(name)?).ok();
    let numbers = accelerator::Knobs::NAMES.map(number);
    let is_own = knobs.0.len() == numbers.len() && numbers.iter().all(Option::is_some);
    is_own.then(|| accelerator::Knobs::from_array(numbers.map(|number| number.unwrap_or(1))))
}
