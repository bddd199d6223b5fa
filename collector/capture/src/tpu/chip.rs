//! Supported chips and their parameters.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Chip {
    /// SG2260 or BM1690.
    Aks,
    /// SG2260E.
    Aksv,
    Bm1688,
    /// CV84X6 or BM1684X2, two names of one chip.
    Cv84x6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Engine {
    Tiu,
    /// DMA engine between DDR, L2 and local memory.
    Gdma,
    /// DMA engine for transfers within DDR.
    Sdma,
    /// Port that transfers data to another chip.
    Cdma,
}

/// Names and numbers by which `global.profile` identifies chips.
const NAMES: &[(&str, Chip)] = &[
    ("AKS", Chip::Aks),
    ("5", Chip::Aks),
    ("8800", Chip::Aks),
    ("AKSV", Chip::Aksv),
    ("6", Chip::Aksv),
    ("140814", Chip::Aksv),
    ("BM1688", Chip::Bm1688),
    ("4", Chip::Bm1688),
    ("CV84X6", Chip::Cv84x6),
    ("BM1684X2", Chip::Cv84x6),
    ("7", Chip::Cv84x6),
];

#[derive(Clone, Copy, Debug)]
pub struct ChipFacts {
    pub name: &'static str,
    /// Letter that identifies the chip in the files of `tables/`.
    pub letter: char,
    pub cores: u32,
    pub ports: u32,
    pub tiu_mhz: f64,
    pub dma_mhz: f64,
    /// Number of records per engine that the profiler adds at the start.
    pub preamble: usize,
    pub lanes: u64,
    /// Elements per lane and cycle of the vector unit, for 32, 16, 8 and 4 bits.
    pub elements: [u64; 4],
    /// Elements per lane and cycle of the matrix cube, for 32, 16, 8 and 4 bits.
    pub cube: [u64; 4],
    /// DDR bandwidth available to one core.
    pub ddr_gb_per_s: f64,
    /// L2 bandwidth available to one core; 0 without L2.
    pub l2_gb_per_s: f64,
    /// Further rows of the register report, between name and clocks, as labels and texts printed verbatim.
    rows: [(&'static str, &'static str); 17],
}

const ROW_LABELS: [&str; 17] = [
    "Platform",
    "Core Num",
    "NPU Num",
    "TPU Lmem Size(MiB)",
    "Tpu Lmem Addr Width(bits)",
    "Tpu Bank Addr Width(bits)",
    "Execution Unit Number(int8)",
    "Bus Max Burst",
    "L2 Max Burst",
    "Bus Bandwidth",
    "DDR Frequency(MHz)",
    "DDR Max BW(GB/s/Core)",
    "L2 Max BW(GB/s)",
    "Cube IC Align(8bits)",
    "Cube OHOW Align(8bits)",
    "Cube OHOW Align(16bits)",
    "Vector OHOW Align(8bits)",
];

const fn label_rows(texts: [&'static str; 17]) -> [(&'static str, &'static str); 17] {
    let mut rows = [("", ""); 17];
    let mut index = 0;
    while index < 17 {
        rows[index] = (ROW_LABELS[index], texts[index]);
        index += 1;
    }
    rows
}

const AKS: ChipFacts = ChipFacts {
    name: "AKS",
    letter: 'a',
    cores: 8,
    ports: 11,
    tiu_mhz: 1000.0,
    dma_mhz: 1000.0,
    preamble: 2,
    lanes: 64,
    elements: [16, 32, 64, 128],
    cube: [1, 32, 64, 128],
    ddr_gb_per_s: 68.264,
    l2_gb_per_s: 128.0,
    rows: label_rows([
        "ASIC", "8", "64", "16", "18", "14", "64", "2", "1", "128", "8533", "68.264", "128", "64", "4", "4", "64",
    ]),
};

const AKSV: ChipFacts = ChipFacts {
    name: "AKSV",
    letter: 'v',
    cores: 4,
    ports: 10,
    rows: label_rows([
        "ASIC", "4", "64", "16", "18", "14", "64", "2", "1", "128", "8533", "68.264", "128", "64", "4", "4", "64",
    ]),
    ..AKS
};

const BM1688: ChipFacts = ChipFacts {
    name: "A2",
    letter: 'b',
    cores: 2,
    ports: 0,
    tiu_mhz: 900.0,
    dma_mhz: 750.0,
    preamble: 0,
    lanes: 32,
    elements: [4, 8, 16, 32],
    cube: [1, 16, 32, 64],
    ddr_gb_per_s: 32.0,
    l2_gb_per_s: 0.0,
    rows: label_rows([
        "ASIC", "2", "32", "4", "17", "13", "16", "16", "0", "64", "4266", "32", "0", "32", "4", "4", "16",
    ]),
};

const CV84X6: ChipFacts = ChipFacts {
    name: "CV84X6",
    letter: 'c',
    cores: 4,
    ports: 0,
    tiu_mhz: 1400.0,
    dma_mhz: 1200.0,
    preamble: 0,
    lanes: 16,
    elements: [8, 16, 32, 64],
    cube: [1, 16, 32, 64],
    ddr_gb_per_s: 64.0,
    l2_gb_per_s: 0.0,
    rows: label_rows([
        "ASIC", "4", "16", "0.25", "18", "14", "32", "16", "0", "64", "4266", "64", "0", "64", "4", "4", "16",
    ]),
};

impl Chip {
    pub fn from_name(name: &str) -> Option<Chip> {
        NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, chip)| *chip)
    }

    pub fn chip_names() -> String {
        let names: Vec<_> =
            NAMES.iter().filter(|(name, _)| !name.starts_with(|first: char| first.is_ascii_digit())).collect();
        names.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    }

    pub fn facts(self) -> &'static ChipFacts {
        match self {
            Chip::Aks => &AKS,
            Chip::Aksv => &AKSV,
            Chip::Bm1688 => &BM1688,
            Chip::Cv84x6 => &CV84X6,
        }
    }

    pub fn report_parameters(self, tiu_mhz: f64) -> Vec<(&'static str, String)> {
        let facts = self.facts();
        let mut lines = vec![("Chip Arch", facts.name.to_owned())];
        lines.extend(facts.rows.iter().map(|(label, text)| (*label, (*text).to_owned())));
        lines.push(("TIU Frequency(MHz)", format_number(tiu_mhz)));
        lines.push(("DMA Frequency(MHz)", format_number(facts.dma_mhz)));
        lines
    }

    /// Returns the engine of a code, or `None` if it is not profiled. The virtual SDMA counts as SDMA.
    pub fn engine_of_code(self, code: u32) -> Option<Engine> {
        let known: &[Option<Engine>] = match self {
            Chip::Aks => &[
                Some(Engine::Tiu),
                Some(Engine::Gdma),
                None,
                Some(Engine::Sdma),
                Some(Engine::Cdma),
                Some(Engine::Sdma),
            ],
            _ => &[Some(Engine::Tiu), Some(Engine::Gdma), Some(Engine::Sdma), Some(Engine::Cdma), Some(Engine::Sdma)],
        };
        known.get(code as usize).copied().flatten()
    }

    pub fn knows_engine(self, code: u32) -> bool {
        code < if self == Chip::Aks { 6 } else { 5 }
    }
}

pub fn format_number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value}") }
}

impl Engine {
    /// All engines, in the order of reports.
    pub const ALL: [Engine; 4] = [Engine::Tiu, Engine::Gdma, Engine::Sdma, Engine::Cdma];

    pub fn name(self) -> &'static str {
        match self {
            Engine::Tiu => "TIU",
            Engine::Gdma => "GDMA",
            Engine::Sdma => "SDMA",
            Engine::Cdma => "CDMA",
        }
    }

    pub fn report_id(self) -> u32 {
        match self {
            Engine::Tiu => 0,
            Engine::Gdma => 1,
            Engine::Sdma => 3,
            Engine::Cdma => 4,
        }
    }

    pub fn system_op(self) -> u32 {
        match self {
            Engine::Tiu => 15,
            Engine::Gdma | Engine::Sdma => 6,
            Engine::Cdma => 7,
        }
    }
}
