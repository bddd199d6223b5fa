//! Operations and cycles of decoded TIU commands: operations of the algorithm and of the hardware, and their time.
//!
//! Products of 16-bit registers exceed 64 bits but always fit into 128.

use super::chip::{Chip, ChipFacts};
use super::descriptor::DescriptorLayout;

/// Operations and cycles of one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationWork {
    pub asked: u128,
    /// Operations of the hardware, including padding.
    pub done: u128,
    /// Minimum cycles of the algorithm at full rate.
    pub cycles: u128,
    /// Cycles before the first result (BM1688, CV84X6).
    pub initial: u128,
    /// Cycles lost to bank conflicts (BM1688).
    pub conflicts: u128,
}

const EACH: OperationWork = OperationWork { asked: 1, done: 1, cycles: 0, initial: 0, conflicts: 0 };
/// Output rows that the cube processes at once.
const CUBE_ROWS: u128 = 4;
const LANE_BYTES: u128 = 16;

/// Returns operations and cycles of a command.
pub fn work(chip: Chip, layout: &DescriptorLayout, bytes: &[u8]) -> OperationWork {
    let command = OperationCommand { chip, facts: chip.facts(), layout, bytes };
    let class = layout.class.as_str();
    let class = if class.len() > 1 && class.starts_with('s') { &class[1..] } else { class };
    let work = match class {
        "CONV" => command.convolution(),
        "MM" => command.matmul(),
        "MM2" => command.matmul2(),
        "CMP" => command.compare(),
        "SFU" => command.special(),
        "LIN" => command.linear(),
        "AR" => command.arithmetic(),
        "PorD" => command.pool(),
        "RQ&sDQ" | "RQ&DQ" => command.quantise(),
        "SG" => command.gather(),
        "SGL" => command.gather_lines(),
        "CW&sBC" | "CW&BC" => command.transpose(),
        "VC" => command.correlate(),
        "SYS" | "SYS_TR_ACC" | "SYS_TR_WR" => EACH,
        _ => OperationWork::default(),
    };
    match chip {
        Chip::Bm1688 | Chip::Cv84x6 => command.with_delays(class, work),
        Chip::Aks | Chip::Aksv => work,
    }
}

struct OperationCommand<'a> {
    chip: Chip,
    facts: &'static ChipFacts,
    layout: &'a DescriptorLayout,
    bytes: &'a [u8],
}

struct OperandShape {
    n: u128,
    c: u128,
    h: u128,
    w: u128,
}

impl OperandShape {
    fn count(&self) -> u128 {
        self.n * self.c * self.h * self.w
    }
}

fn align(value: u128, to: u128) -> u128 {
    value.div_ceil(to) * to
}

/// Returns the index of an element type among 32, 16, 8 and 4 bits.
fn width(dtype: u128) -> usize {
    match dtype {
        2 | 4 => 0,
        1 | 3 | 5 => 1,
        6 => 3,
        _ => 2,
    }
}

fn size(dtype: u128) -> u128 {
    [4, 2, 1, 1][width(dtype)]
}

/// Code of 32-bit floats, which the cube does not support.
const FP32: u128 = 2;

impl OperationCommand<'_> {
    fn get(&self, name: &str) -> u128 {
        u128::from(self.layout.value(self.bytes, name).unwrap_or(0))
    }

    fn sub(&self) -> u128 {
        self.get("tsk_eu_typ")
    }

    fn result(&self) -> OperandShape {
        OperandShape { n: self.get("res0_n"), c: self.get("res0_c"), h: self.get("res0_h"), w: self.get("res0_w") }
    }

    fn lanes(&self) -> u128 {
        u128::from(self.facts.lanes)
    }

    fn elements(&self, dtype: u128) -> u128 {
        u128::from(self.facts.elements[width(dtype)])
    }

    fn cube(&self, dtype: u128) -> u128 {
        u128::from(self.facts.cube[width(dtype)])
    }

    fn operand_type(&self) -> u128 {
        self.get("opt_opd0_prec")
    }

    fn result_type(&self) -> u128 {
        self.get("opt_res0_prec")
    }

    fn work(asked: u128, done: u128, rate: u128) -> OperationWork {
        let cycles = if rate == 0 { 0 } else { asked.div_ceil(rate) };
        OperationWork { asked, done, cycles, ..OperationWork::default() }
    }

    fn convolution(&self) -> OperationWork {
        let (shape, dtype) = (self.result(), self.operand_type());
        let (kernel, channels) = (self.get("opd1_h") * self.get("opd1_w"), self.get("opd0_c"));
        let bias = self.get("opt_opd2_const");
        let per_result = |channels: u128| (2 * channels * kernel + bias).saturating_sub(1);
        let plane = shape.h * shape.w;
        let asked = shape.count() * per_result(channels);
        let (plane, channels, rate) = match dtype {
            FP32 => (align(plane, self.elements(dtype)), channels, self.elements(dtype)),
            _ => (align(plane, CUBE_ROWS), align(channels, self.cube(dtype)), self.cube(dtype) * CUBE_ROWS),
        };
        let done = shape.n * align(shape.c, self.lanes()) * plane * per_result(channels);
        Self::work(asked, done, rate * self.lanes() * 2)
    }

    fn matmul(&self) -> OperationWork {
        let dtype = self.operand_type();
        let (mut rows, mut inner) = (self.get("opd0_n"), self.get("opd0_w") * self.get("opd0_c"));
        if self.get("opt_left_tran") == 1 {
            std::mem::swap(&mut rows, &mut inner);
        }
        let (channels, columns) = (self.get("res0_c"), self.get("res0_w"));
        let padded = align(channels, self.lanes()) * align(columns, self.elements(dtype));
        let rate = self.elements(dtype) * self.lanes() * 2;
        Self::work(2 * rows * inner * channels * columns, 2 * rows * inner * padded, rate)
    }

    fn matmul2(&self) -> OperationWork {
        let is_cv = self.chip == Chip::Cv84x6;
        let (mut rows, mut inner, mut columns) = (self.get("res0_c"), self.get("opd1_w"), self.get("opd1_c"));
        match self.sub() {
            5 => std::mem::swap(&mut inner, &mut columns),
            8 | 11 | 13 if is_cv => std::mem::swap(&mut inner, &mut columns),
            6 => (rows, inner, columns) = (inner, rows, inner),
            9 | 12 if is_cv => (rows, inner, columns) = (inner, rows, inner),
            _ => {}
        }
        let result = self.result_type();
        let step = if self.chip == Chip::Bm1688 { self.cube(result) } else { self.elements(result) };
        let done = 2 * align(rows, self.lanes()) * align(inner, CUBE_ROWS) * align(columns, step);
        let rate = self.cube(self.operand_type()) * CUBE_ROWS * self.lanes() * 2;
        Self::work(2 * rows * inner * columns, done, rate)
    }

    /// Returns the number of elements with lanes padded, and planes padded to a multiple of `step`.
    fn padded_plane(&self, step: u128) -> u128 {
        let shape = self.result();
        shape.n * align(shape.c, self.lanes()) * align(shape.h * shape.w, step)
    }

    /// Returns the number of elements with lanes padded, and rows padded to a multiple of `step`.
    fn padded_rows(&self, step: u128) -> u128 {
        let shape = self.result();
        shape.n * align(shape.c, self.lanes()) * shape.h * align(shape.w, step)
    }

    fn compare(&self) -> OperationWork {
        let operand = self.operand_type();
        let selects = self.chip != Chip::Cv84x6 && matches!(self.sub(), 23 | 24 | 26);
        let result = if selects { self.get("opt_opd2_prec") } else { operand };
        let rate = LANE_BYTES / size(result) * self.lanes() * 2;
        Self::work(2 * self.result().count(), 2 * self.padded_plane(self.elements(operand)), rate)
    }

    fn special(&self) -> OperationWork {
        let operand = self.operand_type();
        let terms = self.get("opd1_n");
        let newer = matches!(self.chip, Chip::Bm1688 | Chip::Cv84x6);
        let (factor, doubled) = match self.sub() {
            12 if newer => ((2 * terms).saturating_sub(1), true),
            13 if self.chip == Chip::Bm1688 => ((2 * terms).saturating_sub(1), true),
            12 | 13 => (terms, false),
            17 => (30, false),
            _ => (1, false),
        };
        let rate = self.elements(operand) * self.lanes() * if doubled { 2 } else { 1 };
        Self::work(factor * self.result().count(), factor * self.padded_plane(self.elements(operand)), rate)
    }

    fn linear(&self) -> OperationWork {
        let result = self.result_type();
        let step = self.elements(if self.chip == Chip::Cv84x6 { self.operand_type() } else { result });
        let rate = LANE_BYTES / size(result) * self.lanes() * 2;
        Self::work(2 * self.result().count(), 2 * self.padded_rows(step), rate)
    }

    fn arithmetic(&self) -> OperationWork {
        const DIVIDE: u128 = 12;
        let factor = if self.sub() == DIVIDE { 5 } else { 1 };
        let step = self.elements(self.operand_type());
        Self::work(factor * self.result().count(), factor * self.padded_plane(step), step * factor * self.lanes())
    }

    fn pool(&self) -> OperationWork {
        let (factor, kernel, rate) = match self.sub() {
            0 => (2, self.get("opd1_h") * self.get("opd1_w"), 2),
            1 | 4 => (2, self.get("opd1_h") * self.get("opd1_w"), 1),
            2 => (7, 1, 3),
            _ => (7, 1, 7),
        };
        let per_result = (factor * kernel).saturating_sub(1);
        let step = self.elements(self.operand_type());
        Self::work(per_result * self.result().count(), per_result * self.padded_plane(step), rate * step * self.lanes())
    }

    fn quantise(&self) -> OperationWork {
        let step = self.elements(self.operand_type());
        Self::work(3 * self.result().count(), 3 * self.padded_plane(step), step * self.lanes() * 3)
    }

    fn gather(&self) -> OperationWork {
        Self::work(self.result().count(), self.padded_rows(self.elements(self.operand_type())), self.lanes())
    }

    fn gather_lines(&self) -> OperationWork {
        let done = self.padded_rows(self.elements(self.result_type()));
        Self::work(self.result().count(), done, self.lanes() * self.lanes())
    }

    fn transpose(&self) -> OperationWork {
        let (mut shape, sub, result) = (self.result(), self.sub(), self.result_type());
        if self.chip != Chip::Cv84x6 && matches!(sub, 4 | 5) {
            (shape.n, shape.h) = (1, 1);
            if sub == 5 {
                shape.w = 1;
            }
        }
        let step = self.elements(result);
        let plane =
            if (2..=5).contains(&sub) { align(shape.h * shape.w, step) } else { shape.h * align(shape.w, step) };
        let done = shape.n * align(shape.c, self.lanes()) * plane;
        let rate = LANE_BYTES / size(result) * if matches!(sub, 3 | 4) { self.lanes() } else { 1 };
        Self::work(shape.count(), done, rate)
    }

    fn correlate(&self) -> OperationWork {
        let shape = self.result();
        let sizes = ["opt_opd0_prec", "opt_opd1_prec", "opt_res0_prec"].map(|name| size(self.get(name)));
        let step = LANE_BYTES / sizes.into_iter().max().unwrap_or(1);
        let rows = match self.chip {
            Chip::Cv84x6 => 1,
            _ => (self.get("opd0_c").saturating_sub(1)) * self.get("opd0_w") + self.get("opd1_w"),
        };
        let done = rows * align(shape.c, self.lanes()) * align(shape.w, step);
        Self::work(rows * shape.c * shape.w, done, step * self.lanes())
    }

    fn with_delays(&self, class: &str, work: OperationWork) -> OperationWork {
        let sub = self.sub();
        let initial = match class {
            "CONV" => 23,
            "MM" => 32,
            "MM2" => match sub {
                4 | 7 => 81,
                5 | 8 | 11 | 13 => 56,
                6 | 9 | 12 => 37,
                _ => 0,
            },
            "CMP" => 9,
            "SFU" if sub == 17 => 14,
            "LIN" => 12,
            "AR" => 11,
            "PorD" => 10,
            "RQ&sDQ" | "RQ&DQ" | "SG" => 11,
            "SGL" => 24,
            "CW&sBC" | "CW&BC" => [30, 0, 27, 27, 3, 3].get(sub as usize).copied().unwrap_or(0),
            _ => 0,
        };
        let conflicts = match class {
            "RQ&sDQ" | "RQ&DQ" if 2 * self.get("res0_addr") == self.get("opd0_addr") => 2,
            "RQ&sDQ" | "RQ&DQ" => 1,
            _ => 0,
        };
        OperationWork { initial, conflicts, ..work }
    }
}
