//! What no single axis can state: the rules that forbid points, each with a name, so that what is refused is refused by it.

use super::{Knobs, Limits, Space, beyond, canonical, dots, is_vector};

/// Forbids points of a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub name: &'static str,
    /// What it demands.
    pub text: String,
}

/// How much longer an element takes to compile by itself than as part of a vector.
const SCALAR_COST: i64 = 8;

/// And an odd vector's element for each column of a window that is written out.
const ODD_COST: i64 = 2;

/// Names of the rules for CPUs.
const REGISTERS: &str = "registers";
const CODE: &str = "code";
const VECTOR: &str = "vector";
const TRANSFORMED: &str = "transformed";
const SUMS: &str = "sums";
const CACHED: &str = "cached";
const COPIED: &str = "copied";
const PADDED: &str = "padded";
const BEYOND: &str = "beyond";
/// That of a board's core.
const CORE: &str = "core";

/// Elements of sums that are finished together: they stay in the nearest cache.
const CACHED_ELEMENTS: i64 = 4096;

/// And where they take many steps before the next: they stay in a core's own cache.
const PART_ELEMENTS: i64 = 1 << 18;

fn core_rule() -> Rule {
    let text = "data, weights, sums and programs of a cut fit the core's memories, as often as threads want them";
    Rule { name: CORE, text: text.to_owned() }
}

impl Space {
    /// The rules of this space, where it has any.
    pub fn rules(&self) -> Vec<Rule> {
        let mut rules = self.rules_of_limits();
        if self.has("pad_at") && self.has("grain") {
            let text = "padding in the loops of the pool, pad_at=outer, is that of one step: grain is 1".to_owned();
            rules.push(Rule { name: PADDED, text });
        }
        rules
    }

    fn rules_of_limits(&self) -> Vec<Rule> {
        let (tile_elements, unrolled_elements, tiles, sums) = match &self.limits {
            Limits::Device(limits) => return limits.rules(),
            Limits::Core(_) => return vec![core_rule()],
            Limits::Registers { tile_elements: i64::MAX, .. } => return Vec::new(),
            Limits::Registers { tile_elements, unrolled_elements, tiles, sums, window: _, loops: _, whole: _ } => {
                (tile_elements, unrolled_elements, tiles, sums)
            }
        };
        let mut rules = vec![
            Rule {
                name: REGISTERS,
                text: format!(
                    "a register tile, tile_c × tile_y × tile_x and the block of `blocked`, has at most {tile_elements} elements"
                ),
            },
            Rule {
                name: CODE,
                text: format!(
                    "its elements, times split_r where that is written out, are at most {unrolled_elements}; elements without \
                     vectors count {SCALAR_COST} times, those of vectors of two or three {SCALAR_COST} times over that, those of odd vectors {ODD_COST} times for each column of a window"
                ),
            },
            Rule {
                name: VECTOR,
                text: "a vector, the block or tile_x of `plain`, is at most 16 wide or a power of two".to_owned(),
            },
        ];
        if self.has("tile_x") {
            let text = "what is walked of tiles that are taken together (cache_c, cache_y, cache_x), and of steps that a thread takes \
                        at once (grain), is at most a quarter more than there is";
            rules.push(Rule { name: BEYOND, text: text.to_owned() });
        }
        if self.has("sum_at") {
            let text = format!(
                "tiles whose sums are finished together have at most {CACHED_ELEMENTS} elements, with cache_r {PART_ELEMENTS}, and \
                 tiles that are taken together leave out no padding: order is not kernel_first"
            );
            rules.push(Rule { name: CACHED, text });
        }
        if let Limits::Registers { whole: Some(whole), .. } = &self.limits {
            let text = format!(
                "blocks that do not divide {whole} are of an operand that is copied, and without blocks none is"
            );
            rules.push(Rule { name: COPIED, text });
        }
        if let Some([two, four]) = tiles.filter(|_| self.has("tile_p")) {
            let text = format!(
                "tile_p divides the {} tiles of winograd2 or the {} of winograd4, or those of a strip, which divides their \
                 {} or {} rows, and times the block is at most {tile_elements}",
                two.all(),
                four.all(),
                two.rows,
                four.rows
            );
            rules.push(Rule { name: TRANSFORMED, text });
        }
        if self.has("dots_x") {
            rules.push(Rule { name: SUMS, text: format!("dots_c × dots_x fills at most {sums} registers with sums") });
        }
        rules
    }

    /// The name of the rule that forbids a point; nothing where none does.
    pub fn forbidden(&self, knobs: &Knobs) -> Option<&'static str> {
        let (tile_elements, unrolled_elements, window, tiles, sums, loops, whole) = match &self.limits {
            Limits::Device(limits) => return limits.forbidden(knobs),
            Limits::Core(limits) => return (!limits.allow(knobs)).then_some(CORE),
            Limits::Registers { tile_elements, unrolled_elements, window, tiles, sums, loops, whole } => {
                (*tile_elements, *unrolled_elements, *window, *tiles, *sums, loops, *whole)
            }
        };
        if dots::is_of_places(knobs) {
            return (!dots::allows(knobs, sums)).then_some(SUMS);
        }
        let number = |name: &str| knobs.number(name).unwrap_or(1);
        // TVM gives the padding of several steps too little room where tiles are taken together.
        if knobs.choice("pad_at") == Some("outer") && number("grain") > 1 {
            return Some(PADDED);
        }
        if let Some(tile) = knobs.winograd_tile() {
            let tiles = tiles.map(|[two, four]| if tile == 2 { two } else { four });
            let (places, strip) = (number("tile_p"), knobs.number("strip").unwrap_or(0));
            let fits = tiles.is_some_and(|tiles| tiles.allow(strip, places));
            return (!fits || places * number("block") > tile_elements).then_some(TRANSFORMED);
        }
        let tile = number("tile_x") * number("tile_y") * number("tile_c");
        let is_blocked = matches!(knobs.choice("layout"), Some("blocked" | "dots"));
        let vector = if is_blocked { number("block") } else { 1 };
        let is_copied = knobs.choice("copy_at").is_some_and(|at| at != "no");
        if whole.is_some_and(|whole| if is_blocked { !is_copied && whole % vector != 0 } else { is_copied }) {
            return Some(COPIED);
        }
        let innermost = if is_blocked { vector } else { number("tile_x") };
        if knobs.choice("vectorize") == Some("yes") && !is_vector(innermost) {
            return Some(VECTOR);
        }
        if tile * vector > tile_elements {
            return Some(REGISTERS);
        }
        if loops.walked(knobs) > beyond::MOST {
            return Some(BEYOND);
        }
        let together = number("cache_c") * number("cache_y") * number("cache_x");
        let are_cached = knobs.choice("sum_at") == Some("cache");
        let most = if number("cache_r") > 1 { PART_ELEMENTS } else { CACHED_ELEMENTS };
        let fits = !are_cached || (tile * vector).saturating_mul(together) <= most;
        // What lies in the padding is told of a tile by itself.
        if !fits || (are_cached || together > 1) && knobs.choice("order") == Some("kernel_first") {
            return Some(CACHED);
        }
        let steps = if knobs.number("unroll") == Some(1) { number("split_r") } else { 1 };
        let written_out = tile * vector * steps;
        // Single elements take the compiler far longer than vectors of them.
        let is_scalar = knobs.choice("vectorize") == Some("no");
        let written_out = match innermost {
            _ if is_scalar => written_out.saturating_mul(SCALAR_COST),
            1..=3 => written_out.saturating_mul(SCALAR_COST / innermost),
            _ => written_out,
        };
        // Odd vectors are cut into many, and those of neighbouring columns of a window do not share their parts.
        let is_window = window > 1 && !matches!(knobs.choice("order"), Some("kernel_first" | "xyc"));
        let is_odd = is_window && !is_scalar && !is_blocked && innermost.count_ones() > 1 && number("unroll") == 1;
        let written_out = if is_odd { written_out.saturating_mul(ODD_COST * window) } else { written_out };
        (written_out > unrolled_elements).then_some(CODE)
    }

    /// A point that walks too far past the end with fewer tiles together, and fewer steps at once: of all points there are few that
    /// do not, and who draws would hardly find them.
    pub fn within(&self, mut knobs: Knobs) -> Knobs {
        const MANY: [&str; 4] = ["grain", "cache_c", "cache_y", "cache_x"];
        let Limits::Registers { loops, .. } = &self.limits else { return knobs };
        while self.forbidden(&knobs) == Some(BEYOND) {
            let without = |name: &str| {
                let mut other = knobs.clone();
                other.0.remove(name).map(|_| canonical(other))
            };
            let fewer = MANY.into_iter().filter_map(without);
            match fewer.min_by(|one, other| loops.walked(one).total_cmp(&loops.walked(other))) {
                Some(other) => knobs = other,
                None => break,
            }
        }
        knobs
    }

    /// Whether no rule forbids a point.
    pub fn allows(&self, knobs: &Knobs) -> bool {
        self.forbidden(knobs).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Setting, space};
    use crate::target::llvm;
    use models::Fuse;

    #[test]
    fn padding_in_the_loops_of_the_pool_is_that_of_one_step() {
        let machine = llvm("x86-64-v4", &["avx512f".to_owned()], 2).machine;
        for text in ["conv2d:ci=24,hw=13,co=48,k=3,p=1", "max_pool2d:c=24,hw=13,k=3,p=1"] {
            let graph = zoo::simple::build(text).unwrap();
            let task = models::plan(&graph, Fuse::Epilogue).unwrap().tasks.remove(0).task;
            let space = space(&task, &machine);
            let with = |grain: i64| {
                let mut knobs = space.default.clone();
                knobs.0.insert("algorithm".to_owned(), Setting::Choice("direct".to_owned()));
                knobs.0.insert("pad_at".to_owned(), Setting::Choice("outer".to_owned()));
                knobs.0.insert("grain".to_owned(), Setting::Number(grain));
                space.forbidden(&knobs)
            };
            assert_ne!(with(1), Some("padded"), "{text}");
            assert_eq!(with(2), Some("padded"), "{text}");
            assert!(space.rules().iter().any(|rule| rule.name == "padded"), "{text}");
        }
    }
}
