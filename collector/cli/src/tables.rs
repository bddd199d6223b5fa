//! Values of flags about tables of operators.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use engine::report::styled::Style;
use profile::SortBy;

/// Sort keys: the words of torch.profiler, which says `cuda` for `device`, and the order of first calls.
const SORT_KEYS: [(SortBy, &str, Option<&str>, &str); 12] = [
    (SortBy::CpuTime, "cpu_time", None, "Mean time of a call"),
    (SortBy::CpuTimeTotal, "cpu_time_total", None, "Time of all calls with what they are made of"),
    (SortBy::SelfCpuTimeTotal, "self_cpu_time_total", None, "Time of all calls without what they are made of"),
    (SortBy::DeviceTime, "device_time", Some("cuda_time"), "Mean time of a call on a device"),
    (
        SortBy::DeviceTimeTotal,
        "device_time_total",
        Some("cuda_time_total"),
        "Time of all calls on a device with what they are made of",
    ),
    (
        SortBy::SelfDeviceTimeTotal,
        "self_device_time_total",
        Some("self_cuda_time_total"),
        "Time of all calls on a device without what they are made of",
    ),
    (SortBy::CpuMemoryUsage, "cpu_memory_usage", None, "Memory that calls take, with what they are made of"),
    (
        SortBy::SelfCpuMemoryUsage,
        "self_cpu_memory_usage",
        None,
        "Memory that calls take, without what they are made of",
    ),
    (
        SortBy::DeviceMemoryUsage,
        "device_memory_usage",
        Some("cuda_memory_usage"),
        "Memory of a device that calls take, with what they are made of",
    ),
    (
        SortBy::SelfDeviceMemoryUsage,
        "self_device_memory_usage",
        Some("self_cuda_memory_usage"),
        "Memory of a device that calls take, without what they are made of",
    ),
    (SortBy::Count, "count", None, "Number of calls"),
    (SortBy::Order, "order", None, "The order of first calls"),
];

/// Parses a sort key.
pub fn sort_keys() -> impl TypedValueParser<Value = SortBy> {
    let values = SORT_KEYS.map(|(_, name, alias, help)| PossibleValue::new(name).aliases(alias).help(help));
    PossibleValuesParser::new(values).try_map(|given| {
        let named = SORT_KEYS.iter().find(|(_, name, alias, _)| given == *name || Some(given.as_str()) == *alias);
        named.map(|key| key.0).ok_or("no sort key has this name")
    })
}

/// Parses the name of the tool whose table is made.
pub fn styles() -> impl TypedValueParser<Value = Style> {
    let values = [("torch", "torch.profiler's"), ("tvm", "That of the report TVM had")];
    PossibleValuesParser::new(values.map(|(name, help)| PossibleValue::new(name).help(help)))
        .map(|name| if name == "tvm" { Style::Tvm } else { Style::Torch })
}
