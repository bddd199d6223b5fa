//! `oppredict place`.

use super::arguments::PlaceOf;
use super::{begin, finish, paper, print, read_predictor};
use crate::error::{Error, Result};
use crate::pages;
use crate::planning::tables::{self, TimesTable};
use crate::queries::{self, Setting};
use models::{Fuse, stages};
use planners::placement::{Edge, Instance, Link, Placement, place};
use report::{Cell, Table, duration, figures, number, words};
use serde_json::json;

/// Puts operators on devices.
pub fn run(arguments: &PlaceOf) -> Result<u8> {
    let page = begin(arguments.html.as_deref())?;
    let (table, edges) = asked(arguments)?;
    let instance = instance(arguments, &table, edges)?;
    let found = place(&instance).map_err(|error| Error::Query(error.to_string()))?;
    let promised = arguments.off.map(|off| {
        let problem = || Error::Query(format!("--off {off} is no share; give percent from 0 to 99"));
        found.promise(off / 100.0).ok_or_else(problem)
    });
    let promised = promised.transpose()?;
    print(&describe(&table, &found, promised))?;
    finish(page, || pages::placement(&table, &instance, &found).into_bytes())?;
    if arguments.json {
        let report = json!({
            "operators": table.operators, "devices": table.devices, "placement": found,
            "is_equilibrium": found.is_equilibrium(), "ratio_most": found.ratio_most(), "promise": promised,
        });
        print(&report.to_string())?;
    }
    Ok(0)
}

/// Times, and what operators read of each other.
fn asked(arguments: &PlaceOf) -> Result<(TimesTable, Vec<Edge>)> {
    if let Some(path) = &arguments.table {
        return Ok((tables::read(path)?, Vec::new()));
    }
    let (Some(model), Some(path)) = (&arguments.model, &arguments.predictor) else {
        let problem = "nothing to place: give --times FILE, or --model and a --predictor of each --device";
        return Err(Error::Query(problem.to_owned()));
    };
    let predictor = read_predictor(path)?;
    let known: Vec<&str> = predictor.about.devices.keys().map(String::as_str).collect();
    if let Some(device) = arguments.device.iter().find(|device| !known.contains(&device.as_str())) {
        return Err(Error::Query(format!(
            "no predictor for the device `{device}`; this one knows {}",
            known.join(", ")
        )));
    }
    let devices = if arguments.device.is_empty() {
        known.into_iter().map(str::to_owned).collect()
    } else {
        arguments.device.clone()
    };
    let refused = |error: models::Error| Error::Query(error.to_string());
    let graph = queries::graph_of(arguments.modelsource, model, arguments.batchsize, arguments.sequence)?;
    let graph = passes::simplify(&graph).map_err(refused)?;
    let cut = models::plan(&graph, Fuse::Epilogue).map_err(refused)?;
    let operators: Vec<_> = cut.tasks.iter().map(queries::of_task).collect::<Result<_>>()?;
    let mut times_ns = vec![Vec::with_capacity(devices.len()); cut.calls.len()];
    for device in &devices {
        let setting = Setting { device: Some(device.clone()), ..Setting::default() };
        let of_tasks = queries::predict_model(&predictor, &operators, &setting)?;
        for (call, times) in cut.calls.iter().zip(&mut times_ns) {
            times.push(of_tasks[call.task].prediction.time_ns);
        }
    }
    let bytes = |call: usize| graph.values[cut.calls[call].result.0 as usize].ty.bytes().unwrap_or(0) as f64;
    let edges = stages::waits(&graph, &cut).into_iter().enumerate();
    let edges = edges.flat_map(|(to, from)| from.into_iter().map(move |from| (from, to))).map(|(from, to)| Edge {
        from,
        to,
        bytes: bytes(from),
    });
    let operators =
        cut.calls.iter().enumerate().map(|(call, one)| format!("{call}: {}", cut.tasks[one.task].task.describe()));
    Ok((TimesTable { operators: operators.collect(), devices, times_ns }, edges.collect()))
}

fn instance(arguments: &PlaceOf, table: &TimesTable, edges: Vec<Edge>) -> Result<Instance> {
    let count = table.devices.len();
    let link = Link { latency_ns: arguments.link_us * 1e3, ns_per_byte: 1.0 / arguments.link_gb_per_s };
    if arguments.link_gb_per_s.is_nan() || arguments.link_gb_per_s <= 0.0 {
        return Err(Error::Query(format!("--link-gb-per-s {} is no rate", arguments.link_gb_per_s)));
    }
    let mut energies_j = Vec::new();
    if !arguments.watts.is_empty() {
        let mut watts = vec![None; count];
        for text in &arguments.watts {
            let wrong = || Error::Query(format!("--watts `{text}` is not DEVICE=NUMBER with a device of the question"));
            let (name, value) = text.rsplit_once('=').ok_or_else(wrong)?;
            let device = table.devices.iter().position(|device| device == name).ok_or_else(wrong)?;
            watts[device] = Some(value.parse::<f64>().ok().filter(|watts| *watts >= 0.0).ok_or_else(wrong)?);
        }
        let lacking = watts.iter().position(Option::is_none);
        if let Some(device) = lacking {
            return Err(Error::Query(format!("--watts of `{}` is missing", table.devices[device])));
        }
        let of =
            |times: &Vec<f64>| times.iter().zip(&watts).map(|(ns, watts)| ns * 1e-9 * watts.unwrap_or(0.0)).collect();
        energies_j = table.times_ns.iter().map(of).collect();
    }
    Ok(Instance {
        times_ns: table.times_ns.clone(),
        edges,
        links: vec![vec![link; count]; count],
        energies_j,
        price_ns_per_j: arguments.price_us_per_j * 1e3,
    })
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
            "at most {:.3} times as long as the best: no assignment takes less than {}",
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
        lines.push(format!("where times are off by as much as said, at most {promised:.3} times as long as the best"));
    }
    lines.join("\n")
}
