//! The command `oppredict inplace`.

use crate::loading::print_reasons;
use crate::options::Filter;
use crate::{DONE, DONE_WITH_LOSSES, print_json, print_text, stdout_paper};
use clap::Args;
use predictor::in_place::PlacedNetworks;
use predictor::{Error, Result};
use report::terminal::print_notes;
use report::{Table, format_count, format_duration, number_column, or_unknown, text_column};
use samples::placed::PlacedNetwork;
use serde_json::json;
use std::path::PathBuf;

pub const IN_PLACE_EXAMPLES: &str = "\
Examples:
  opcollect profile --modelsource local --modelname resnet-18 --threads 1 --store opcollect-data
  oppredict inplace --data opcollect-data --operators";

#[derive(Clone, Debug, Args)]
pub struct InPlaceArguments {
    /// Records or store of `opcollect profile --store`; repeatable
    #[arg(long, required = true, value_name = "PATH")]
    pub data: Vec<PathBuf>,
    #[command(flatten)]
    pub filter: Filter,
    /// Also show each operator
    #[arg(long)]
    pub operators: bool,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &InPlaceArguments) -> Result<u8> {
    let report = PlacedNetworks::read_networks(&arguments.data, &arguments.filter.policy()?)?;
    let PlacedNetworks { networks, left_out, .. } = &report;
    print_reasons(left_out);
    if networks.is_empty() {
        return Err(Error::Data(
            "no records of operators in a network\nhint: `opcollect profile --store DIR` creates such records; `--max-uncertainty inf` includes uncertain records"
                .to_owned(),
        ));
    }
    let lacking = networks.iter().flat_map(PlacedNetwork::by_default).filter(|one| one.alone_ns.is_none()).count();
    let note = || {
        let operators = format_count(lacking, "operator");
        format!("{operators} without a well-known isolated time; `--max-uncertainty inf` includes uncertain ones")
    };
    print_notes("note", (lacking > 0).then(note));
    print_text(arguments.json, &network_table(networks).format_for(&stdout_paper()))?;
    if arguments.operators {
        for network in networks {
            print_text(arguments.json, &format!("\n{}", network.name))?;
            print_text(arguments.json, &operator_table(network).format_for(&stdout_paper()))?;
        }
    }
    if arguments.json {
        print_json(&json!(report))?;
    }
    Ok(if left_out.is_empty() { DONE } else { DONE_WITH_LOSSES })
}

fn network_table(networks: &[PlacedNetwork]) -> Table {
    let mut table = Table::new([
        text_column("network"),
        text_column("device").drop_order(2),
        number_column("threads").drop_order(1),
        number_column("isolated"),
        number_column("same in network"),
        number_column("ratio"),
        number_column("all in network"),
        number_column("whole network"),
        number_column("outside operators"),
    ]);
    for network in networks {
        let (in_place_ns, alone_ns) = network.both_ns();
        let ratio = (alone_ns > 0.0).then(|| in_place_ns / alone_ns);
        let known = |ns: f64| or_unknown(Some(ns).filter(|ns| *ns > 0.0), format_duration);
        let beside = network.whole_ns.map(|whole| whole - network.in_place_ns());
        table.add_row([
            network.name.clone(),
            network.device.clone(),
            network.threads.to_string(),
            known(alone_ns),
            known(in_place_ns),
            or_unknown(ratio, |ratio| format!("{ratio:.2}×")),
            format_duration(network.in_place_ns()),
            or_unknown(network.whole_ns, format_duration),
            or_unknown(beside, format_duration),
        ]);
    }
    table
}

fn operator_table(network: &PlacedNetwork) -> Table {
    let columns = [
        text_column("operator").min_width(20),
        number_column("×"),
        number_column("isolated"),
        number_column("in network"),
        number_column("ratio"),
    ];
    let mut table = Table::new(columns);
    let mut operators: Vec<_> = network.by_default().collect();
    operators.sort_by(|left, right| (right.count * right.in_place_ns).total_cmp(&(left.count * left.in_place_ns)));
    for one in operators {
        table.add_row([
            one.text.clone(),
            one.count.to_string(),
            or_unknown(one.alone_ns, format_duration),
            format_duration(one.in_place_ns),
            or_unknown(one.alone_ns, |alone| format!("{:.2}×", one.in_place_ns / alone)),
        ]);
    }
    table
}
