//! `oppredict place`.

use crate::installation::predictor_file;
use crate::options::model_source;
use crate::{DONE, begin, finish, paper, print_json, print_text};
use clap::Args;
use planners::placement::{Edge, Placement};
use predictor::origin::Origin;
use predictor::planning::placing::{PlacementOptions, place, times_of_network};
use predictor::planning::tables::{self, TimesTable};
use predictor::queries::{ModelSource, NetworkQuestion};
use predictor::{Error, Result, bundle, pages};
use report::terminal::print_notes;
use report::{Cell, Table, duration, figures, number, words};
use serde_json::json;
use std::path::PathBuf;

pub const PLACE_EXAMPLES: &str = "\
Examples:
  oppredict place --times times.csv --off 10
  oppredict place --model googlenet --predictor gpus.opp --device A100 --device T4 --link-us 10 --link-gb-per-s 12";

#[derive(Clone, Debug, Args)]
pub struct PlaceArguments {
    /// Table of times in ns, measured or simulated
    ///
    /// A CSV file with the header `operator,DEVICE,DEVICE…` and one operator per line.
    #[arg(long = "times", value_name = "FILE", conflicts_with_all = ["model", "predictor"])]
    pub table: Option<PathBuf>,
    /// Neural network, whose dependencies between operators are respected
    #[arg(long, visible_alias = "modelname", value_name = "NAME")]
    pub model: Option<String>,
    /// Source of --model [default: derived from its name]
    #[arg(long, value_parser = model_source(), value_name = "SOURCE")]
    pub modelsource: Option<ModelSource>,
    /// Sequence length of a transformer, in tokens
    #[arg(long, default_value_t = 128, value_name = "N")]
    pub sequence: i64,
    /// Batch size
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub batchsize: i64,
    /// Predictor file of `train`, for all devices [default: built-in, for GPUs]
    #[arg(long, value_name = "FILE")]
    pub predictor: Option<PathBuf>,
    /// Device of the predictor; repeatable [default: all]
    #[arg(long, value_name = "NAME")]
    pub device: Vec<String>,
    /// Latency of a transfer between two devices, in microseconds
    #[arg(long, default_value_t = 0.0, value_name = "TIME")]
    pub link_us: f64,
    /// Bandwidth between two devices, in gigabytes per second
    #[arg(long, default_value_t = 10.0, value_name = "RATE")]
    pub link_gb_per_s: f64,
    /// Power of a busy device; repeatable, for all devices or none
    #[arg(long, value_name = "DEVICE=WATTS")]
    pub watts: Vec<String>,
    /// Cost of energy, in microseconds per joule
    #[arg(long, default_value_t = 0.0, value_name = "PRICE", requires = "watts")]
    pub price_us_per_j: f64,
    /// Relative error of times in percent, for the guarantee
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
    let page = begin(arguments.html.as_deref())?;
    let (table, edges) = asked(arguments)?;
    let options = PlacementOptions {
        link_us: arguments.link_us,
        link_gb_per_s: arguments.link_gb_per_s,
        watts: arguments.watts.clone(),
        price_us_per_j: arguments.price_us_per_j,
    };
    let (instance, found) = place(&table, edges, &options)?;
    let promised = arguments.off.map(|off| {
        let problem = || Error::Query(format!("--off {off} is out of range; give percent from 0 to 99"));
        found.promise(off / 100.0).ok_or_else(problem)
    });
    let promised = promised.transpose()?;
    print_text(arguments.json, &describe(&table, &found, promised))?;
    finish(page, || pages::placement(&table, &instance, &found).into_bytes())?;
    if arguments.json {
        let report = json!({
            "operators": table.operators, "devices": table.devices, "placement": found,
            "is_equilibrium": found.is_equilibrium(), "ratio_most": found.ratio_most(), "promise": promised,
        });
        print_json(&report)?;
    }
    Ok(DONE)
}

/// Returns times and the dependencies between operators.
fn asked(arguments: &PlaceArguments) -> Result<(TimesTable, Vec<Edge>)> {
    if let Some(path) = &arguments.table {
        return Ok((tables::read(path)?, Vec::new()));
    }
    let Some(model) = &arguments.model else {
        return Err(Error::Query("nothing to place: give --times FILE, or --model and each --device".to_owned()));
    };
    let file = predictor_file(arguments.predictor.as_deref(), None, true)?;
    let predictor = bundle::read(&file)?;
    print_notes("note", Origin::of(&predictor.about).note());
    let question = NetworkQuestion {
        source: ModelSource::of(arguments.modelsource, model),
        name: model,
        batch: arguments.batchsize,
        tokens: arguments.sequence,
    };
    times_of_network(&predictor, &question, &arguments.device)
}

fn describe(table: &TimesTable, found: &Placement, promised: Option<f64>) -> String {
    let mut columns = vec![words("operator"), words("device")];
    columns.extend(table.devices.iter().map(|device| figures(format!("pays on {device}"))));
    let mut shown = Table::new(columns);
    for (operator, (name, device)) in table.operators.iter().zip(&found.devices).enumerate() {
        let pays = found.pays_ns[operator].iter().enumerate().map(|(place, pay)| {
            let cell = Cell::from(duration(*pay));
            if place == *device { cell.best() } else { cell }
        });
        shown.row([name.clone().into(), table.devices[*device].clone().into()].into_iter().chain(pays));
    }
    let mut lines = vec![shown.on(&paper()), format!("makespan {}", duration(found.makespan_ns))];
    if found.energy_j > 0.0 {
        lines.push(format!("energy {} J, objective {}", number(found.energy_j), duration(found.objective_ns)));
    }
    lines.push(match found.is_equilibrium() {
        true => "equilibrium: no operator gains by a move of its own".to_owned(),
        false => format!("no equilibrium was found: a move gains up to {}", duration(found.largest_gain_ns)),
    });
    lines.push(match found.is_exact {
        true => "the best of all assignments".to_owned(),
        false => format!(
            "at most {:.3} times the optimum: no assignment takes less than {}",
            found.ratio_most(),
            duration(found.least_ns)
        ),
    });
    if let Some(anarchy) = found.anarchy {
        lines.push(format!("price of anarchy: the worst equilibrium takes {anarchy:.3} times as long"));
    }
    if let Some(most) = found.anarchy_most {
        lines.push(format!("on equal devices that is at most {most:.3}"));
    }
    if let Some(promised) = promised {
        lines.push(format!("with errors up to --off, at most {promised:.3} times the optimum"));
    }
    lines.join("\n")
}
