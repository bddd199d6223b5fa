//! Printed names of operations, from text files in `tables/`. Missing names are formed from the code numbers.

use super::chip::Chip;
use std::collections::HashMap;
use std::sync::LazyLock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    pub kind: &'static str,
    pub name: &'static str,
}

pub const UNKNOWN: u32 = 31;
const CODES: usize = 32;

struct NameTable(Vec<Names>);

impl NameTable {
    fn names_of(&self, op: u32, sub: u32) -> Names {
        self.0[(op as usize % CODES) * CODES + sub as usize % CODES]
    }

    /// Parses lines of the form `OP type: SUB name; …`. `missing` provides the names of operations that have none.
    fn parse_lines<'a>(
        lines: impl Iterator<Item = &'a str>,
        missing: impl Fn(u32, &str, u32) -> Option<String>,
    ) -> NameTable {
        let mut kinds: HashMap<u32, (&str, HashMap<u32, String>)> = HashMap::new();
        for line in lines {
            let (head, subs) = line.split_once(':').expect("the built-in table is valid");
            let (op, kind) = head.split_once(' ').expect("the built-in table is valid");
            let names = subs.split("; ").map(|item| item.trim_start()).filter_map(|item| item.split_once(' '));
            let names =
                names.map(|(sub, name)| (sub.parse().expect("the built-in table is valid"), name.replace('~', " ")));
            kinds.insert(op.parse().expect("the built-in table is valid"), (kind, names.collect()));
        }
        let mut table = Vec::with_capacity(CODES * CODES);
        for op in 0..CODES as u32 {
            let kind = kinds.get(&op).map_or(format!("cmd_type_{op}"), |(kind, _)| (*kind).to_owned());
            let kind: &'static str = kind.leak();
            for sub in 0..CODES as u32 {
                let known = kinds.get(&op).and_then(|(_, names)| names.get(&sub).cloned());
                let name = known.or_else(|| missing(op, kind, sub));
                table.push(Names { kind, name: name.map_or(kind, |name| name.leak()) });
            }
        }
        NameTable(table)
    }
}

fn table_lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn section_lines(text: &'static str, head: &'static str) -> impl Iterator<Item = &'static str> {
    let own = table_lines(text).skip_while(move |line| *line != head).skip(1);
    own.take_while(|line| !line.starts_with('['))
}

pub fn tiu_names(op: u32, sub: u32) -> Names {
    static TABLE: LazyLock<NameTable> = LazyLock::new(|| {
        NameTable::parse_lines(table_lines(include_str!("tables/tiu_names.txt")), |_, kind, sub| {
            Some(format!("{kind}_{sub}"))
        })
    });
    TABLE.names_of(op, sub)
}

pub fn dma_names(chip: Chip, op: u32, sub: u32) -> Names {
    static TABLES: LazyLock<[NameTable; 3]> = LazyLock::new(|| {
        ["[a v]", "[b]", "[c]"].map(|head| {
            NameTable::parse_lines(section_lines(include_str!("tables/dma_names.txt"), head), |_, _, _| None)
        })
    });
    let table = match chip {
        Chip::Aks | Chip::Aksv => 0,
        Chip::Bm1688 => 1,
        Chip::Cv84x6 => 2,
    };
    TABLES[table].names_of(op, sub)
}

pub fn port_names(op: u32, sub: u32) -> Names {
    static TABLE: LazyLock<NameTable> = LazyLock::new(|| {
        let missing = |_: u32, kind: &str, sub: u32| (sub != 0).then(|| format!("{kind}_{sub}"));
        NameTable::parse_lines(section_lines(include_str!("tables/dma_names.txt"), "[cdma]"), missing)
    });
    TABLE.names_of(op, sub)
}

/// Returns type and name of a CV84X6 generator; its variant is the sub-operation and the node's upper bits.
pub fn rvt_names(function: u32, sub: u32, extra: u32) -> Names {
    static TABLE: LazyLock<Vec<(&str, Vec<String>)>> = LazyLock::new(|| {
        let rows = table_lines(include_str!("tables/rvt_names.txt"));
        rows.map(|line| {
            let (head, variants) = line.split_once(": ").expect("the built-in table is valid");
            let (_, label) = head.split_once(' ').expect("the built-in table is valid");
            (label, variants.split(' ').map(|variant| format!("rvt_{variant}")).collect())
        })
        .collect()
    });
    match TABLE.get(function as usize) {
        None => Names { kind: "rvt", name: "unknown" },
        Some((kind, variants)) => {
            let variant = (sub | (extra & 0x7ff) << 5) as usize;
            Names { kind, name: variants.get(variant).map_or("unknown", String::as_str) }
        }
    }
}

pub const DTYPES: [&str; 10] = ["INT8", "FP16", "FP32", "INT16", "INT32", "BFP16", "INT4", "FP8", "FP20", "TF32"];

/// Returns an element type's name, such as `dtype_10` for a code without one, where the vendor's tool fails.
pub fn dtype_name(code: u64) -> &'static str {
    const BEYOND: [&str; 6] = ["dtype_10", "dtype_11", "dtype_12", "dtype_13", "dtype_14", "dtype_15"];
    let code = code as usize;
    DTYPES.get(code).or(BEYOND.get(code.wrapping_sub(DTYPES.len()))).copied().unwrap_or("unknown")
}

/// Returns the name of a conversion in the workbook, which consists of both element types.
pub fn conversion_name(from: Option<u64>, to: Option<u64>) -> &'static str {
    const CODES: usize = 17;
    static TABLE: LazyLock<Vec<String>> = LazyLock::new(|| {
        let name = |code: usize| if code == 0 { "None" } else { dtype_name(code as u64 - 1) };
        (0..CODES * CODES).map(|pair| format!("{} -> {}", name(pair / CODES), name(pair % CODES))).collect()
    });
    let place = |code: Option<u64>| code.map_or(0, |code| (code as usize).min(CODES - 2) + 1);
    &TABLE[place(from) * CODES + place(to)]
}
