//! Flame graph: calls merged by their path of names. In measured profiles, a box is as wide as the operator's typical
//! time, the basis of the table's shares; in imported profiles, as its total time.

use crate::data::{Kind, Profile, Source};
use crate::summary::visits::medians_ns;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of displayed paths; the time of omitted paths remains in their parents.
const PATHS: usize = 5000;
/// Maximum number of paths in memory: a trace may have a unique name for every call.
const MAX_PATHS: usize = 1_000_000;
const DEPTH: usize = 200;

struct FlameNode<'a> {
    name: &'a str,
    depth: usize,
    calls: u64,
    total_ns: u64,
    parts: BTreeMap<&'a str, usize>,
    /// Rows of the table with the operators of the node.
    rows: BTreeSet<usize>,
}

/// Returns the nested boxes of the graph. `row_of` contains the row of each operator in the table.
pub fn flame_tree(profile: &Profile, row_of: &[Option<usize>]) -> Value {
    let nodes = flame_nodes(profile, row_of);
    // Selects the largest paths. A parent is never smaller than its children, so it is selected too.
    let mut sizes: Vec<u64> = nodes.iter().map(|node| node.total_ns).collect();
    sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
    let least = sizes.get(PATHS).map_or(0, |size| size + 1);
    let mut values: Vec<Option<Value>> = (0..nodes.len()).map(|_| None).collect();
    // Children follow their parents.
    for (place, node) in nodes.iter().enumerate().rev() {
        if node.total_ns < least && place > 0 {
            continue;
        }
        let parts: Vec<Value> = node.parts.values().filter_map(|part| values[*part].take()).collect();
        let mut value = json!({ "n": node.name, "v": node.total_ns, "k": node.calls, "r": node.rows });
        if !parts.is_empty() {
            value["c"] = parts.into();
        }
        values[place] = Some(value);
    }
    values.swap_remove(0).expect("the root is kept")
}

fn flame_nodes<'a>(profile: &'a Profile, row_of: &[Option<usize>]) -> Vec<FlameNode<'a>> {
    let empty =
        |name, depth| FlameNode { name, depth, calls: 0, total_ns: 0, parts: BTreeMap::new(), rows: BTreeSet::new() };
    let mut nodes = vec![empty(profile.model.as_str(), 0)];
    let mut of_span: Vec<u32> = Vec::with_capacity(profile.spans.len());
    let own = profile.self_ns();
    let typical = (profile.source != Source::Imported).then(|| medians_ns(profile));
    for (span, own_ns) in profile.spans.iter().zip(own) {
        let operator = &profile.operators[span.operator as usize];
        let whole = span.parent.map_or(0, |parent| of_span[parent as usize] as usize);
        if matches!(span.kind, Kind::Task | Kind::Kernel | Kind::Copy) {
            // Work on other threads and devices runs concurrently with the call and is no part of its time.
            of_span.push(whole as u32);
            continue;
        }
        let mut at = whole;
        let scope = if at == 0 { operator.scope.as_str() } else { "" };
        let names = scope.split('/').filter(|name| !name.is_empty()).chain([operator.name.as_str()]);
        let mut path = Vec::new();
        for name in names {
            let next = nodes[at].parts.get(name).copied();
            let depth = nodes[at].depth + 1;
            at = match next {
                Some(known) => known,
                None if nodes.len() >= MAX_PATHS || depth > DEPTH => break,
                None => {
                    nodes.push(empty(name, depth));
                    let place = nodes.len() - 1;
                    nodes[at].parts.insert(name, place);
                    place
                }
            };
            path.push(at);
        }
        for place in path {
            nodes[place].calls += 1;
        }
        nodes[at].total_ns += match &typical {
            Some(medians_ns) if span.kind == Kind::Operator => medians_ns[span.operator as usize],
            _ => own_ns,
        };
        nodes[at].rows.extend(row_of[span.operator as usize]);
        of_span.push(at as u32);
    }
    // Children follow their parents, which so far have their own times.
    for place in (0..nodes.len()).rev() {
        let parts: Vec<usize> = nodes[place].parts.values().copied().collect();
        let parts_ns: u64 = parts.into_iter().map(|part| nodes[part].total_ns).sum();
        nodes[place].total_ns += parts_ns;
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Operator, Span, Track};

    #[test]
    fn boxes_have_typical_times_unless_they_are_imported() {
        let operator = |name: &str| Operator { name: name.to_owned(), ..Operator::default() };
        let span = |operator, parent, start_ns, duration_ns| Span {
            operator,
            parent,
            start_ns,
            duration_ns,
            ..Span::default()
        };
        let profile = Profile {
            tracks: vec![Track::default()],
            operators: vec![operator("outer"), operator("div_")],
            // The last call of `div_` was preempted.
            spans: vec![
                span(0, None, 0, 100),
                span(1, Some(0), 10, 20),
                span(1, None, 200, 20),
                span(1, None, 300, 900),
            ],
            ..Profile::default()
        };
        profile.check().expect("it fits");
        let value = |profile: &Profile| flame_tree(profile, &[Some(1), Some(0)])["v"].as_u64();
        assert_eq!(value(&profile), Some(80 + 3 * 20));
        let boxes = &flame_tree(&profile, &[Some(1), Some(0)])["c"];
        assert_eq!([&boxes[0]["n"], &boxes[0]["r"]], [&json!("div_"), &json!([0])], "{boxes}");
        assert_eq!(value(&Profile { source: Source::Imported, ..profile }), Some(80 + 20 + 20 + 900));
    }
}
