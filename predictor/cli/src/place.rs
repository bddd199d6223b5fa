//! The command `oppredict place`.

use crate::installation::predictor_file;
use crate::options::{NetworkFlags, parse_not_negative};
use crate::{DONE, DONE_WITH_LOSSES, create_output, print_json, print_text, stdout_paper, write_output};
use clap::Args;
use planners::placement::{Edge, Placement};
use predictor::origin::Origin;
use predictor::planning::placing::{
    PlacementOptions, count_lower_bounds, makespan_ends, place_operators, times_of_network,
};
use predictor::planning::tables::{self, TimesTable};
use predictor::{Error, Result, bundle, pages, this_host};
use report::terminal::print_notes;
use report::{Table, number_column, text_column};
use samples::text::file_label;
use serde_json::json;
use std::path::PathBuf;

pub const PLACE_EXAMPLES: &str = "\
Examples:
  oppredict place --times times.csv --off 10
  oppredict place --model googlenet --predictor gpus.opp --device A100 --device T4 --link-us 10 --link-gb-per-s 12";

/// Flags of networks. A table of times has neither models nor devices to choose, and no transfers between operators.
const NETWORK_FLAGS: [&str; 11] = [
    "model",
    "modelsource",
    "sequence",
    "batchsize",
    "shape",
    "bind",
    "skip_unsupported",
    "predictor",
    "device",
    "link_us",
    "link_gb_per_s",
];

#[derive(Clone, Debug, Args)]
pub struct PlaceArguments {
    /// Table of times in ns, measured or simulated
    ///
    /// A CSV file with the header `operator,DEVICE,DEVICE…` and one operator per line.
    #[arg(long = "times", value_name = "FILE", conflicts_with_all = NETWORK_FLAGS)]
    pub table: Option<PathBuf>,
    /// Neural network, whose dependencies between operators are respected
    #[arg(long, visible_alias = "modelname", value_name = "NAME")]
    pub model: Option<String>,
    #[command(flatten)]
    pub network: NetworkFlags,
    /// Predictor file of `train`, for all devices [default: built-in, for GPUs]
    #[arg(long, value_name = "FILE")]
    pub predictor: Option<PathBuf>,
    /// Device of the predictor; repeatable [default: all]
    #[arg(long, value_name = "NAME")]
    pub device: Vec<String>,
    /// Latency of a transfer between two devices, in microseconds
    #[arg(long, default_value_t = 0.0, value_name = "TIME", value_parser = parse_not_negative)]
    pub link_us: f64,
    /// Bandwidth between two devices, in gigabytes per second
    #[arg(long, default_value_t = 10.0, value_name = "RATE")]
    pub link_gb_per_s: f64,
    /// Power of a busy device; repeatable, for all devices or none
    #[arg(long, value_name = "DEVICE=WATTS")]
    pub watts: Vec<String>,
    /// Cost of energy, in microseconds per joule
    #[arg(long, default_value_t = 0.0, value_name = "PRICE", requires = "watts", value_parser = parse_not_negative)]
    pub price_us_per_j: f64,
    /// Largest assumed error of times in percent, for the printed guarantee
    #[arg(long, value_name = "PERCENT")]
    pub off: Option<f64>,
    /// Write the costs of each operator on each device as an HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &PlaceArguments) -> Result<u8> {
    let page = create_output(arguments.html.as_deref())?;
    let (subject, table, edges) = load_times(arguments)?;
    let options = PlacementOptions {
        link_us: arguments.link_us,
        link_gb_per_s: arguments.link_gb_per_s,
        watts: arguments.watts.clone(),
        price_us_per_j: arguments.price_us_per_j,
    };
    let (instance, found) = place_operators(&table, edges, &options)?;
    let promised = arguments.off.map(|off| {
        let problem = || Error::Query(format!("--off {off} is out of range; give percent from 0 to below 100"));
        found.robust_ratio(off / 100.0).ok_or_else(problem)
    });
    let promised = promised.transpose()?;
    let notes = pages::describe_placement(&table, &instance, &found, arguments.off.zip(promised));
    print_text(arguments.json, &placement_text(&table, &found, &notes))?;
    write_output(page, || pages::placement_page(&subject, &table, &instance, &found, &notes).into_bytes())?;
    let lower_bounds = count_lower_bounds(&table, &found);
    if arguments.json {
        let report = json!({
            "operators": table.operators, "devices": table.devices, "placement": found,
            "is_equilibrium": found.is_equilibrium(), "ratio_most": found.ratio_most(), "promise": promised,
            "times_ns": table.times_ns, "intervals_ns": table.intervals_ns, "source": table.source,
            "makespan_ends": makespan_ends(&table, &instance, &found),
            "lower_bounds": lower_bounds,
        });
        print_json(&report)?;
    }
    Ok(if lower_bounds > 0 { DONE_WITH_LOSSES } else { DONE })
}

/// Returns what is placed, its times and its dependencies.
fn load_times(arguments: &PlaceArguments) -> Result<(String, TimesTable, Vec<Edge>)> {
    if let Some(path) = &arguments.table {
        return Ok((file_label(path), tables::read_table(path)?, Vec::new()));
    }
    let Some(model) = &arguments.model else {
        return Err(Error::Query("nothing to place: give --times FILE, or --model NAME".to_owned()));
    };
    let (network, graph) = arguments.network.load_network(model)?;
    let file = predictor_file(arguments.predictor.as_deref(), None, true)?;
    let predictor = bundle::read_bundle(&file)?;
    print_notes("note", Origin::from_predictor(&predictor.about).mismatch_note());
    if let (true, Ok(device)) = (arguments.device.is_empty(), this_host::learned_on(&predictor)) {
        print_notes("note", [format!("times are for `{device}`; `place` applies no calibration of this machine")]);
    }
    let (table, edges) = times_of_network((&predictor, &file_label(&file)), &graph, &arguments.device)?;
    Ok((network, table, edges))
}

fn placement_text(table: &TimesTable, found: &Placement, notes: &[String]) -> String {
    let mut columns = vec![text_column("operator"), text_column("device"), number_column("time")];
    columns.extend(table.devices.iter().map(|device| number_column(format!("moved to {device}"))));
    let mut shown = Table::new(columns);
    for (operator, (name, device)) in table.operators.iter().zip(&found.devices).enumerate() {
        let own = [name.clone(), table.devices[*device].clone(), pages::describe_time(table, operator, *device)];
        let moves = (0..table.devices.len()).map(|place| pages::describe_move(found, operator, place));
        shown.add_row(own.into_iter().chain(moves));
    }
    format!("{}\n{}", shown.format_for(&stdout_paper()), notes.join("\n"))
}
