//! Rules on several axes that forbid schedules. Each has a name, which is reported for a rejected schedule.

use super::{Domain, Form, Knobs, LoopNest, Space, SpaceLimits, canonical_knobs, dots, is_vector};
use crate::axes::{BLOCK, GRAIN, LAYOUT, NumberAxis, PAD_AT, SPLIT_R, TILE_C, TILE_X, TILE_Y, UNROLL, winograd_tile};
use crate::choices::{LayoutKind, PadAt, SumAt, SumOrder, YesNo};
use crate::contraction::{CACHE_C, CACHE_R, CACHE_X, CACHE_Y, ORDER, SUM_AT, VECTORIZE};
use crate::winograd::{STRIP, TILE_P};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub name: &'static str,
    pub text: String,
}

/// Compile time of a scalar element, relative to an element of a vector.
const SCALAR_COST: i64 = 8;

/// Compile time of an element of a vector of odd width, relative to other vectors and per unrolled window column.
const ODD_COST: i64 = 2;

const REGISTERS: &str = "registers";
const CODE: &str = "code";
const VECTOR: &str = "vector";
const TRANSFORMED: &str = "transformed";
const SUMS: &str = "sums";
const CACHED: &str = "cached";
const COPIED: &str = "copied";
const PADDED: &str = "padded";
const BEYOND: &str = "beyond";
const CORE: &str = "core";

/// Maximum ratio of the tiles that are computed to those that are needed; the rest is overhang of groups and chunks.
const WALKED_RATIO_MAX: f64 = 1.25;

/// Maximum number of elements whose sums are finished together, so that they stay in the nearest cache.
const CACHED_ELEMENTS: i64 = 4096;

/// Replaces `CACHED_ELEMENTS` if the depth is split (`CACHE_R`): elements then need to fit only a core's larger cache.
const PART_ELEMENTS: i64 = 1 << 18;

fn walked_ratio(domain: &Domain, knobs: &Knobs) -> f64 {
    if domain.form == Form::Elements { 1.0 } else { LoopNest::without_sums(domain, knobs).walked_ratio() }
}

fn core_rule() -> Rule {
    let text = "data, weights, sums and programs of a tile fit the accelerator's buffers, once per virtual thread";
    Rule { name: CORE, text: text.to_owned() }
}

impl Space {
    pub fn rules(&self) -> Vec<Rule> {
        let mut rules = self.rules_of_limits();
        if self.has_axis(PAD_AT.0.name) && self.has_axis(GRAIN.0.name) {
            let text = "padding in the parallel loop (pad_at=outer) requires grain=1".to_owned();
            rules.push(Rule { name: PADDED, text });
        }
        rules
    }

    fn rules_of_limits(&self) -> Vec<Rule> {
        let (tile_elements, unrolled_elements, tiles, sums) = match &self.limits {
            SpaceLimits::Device(limits) => return limits.limit_rules(),
            SpaceLimits::Core(_) => return vec![core_rule()],
            SpaceLimits::Registers { tile_elements: i64::MAX, .. } => return Vec::new(),
            SpaceLimits::Registers {
                tile_elements,
                unrolled_elements,
                tiles,
                sums,
                window: _,
                domain: _,
                whole: _,
            } => (tile_elements, unrolled_elements, tiles, sums),
        };
        let mut rules = vec![
            Rule {
                name: REGISTERS,
                text: format!(
                    "a register tile has at most {tile_elements} elements: tile_c × tile_y × tile_x, times the block \
                     with layout=blocked"
                ),
            },
            Rule {
                name: CODE,
                text: format!(
                    "a register tile times its unrolled steps (split_r) has at most {unrolled_elements} elements; \
                     elements without vectors count {SCALAR_COST} times, those of vectors of width two or three \
                     {} and {} times, and those of other odd vectors {ODD_COST} times per column of a window",
                    SCALAR_COST / 2,
                    SCALAR_COST / 3
                ),
            },
            Rule {
                name: VECTOR,
                text: "a vector (the block, or tile_x with layout=plain) has a width of at most 16 or a power of two"
                    .to_owned(),
            },
        ];
        if self.has_axis(TILE_X.0.name) {
            let text = "groups of tiles (cache_c, cache_y, cache_x) and chunks of loop steps (grain) may exceed their \
                        loop by at most a quarter of its steps";
            rules.push(Rule { name: BEYOND, text: text.to_owned() });
        }
        if self.has_axis(SUM_AT.0.name) {
            let text = format!(
                "groups of tiles whose sums are finished together have at most {CACHED_ELEMENTS} elements, \
                 {PART_ELEMENTS} with cache_r, and cannot skip padding: order is not kernel_first"
            );
            rules.push(Rule { name: CACHED, text });
        }
        if let SpaceLimits::Registers { whole: Some(whole), .. } = &self.limits {
            let text = format!(
                "blocks that do not divide {whole} require a copy of the operand, and without blocks the operand is \
                 not copied"
            );
            rules.push(Rule { name: COPIED, text });
        }
        if let Some([two, four]) = tiles.filter(|_| self.has_axis(TILE_P.0.name)) {
            let text = format!(
                "tile_p divides the {} tiles of winograd2 or the {} tiles of winograd4, or the tiles of a strip, \
                 which divides their {} or {} rows, and tile_p times the block is at most {tile_elements}",
                two.tile_count(),
                four.tile_count(),
                two.rows,
                four.rows
            );
            rules.push(Rule { name: TRANSFORMED, text });
        }
        if self.has_axis(dots::DOTS_X.0.name) {
            rules.push(Rule { name: SUMS, text: format!("dots_c × dots_x uses at most {sums} registers for sums") });
        }
        rules
    }

    pub fn forbidding_rule(&self, knobs: &Knobs) -> Option<&'static str> {
        let (tile_elements, unrolled_elements, window, tiles, sums, domain, whole) = match &self.limits {
            SpaceLimits::Device(limits) => return limits.forbidding_rule(knobs),
            SpaceLimits::Core(limits) => return (!limits.allows_point(knobs)).then_some(CORE),
            SpaceLimits::Registers { tile_elements, unrolled_elements, window, tiles, sums, domain, whole } => {
                (*tile_elements, *unrolled_elements, *window, *tiles, *sums, domain, *whole)
            }
        };
        if dots::are_lanes_positions(knobs) {
            return (!dots::fits_registers(knobs, sums)).then_some(SUMS);
        }
        // For grouped tiles, TVM allocates too little memory for the padding of several steps.
        if PAD_AT.is_set_to(knobs, PadAt::Outer) && GRAIN.or_one(knobs) > 1 {
            return Some(PADDED);
        }
        if let Some(tile) = winograd_tile(knobs) {
            let tiles = tiles.map(|[two, four]| if tile == 2 { two } else { four });
            let (places, strip) = (TILE_P.or_one(knobs), STRIP.setting_in(knobs).unwrap_or(0));
            let fits = tiles.is_some_and(|tiles| tiles.allows_strip(strip, places));
            return (!fits || places * BLOCK.or_one(knobs) > tile_elements).then_some(TRANSFORMED);
        }
        let tile = TILE_X.or_one(knobs) * TILE_Y.or_one(knobs) * TILE_C.or_one(knobs);
        let is_blocked = matches!(LAYOUT.setting_in(knobs), Some(LayoutKind::Blocked | LayoutKind::Dots));
        let vector = if is_blocked { BLOCK.or_one(knobs) } else { 1 };
        let is_copied = knobs.copies_operand();
        if whole.is_some_and(|whole| if is_blocked { !is_copied && whole % vector != 0 } else { is_copied }) {
            return Some(COPIED);
        }
        let innermost = if is_blocked { vector } else { TILE_X.or_one(knobs) };
        if VECTORIZE.is_set_to(knobs, YesNo::Yes) && !is_vector(innermost) {
            return Some(VECTOR);
        }
        if tile * vector > tile_elements {
            return Some(REGISTERS);
        }
        if walked_ratio(domain, knobs) > WALKED_RATIO_MAX {
            return Some(BEYOND);
        }
        let together = CACHE_C.or_one(knobs) * CACHE_Y.or_one(knobs) * CACHE_X.or_one(knobs);
        let are_cached = SUM_AT.is_set_to(knobs, SumAt::Cache);
        let most = if CACHE_R.or_one(knobs) > 1 { PART_ELEMENTS } else { CACHED_ELEMENTS };
        let fits = !are_cached || (tile * vector).saturating_mul(together) <= most;
        // Padding is skipped for each tile separately.
        if !fits || (are_cached || together > 1) && ORDER.is_set_to(knobs, SumOrder::KernelFirst) {
            return Some(CACHED);
        }
        let steps = if UNROLL.setting_in(knobs) == Some(1) { SPLIT_R.or_one(knobs) } else { 1 };
        let unrolled = tile * vector * steps;
        // The compiler takes far longer for scalar elements than for vectors.
        let is_scalar = VECTORIZE.is_set_to(knobs, YesNo::No);
        let unrolled = match innermost {
            _ if is_scalar => unrolled.saturating_mul(SCALAR_COST),
            1..=3 => unrolled.saturating_mul(SCALAR_COST / innermost),
            _ => unrolled,
        };
        // The compiler splits odd vectors into short ones, which adjacent columns of a window do not share.
        let is_window = window > 1 && !matches!(ORDER.setting_in(knobs), Some(SumOrder::KernelFirst | SumOrder::Xyc));
        let is_odd = is_window && !is_scalar && !is_blocked && innermost.count_ones() > 1 && UNROLL.or_one(knobs) == 1;
        let unrolled = if is_odd { unrolled.saturating_mul(ODD_COST * window) } else { unrolled };
        (unrolled > unrolled_elements).then_some(CODE)
    }

    /// Removes groups of tiles and chunks until their overhang is allowed; few random schedules satisfy this rule.
    pub fn reduce_overhang(&self, mut knobs: Knobs) -> Knobs {
        static MANY: [&NumberAxis; 4] = [&GRAIN, &CACHE_C, &CACHE_Y, &CACHE_X];
        let SpaceLimits::Registers { domain, .. } = &self.limits else { return knobs };
        while self.forbidding_rule(&knobs) == Some(BEYOND) {
            let without = |axis: &NumberAxis| {
                let mut other = knobs.clone();
                other.0.remove(axis.0.name).map(|_| canonical_knobs(other))
            };
            let fewer = MANY.into_iter().filter_map(without);
            match fewer.min_by(|one, other| walked_ratio(domain, one).total_cmp(&walked_ratio(domain, other))) {
                Some(other) => knobs = other,
                None => break,
            }
        }
        knobs
    }

    pub fn allows_point(&self, knobs: &Knobs) -> bool {
        self.forbidding_rule(knobs).is_none()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Cpu, Setting, cpu_space};
    use models::Fuse;

    #[test]
    fn padding_in_the_parallel_loop_requires_single_steps() {
        let machine = Cpu::test(16, 2);
        for text in ["conv2d:ci=24,hw=13,co=48,k=3,p=1", "max_pool2d:c=24,hw=13,k=3,p=1"] {
            let graph = zoo::simple::build_operator(text).unwrap();
            let task = models::plan_calls(&graph, Fuse::Epilogue).unwrap().tasks.remove(0).task;
            let space = cpu_space(&task, &machine);
            let with = |grain: i64| {
                let mut knobs = space.default.clone();
                knobs.0.insert("algorithm".to_owned(), Setting::Choice("direct".to_owned()));
                knobs.0.insert("pad_at".to_owned(), Setting::Choice("outer".to_owned()));
                knobs.0.insert("grain".to_owned(), Setting::Number(grain));
                space.forbidding_rule(&knobs)
            };
            assert_ne!(with(1), Some("padded"), "{text}");
            assert_eq!(with(2), Some("padded"), "{text}");
            assert!(space.rules().iter().any(|rule| rule.name == "padded"), "{text}");
        }
    }
}
