//! Renders a graph as a self-contained HTML page: every task is a box, in layers from inputs to results. Boxes are
//! measured tasks (an anchor with its epilogue) and the nodes between them: views, computed constants, inputs and
//! results. A short script moves, zooms and searches. Names come from files, so they are escaped.

mod folding;
mod layers;

use layers::{DrawingLayout, PlacedBox};
use models::fuse::{Claim, Fuse, plan_with};
use models::{Class, Graph, Result, ValueId};
use report::page::{self, escape_html};
use report::{format_count, format_duration, format_number, format_percent};
use serde_json::json;
use std::collections::HashMap;
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");
const BODY: &str = include_str!("body.html");
const HEIGHT: f64 = 44.0;
const MAX_LINE_CHARACTERS: usize = 48;

struct Card {
    /// CSS class of the box in the page's style sheet.
    style: &'static str,
    title: String,
    subtitle: String,
    /// Lines of the box's tooltip, each as name and value.
    facts: Vec<(&'static str, String)>,
    /// Share of the model's time, or of its operations if some call has no time.
    share: f64,
}

/// A measured time of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredMedian {
    /// The time, in nanoseconds.
    pub time_ns: f64,
    /// Description of the uncertainty and the place of the measurement, such as the host.
    pub remark: String,
}

/// Renders a graph as HTML. `times` contains measured times by task hash.
pub fn render_graph(
    graph: &Graph,
    fuse: Fuse,
    claims: &[Claim],
    times: &HashMap<String, MeasuredMedian>,
) -> Result<String> {
    let mut drawing = Drawing::from_graph(graph, fuse, claims, times)?;
    let legend = format_legend(&drawing.cards, drawing.is_timed);
    let views = drawing.render_views();
    let mut facts = Vec::new();
    for card in &drawing.cards {
        let lines: Vec<_> = card.facts.iter().map(|(name, text)| json!([name, text])).collect();
        facts.push(json!({ "title": card.title, "facts": lines }));
    }
    let data = page::escape_json(&serde_json::to_string(&facts).expect("facts hold only JSON values"));
    let totals = format!("{}.", drawing.totals);
    let parts = [
        ("{{name}}", escape_html(&graph.name)),
        ("{{answer}}", describe_largest(&drawing.largest, drawing.task_count, drawing.is_timed)),
        ("{{largest}}", list_tasks(&drawing.largest, drawing.is_timed)),
        ("{{totals}}", escape_html(&totals)),
        ("{{legend}}", legend),
        ("{{drawing}}", views),
        ("{{data}}", data),
    ];
    // All placeholders are replaced in one pass, so that a name that looks like a placeholder is not replaced.
    let mut body = String::with_capacity(BODY.len() + 4096);
    let mut rest = BODY;
    while let Some((mark, text, at)) =
        parts.iter().filter_map(|(mark, text)| Some((mark, text, rest.find(mark)?))).min_by_key(|(.., at)| *at)
    {
        body.push_str(&rest[..at]);
        body.push_str(text);
        rest = &rest[at + mark.len()..];
    }
    body.push_str(rest);
    Ok(page::whole_page(&graph.name, STYLE, &body))
}

/// A task with a weight: its time, or its operations.
#[derive(Clone, Debug, PartialEq)]
struct HeavyTask {
    name: String,
    hash: String,
    weight: f64,
    /// Share of the weight of all tasks.
    share: f64,
}

struct Drawing {
    cards: Vec<Card>,
    /// Edges as pairs of box indices: source and destination.
    edges: Vec<(usize, usize)>,
    totals: String,
    task_count: usize,
    /// The tasks with half of the time or operations.
    largest: Vec<HeavyTask>,
    /// Whether the bars show times.
    is_timed: bool,
}

impl Drawing {
    fn from_graph(
        graph: &Graph,
        fuse: Fuse,
        claims: &[Claim],
        times: &HashMap<String, MeasuredMedian>,
    ) -> Result<Drawing> {
        let plan = plan_with(graph, fuse, claims)?;
        let mut cards = Vec::new();
        // The box that produces each value.
        let mut maker: HashMap<ValueId, usize> = HashMap::new();
        let mut reads: Vec<(ValueId, usize)> = Vec::new();
        let ty = |id: ValueId| graph.values[id.0 as usize].ty.to_string();
        for &id in &graph.inputs {
            maker.insert(id, cards.len());
            let name = &graph.values[id.0 as usize].name;
            cards.push(plain_card("input", name, ty(id), vec![("input", name.clone()), ("type", ty(id))]));
        }
        let mut in_task = vec![None; graph.nodes.len()];
        let mut works = Vec::new();
        for (index, call) in plan.calls.iter().enumerate() {
            call.nodes.iter().for_each(|&node| in_task[node] = Some(index));
            works.push(plan.tasks[call.task].task.work()?);
        }
        let all: f64 = works.iter().map(|work| work.flops as f64).sum();
        let medians: Vec<Option<&MeasuredMedian>> =
            plan.calls.iter().map(|call| times.get(&plan.tasks[call.task].task.hash())).collect();
        let time_ns: f64 = medians.iter().flatten().map(|median| median.time_ns).sum();
        // The bars show times if every call has one, and operations otherwise.
        let is_timed = !medians.is_empty() && medians.iter().all(Option::is_some);
        for (index, node) in graph.nodes.iter().enumerate() {
            let Some(call) = in_task[index] else {
                maker.insert(node.outputs[0], cards.len());
                reads.extend(node.inputs.iter().map(|&id| (id, cards.len())));
                let output = ty(node.outputs[0]);
                let facts = vec![("result", output.clone()), ("place", node.origin.scope.clone())];
                cards.push(plain_card("view", node.op.name(), output, facts));
                continue;
            };
            let median = medians[call];
            let call = (&plan.calls[call], &plan.tasks[plan.calls[call].task], &works[call]);
            let (call, found, work) = call;
            if call.nodes.last() != Some(&index) {
                continue;
            }
            maker.insert(call.result, cards.len());
            reads.extend(call.arguments.iter().map(|&id| (id, cards.len())));
            let anchor = &graph.nodes[call.nodes[0]];
            let share = if all > 0.0 { work.flops as f64 / all } else { 0.0 };
            let of_time = median.filter(|_| is_timed).map(|median| median.time_ns / time_ns);
            let measured = median.map(|median| {
                let part = of_time.map_or(String::new(), |part| format!(", {} of the model", format_percent(part)));
                format!("{}{part}; {}", format_duration(median.time_ns), median.remark)
            });
            let facts = vec![
                ("task", found.task.describe()),
                ("result", ty(call.result)),
                ("place", anchor.origin.scope.clone()),
                ("source", anchor.origin.source_op.clone()),
                ("work", format!("{}FLOP, {:.1} % of the model", format_amount(work.flops as f64), 100.0 * share)),
                (
                    "moves",
                    format!(
                        "{}B, weights {}B",
                        format_amount((work.bytes_in + work.bytes_out) as f64),
                        format_amount(work.bytes_weights as f64)
                    ),
                ),
                ("measured", measured.unwrap_or_default()),
                ("computed by", found.partner.clone().unwrap_or_default()),
                ("hash", found.task.hash()),
            ];
            cards.push(Card {
                style: class_style(anchor.op.class()),
                title: found.task.name(),
                subtitle: match median {
                    Some(median) => format!("{} · {}", format_duration(median.time_ns), ty(call.result)),
                    None if work.flops > 0 => {
                        format!("{}FLOP · {}", format_amount(work.flops as f64), ty(call.result))
                    }
                    None => ty(call.result),
                },
                facts: facts.into_iter().filter(|(_, text)| !text.is_empty()).collect(),
                share: of_time.unwrap_or(share),
            });
        }
        for &id in &graph.outputs {
            reads.push((id, cards.len()));
            let name = &graph.values[id.0 as usize].name;
            cards.push(plain_card("output", "result", ty(id), vec![("result", name.clone()), ("type", ty(id))]));
        }
        // Constants have no box, because they are numerous and add little information.
        let edges = reads.into_iter().filter_map(|(id, to)| Some((*maker.get(&id)?, to)));
        let mut edges: Vec<(usize, usize)> = edges.collect();
        edges.sort_unstable();
        edges.dedup();
        let measured = (medians.iter().flatten().count(), time_ns);
        let totals = describe_totals([graph.nodes.len(), plan.calls.len(), plan.tasks.len()], all, measured);
        let mut weights = vec![0.0; plan.tasks.len()];
        for ((call, work), median) in plan.calls.iter().zip(&works).zip(&medians) {
            weights[call.task] += median.filter(|_| is_timed).map_or(work.flops as f64, |median| median.time_ns);
        }
        // Tasks are named by their inputs, and boxes show the results.
        let results: HashMap<usize, ValueId> = plan.calls.iter().map(|call| (call.task, call.result)).collect();
        let named = plan.tasks.iter().zip(weights).enumerate().map(|(place, (found, weight))| {
            let result = results.get(&place).map(|&id| format!(" → {}", ty(id))).unwrap_or_default();
            (found.task.describe() + &result, found.task.hash(), weight)
        });
        let largest = tasks_with_half(named.collect());
        Ok(Drawing { cards, edges, totals, task_count: plan.tasks.len(), largest, is_timed })
    }

    /// Returns two drawings: one with repeated blocks folded, if there are any, and the complete one.
    fn render_views(&mut self) -> String {
        let all: Vec<usize> = (0..self.cards.len()).collect();
        let folded = folding::fold_cards(&mut self.cards, &self.edges);
        let folded = folded.map(|folded| self.render_view(&folded.shown, &folded.edges)).unwrap_or_default();
        folded + &self.render_view(&all, &self.edges)
    }

    fn render_view(&self, shown: &[usize], edges: &[(usize, usize)]) -> String {
        let widths = self.card_widths();
        let widths: Vec<f64> = shown.iter().map(|&card| widths[card]).collect();
        let layered = layers::layout_boxes(&widths, edges);
        format!(
            "<g class=\"drawing\" data-width=\"{:.0}\" data-height=\"{:.0}\">\n{}</g>\n",
            layered.width,
            layered.height,
            render_svg(&self.cards, shown, &layered)
        )
    }

    fn card_widths(&self) -> Vec<f64> {
        // Characters of the title are wider, because it is bold.
        let width = |text: &str, letter: f64| letter * text.chars().count().clamp(8, MAX_LINE_CHARACTERS) as f64;
        let widest = |card: &Card| width(&card.title, 7.6).max(width(&card.subtitle, 6.5));
        self.cards.iter().map(|card| 24.0 + widest(card)).collect()
    }
}

fn plain_card(style: &'static str, title: &str, subtitle: String, facts: Vec<(&'static str, String)>) -> Card {
    let facts = facts.into_iter().filter(|(_, text)| !text.is_empty()).collect();
    Card { style, title: title.to_owned(), subtitle, facts, share: 0.0 }
}

fn class_style(class: Class) -> &'static str {
    match class {
        Class::Contraction => "contraction",
        Class::Normalisation => "normalisation",
        Class::Pool => "pool",
        Class::Reduction => "reduction",
        Class::Pointwise => "pointwise",
        Class::Movement => "movement",
        Class::View => "view",
    }
}

fn format_legend(cards: &[Card], is_timed: bool) -> String {
    let mut styles: Vec<&str> = Vec::new();
    for card in cards {
        // Inputs and outputs look alike.
        let style = if card.style == "output" { "input" } else { card.style };
        if !styles.contains(&style) {
            styles.push(style);
        }
    }
    let name = |style| match style {
        "input" => "input or output",
        "contraction" => "convolution or product",
        "movement" => "data movement",
        "view" => "view without a copy",
        _ => style,
    };
    let bars = if is_timed { "bar: time relative to the longest" } else { "bar: operations relative to the largest" };
    let keys: String =
        styles.iter().map(|style| format!("<span class=\"key {style}\">{}</span>", name(*style))).collect();
    format!("{keys}<span class=\"bar-key\">{bars}</span>")
}

fn render_svg(cards: &[Card], shown: &[usize], layered: &DrawingLayout) -> String {
    let mut text = String::new();
    let largest = shown.iter().map(|&card| cards[card].share).fold(0.0, f64::max);
    for line in &layered.edges {
        let _ = writeln!(
            text,
            "<path class=\"edge\" data-from=\"{}\" data-to=\"{}\" d=\"{}\"/>",
            shown[line.from],
            shown[line.to],
            curve_path(&line.points)
        );
    }
    for (&index, PlacedBox { x, y, width }) in shown.iter().zip(&layered.boxes) {
        let card = &cards[index];
        let (left, top) = (x - width / 2.0, y - HEIGHT / 2.0);
        let _ = write!(
            text,
            "<g class=\"card {}\" data-card=\"{index}\" transform=\"translate({left:.1} {top:.1})\">\
             <rect class=\"box\" width=\"{width:.1}\" height=\"{HEIGHT}\" rx=\"7\"/>",
            card.style
        );
        if card.share > 0.0 {
            let bar = ((width - 14.0) * card.share / largest).max(1.0);
            let _ = write!(
                text,
                "<rect class=\"share\" x=\"7\" y=\"{}\" width=\"{bar:.1}\" height=\"3\" rx=\"1.5\"/>",
                HEIGHT - 6.0
            );
        }
        let _ = writeln!(
            text,
            "<text class=\"title\" x=\"{0:.1}\" y=\"18\">{1}</text>\
             <text class=\"type\" x=\"{0:.1}\" y=\"33\">{2}</text></g>",
            width / 2.0,
            escape_html(&shorten_text(&card.title)),
            escape_html(&shorten_text(&card.subtitle))
        );
    }
    text
}

/// Returns the SVG path of a curve that is vertical at each point.
fn curve_path(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (index, &(x, y)) in points.iter().enumerate() {
        match index.checked_sub(1).map(|before| points[before]) {
            None => drop(write!(path, "M{x:.1} {y:.1}")),
            Some((_, before)) => {
                let middle = (before + y) / 2.0;
                let _ = write!(path, "C{:.1} {middle:.1} {x:.1} {middle:.1} {x:.1} {y:.1}", points[index - 1].0);
            }
        }
    }
    path
}

fn shorten_text(text: &str) -> String {
    let is_short = text.chars().count() <= MAX_LINE_CHARACTERS;
    if is_short { text.to_owned() } else { text.chars().take(MAX_LINE_CHARACTERS - 1).chain(['…']).collect() }
}

/// Returns the fewest tasks that have half of the time or operations, the largest first. Tasks are given by their
/// names, hashes and weights.
fn tasks_with_half(tasks: Vec<(String, String, f64)>) -> Vec<HeavyTask> {
    let all: f64 = tasks.iter().map(|(_, _, weight)| weight).sum();
    let heavy = |(name, hash, weight)| HeavyTask { name, hash, weight, share: weight / all };
    let mut tasks: Vec<HeavyTask> = tasks.into_iter().map(heavy).collect();
    tasks.sort_by(|one, other| other.weight.total_cmp(&one.weight));
    let mut passed = 0.0;
    tasks.retain(|task| {
        let is_in_half = passed < 0.5 && task.weight > 0.0;
        passed += task.share;
        is_in_half
    });
    tasks
}

fn format_weight(task: &HeavyTask, is_timed: bool) -> String {
    if is_timed { format_duration(task.weight) } else { format!("{}FLOP", format_amount(task.weight)) }
}

/// Describes as HTML how few of `count` tasks have half of the time or operations. The name of the largest one is a
/// button that shows its boxes.
fn describe_largest(largest: &[HeavyTask], count: usize, is_timed: bool) -> String {
    let Some(first) = largest.first() else { return String::new() };
    let (what, verb) = if is_timed { ("time", "is") } else { ("operations", "are") };
    format!(
        "Half of the {what} {verb} in {} of {}; the most in {} ({}, {}).",
        largest.len(),
        format_count(count, "distinct task"),
        task_button(first),
        format_weight(first, is_timed),
        format_percent(first.share)
    )
}

/// Returns the button that shows the boxes of a task.
fn task_button(task: &HeavyTask) -> String {
    format!("<button class=\"task\" data-hash=\"{}\">{}</button>", escape_html(&task.hash), escape_html(&task.name))
}

/// Returns a folded list of the tasks with half of the time or operations, if there are several.
fn list_tasks(largest: &[HeavyTask], is_timed: bool) -> String {
    if largest.len() < 2 {
        return String::new();
    }
    let item = |task: &HeavyTask| {
        let (button, amount) = (task_button(task), format_weight(task, is_timed));
        format!("<li>{button} {amount}, {}</li>", format_percent(task.share))
    };
    format!(
        "<details><summary>the {} tasks with half of the {}</summary><ol>{}</ol></details>",
        largest.len(),
        if is_timed { "time" } else { "operations" },
        largest.iter().map(item).collect::<String>()
    )
}

/// Describes a graph by its numbers of operators, calls and tasks, its operations, and the number of measured calls
/// with the sum of their times in nanoseconds.
fn describe_totals([operators, calls, tasks]: [usize; 3], flops: f64, (count, time_ns): (usize, f64)) -> String {
    let (measured, time) = match count {
        0 => (String::new(), String::new()),
        count if count == calls => (" (all measured)".to_owned(), format!(", {}", format_duration(time_ns))),
        count => (format!(" ({count} measured)"), format!(", {} for the measured calls", format_duration(time_ns))),
    };
    format!(
        "{} fused into {} of {}{measured}, {}FLOP{time}",
        format_count(operators, "operator"),
        format_count(calls, "call"),
        format_count(tasks, "distinct task"),
        format_amount(flops)
    )
}

/// Formats a number with three digits and a metric prefix.
fn format_amount(number: f64) -> String {
    let scales = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    // Values that round to 1000 have the next prefix.
    match scales.into_iter().find(|(size, _)| number >= 0.9995 * size) {
        Some((size, prefix)) => format!("{} {prefix}", format_number(number / size)),
        None => format!("{number} "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::operators::Unary;
    use models::{GraphBuilder, Op, TensorType, UnaryOp};
    use passes::simplify_graph;

    #[test]
    fn every_task_is_a_box() {
        for name in ["resnet-18", "densenet-121", "lstm"] {
            let graph = simplify_graph(&zoo::build_model(name, 1).unwrap()).unwrap();
            let calls = plan_with(&graph, Fuse::Epilogue, &[]).unwrap().calls.len();
            let page = render_graph(&graph, Fuse::Epilogue, &[], &HashMap::new()).unwrap();
            let (_, page) = page.rsplit_once("<g class=\"drawing\"").unwrap();
            let boxes = |style: &str| page.matches(&format!("<g class=\"card {style}\"")).count();
            let others = boxes("view") + boxes("input") + boxes("output");
            assert_eq!(page.matches("<g class=\"card ").count() - others, calls, "{name}");
            assert!(!page.contains("{{"), "{name}");
        }
    }

    #[test]
    fn layers_of_a_transformer_are_folded() {
        let options = zoo::transformers::Options { sequence: 8, ..Default::default() };
        let name = "gpt2:n_layer=6,n_embd=32,n_head=2,vocab_size=50";
        let loaded = zoo::transformers::load_steps(name, &options, 1).unwrap();
        let graph = simplify_graph(&loaded.graph).unwrap();
        let page = render_graph(&graph, Fuse::Epilogue, &[], &HashMap::new()).unwrap();
        let views: Vec<&str> = page.split("<g class=\"drawing\"").skip(1).collect();
        assert_eq!(views.len(), 2, "a folded drawing and the whole one");
        let boxes = |view: &str| view.matches("<g class=\"card ").count();
        assert!(3 * boxes(views[0]) < boxes(views[1]) && views[0].contains("5 more times"), "{}", boxes(views[0]));
    }

    #[test]
    fn measured_tasks_show_times_and_shares() {
        let graph = simplify_graph(&zoo::build_model("mlp", 1).unwrap()).unwrap();
        let plan = plan_with(&graph, Fuse::Epilogue, &[]).unwrap();
        let median = |place: usize| MeasuredMedian {
            time_ns: 1e3 * 2f64.powi(place as i32),
            remark: "± 0.8 % on a <host>".to_owned(),
        };
        let hashes = || plan.tasks.iter().map(|found| found.task.hash());
        let times: HashMap<String, MeasuredMedian> =
            hashes().enumerate().map(|(place, hash)| (hash, median(place))).collect();
        let page = render_graph(&graph, Fuse::Epilogue, &[], &times).unwrap();
        assert!(page.contains(">1.00 µs · "), "{page}");
        assert!(
            page.contains("</button> (") && page.contains(" → f32[1,10]</button>"),
            "the result as in its box: {page}"
        );
        assert!(page.contains(" % of the model; ± 0.8 % on a \\u003chost>"), "{page}");
        assert!(page.contains(" (all measured), "), "{page}");
        let first: HashMap<String, MeasuredMedian> = hashes().take(1).map(|hash| (hash, median(0))).collect();
        let page = render_graph(&graph, Fuse::Epilogue, &[], &first).unwrap();
        assert!(page.contains("\"1.00 µs; ± 0.8 %") && page.contains(" (1 measured), "), "{page}");
    }

    #[test]
    fn the_largest_tasks_are_named() {
        let tasks = |weights: &[(&str, f64)]| {
            let task = |(name, weight): &(&str, f64)| ((*name).to_owned(), format!("hash of {name}"), *weight);
            tasks_with_half(weights.iter().map(task).collect())
        };
        let largest = tasks(&[("a", 1.0), ("b", 6e6), ("c", 3e6), ("d", 2e6)]);
        assert_eq!(
            describe_largest(&largest, 4, false),
            "Half of the operations are in 1 of 4 distinct tasks; the most in \
             <button class=\"task\" data-hash=\"hash of b\">b</button> (6.00 MFLOP, 54.5 %)."
        );
        assert!(describe_largest(&largest, 4, true).contains("b</button> (6.00 ms, "));
        assert_eq!(list_tasks(&largest, false), "", "the sentence names the only one");
        assert_eq!(describe_largest(&tasks(&[("view", 0.0)]), 1, false), "");
        let largest = tasks(&[("<a>", 4e6), ("b", 3e6), ("c", 2e6), ("d", 2e6)]);
        let button = "<button class=\"task\" data-hash=\"hash of &lt;a&gt;\">&lt;a&gt;</button>";
        let list = list_tasks(&largest, true);
        assert!(list.contains(&format!("{button} 4.00 ms, 36.4 %")) && !list.contains(">c<"), "{list}");
        let sentence = describe_largest(&largest, 4, true);
        assert!(sentence.contains(&format!("the most in {button} (4.00 ms")), "{sentence}");
    }

    #[test]
    fn names_are_escaped() {
        let mut builder = GraphBuilder::new("</title><script>alert(1)</script>{{data}}");
        let x = builder.add_input("</script><b>", TensorType::f32(&[2])).unwrap();
        builder.set_scope("<img src=x onerror=alert(1)>");
        let y = builder.push(Op::Unary(Unary { function: UnaryOp::Relu }), &[x]).unwrap();
        let page = render_graph(&builder.finish(&[y]).unwrap(), Fuse::Epilogue, &[], &HashMap::new()).unwrap();
        assert!(!page.contains("<img") && !page.contains("<b>") && !page.contains("<script>alert"), "{page}");
        assert!(page.contains("{{data}}"), "the name is shown as it is");
    }
}
