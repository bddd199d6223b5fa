//! Heat map of operators by night.

use crate::history::{History, LinePoint};
use crate::judge::Drift;
use crate::machine::MachineDrift;
use crate::title::shorten_label;
use report::page::chart::{cell_class, draw_for_windows, svg_start};
use report::page::escape_html;
use std::collections::BTreeMap;
use std::fmt::Write;

const ROW: f64 = 22.0;
const TOP: f64 = 40.0;
/// Widths of the names and of a cell, in broad and in narrow windows.
const BROAD: (f64, f64) = (190.0, 76.0);
const NARROW: (f64, f64) = (150.0, 48.0);

/// A name with a value for each night, as a logarithm.
type HeatRow = (String, Vec<Option<f64>>);

pub(super) fn heat_map_section(history: &History, drift: &Drift) -> String {
    let machine = match drift.machine.aspects.is_empty() {
        true => "",
        false => " The last rows show the machine's own changes according to the sentinels.",
    };
    let (rows, count) = (heat_rows(history, &drift.machine), history.nights.len());
    let broad = BROAD.0 + BROAD.1 * count as f64;
    let draw = |width: f64| match width < broad {
        // Narrow windows show the last nights, which are the compared ones.
        true => draw_rows(history, &rows, NARROW, count.saturating_sub(((width - NARROW.0) / NARROW.1) as usize)),
        false => draw_rows(history, &rows, BROAD, 0),
    };
    format!(
        "<h2>Nights and operators</h2>\n<p class=\"soft\">Each cell shows the median of all lines of an operator \
         relative to their first night, corrected for the machine. Orange: slower, blue: faster, with full colours \
         from 10 % on; narrow windows show only the last nights. \
         Changes of single lines are under <a href=\"#changes\">What changed</a>.{machine}</p>\n<figure>{}</figure>\n",
        draw_for_windows(broad, draw)
    )
}

/// Returns the median of each operator's times per night, corrected for the machine and relative to its first night.
fn heat_rows(history: &History, machine: &MachineDrift) -> Vec<HeatRow> {
    let mut rests: BTreeMap<&str, Vec<Vec<f64>>> = BTreeMap::new();
    let mut firsts: BTreeMap<&str, usize> = BTreeMap::new();
    for line in history.lines.iter().filter(|line| line.aspect.is_none()) {
        let corrected = |point: &LinePoint| machine.correct_time(point);
        // A line with one point shows no change. The first night of a line is no evidence that the operator is
        // unchanged there.
        let [first, later @ ..] = &line.points[..] else { continue };
        let row = rests.entry(&line.identity.op_kind).or_insert_with(|| vec![Vec::new(); history.nights.len()]);
        later.iter().for_each(|point| row[point.night].push(corrected(point) - corrected(first)));
        firsts
            .entry(&line.identity.op_kind)
            .and_modify(|night| *night = first.night.min(*night))
            .or_insert(first.night);
    }
    for (kind, night) in firsts {
        rests.entry(kind).and_modify(|row| row[night].push(0.0));
    }
    let middle = |values: &Vec<f64>| measure::statistics::median(values);
    let mut rows: Vec<HeatRow> =
        rests.iter().map(|(kind, row)| ((*kind).to_owned(), row.iter().map(middle).collect())).collect();
    rows.extend(machine.aspects.iter().map(|(aspect, levels)| (format!("machine: {}", aspect.name()), levels.clone())));
    rows
}

/// Draws the nights from `first` on, with the given widths of the names and of a cell.
fn draw_rows(history: &History, rows: &[HeatRow], (names, cell): (f64, f64), first: usize) -> String {
    let nights = history.nights.get(first..).unwrap_or_default();
    let mut out = svg_start(names + cell * nights.len() as f64, TOP + ROW * rows.len() as f64, "nights and operators");
    for (place, night) in nights.iter().enumerate() {
        let x = names + cell * (place as f64 + 0.5);
        let _ = write!(out, "<text class=\"soft cell\"><title>{}</title>", escape_html(&night.label));
        let [date, clock] = shorten_label(&night.label);
        // Narrow cells have no room for the year.
        let date = if cell < BROAD.1 { date.get(5..).unwrap_or_default() } else { &date };
        for (text, up) in [(date, 21.0), (&clock, 8.0)] {
            let _ = write!(out, "<tspan x=\"{x:.1}\" y=\"{:.1}\">{}</tspan>", TOP - up, escape_html(text));
        }
        out.push_str("</text>");
    }
    for (down, (name, row)) in rows.iter().enumerate() {
        let y = TOP + ROW * down as f64;
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            names - 8.0,
            y + 15.0,
            escape_html(name)
        );
        for (place, value) in row.iter().skip(first).enumerate() {
            let Some(value) = value else { continue };
            out += &draw_cell(*value, names + cell * place as f64, y, cell);
        }
    }
    out + "</svg>"
}

fn draw_cell(value: f64, x: f64, y: f64, width: f64) -> String {
    let (is_up, strength) = (value > 0.0, (value.abs() / 0.1).min(1.0));
    format!(
        "<rect class=\"{}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" opacity=\"{strength:.2}\"/>\
         <text class=\"{}\" x=\"{:.1}\" y=\"{:.1}\">{:.3}</text>",
        if is_up { "up" } else { "down" },
        width - 2.0,
        ROW - 2.0,
        cell_class(strength, is_up),
        x + width / 2.0,
        y + 14.0,
        value.exp(),
    )
}
