//! Work of decoded TIU commands: operations of the algorithm, operations that the hardware executes, and cycles.
//! Products of 16-bit registers exceed 64 bits but always fit into 128.

use super::chip::{Chip, ChipFacts};
use super::descriptor::DescriptorLayout;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationWork {
    pub asked: u128,
    /// Operations that the hardware executes, including padding.
    pub done: u128,
    /// Minimum number of cycles of the algorithm, at the full rate.
    pub cycles: u128,
    /// Cycles before the first result (BM1688, CV84X6).
    pub initial: u128,
    /// Cycles lost to bank conflicts (BM1688).
    pub conflicts: u128,
}

const EACH: OperationWork = OperationWork { asked: 1, done: 1, cycles: 0, initial: 0, conflicts: 0 };
/// Output rows that the matrix cube processes at once.
const CUBE_ROWS: u128 = 4;
const LANE_BYTES: u128 = 16;

pub fn command_work(chip: Chip, layout: &DescriptorLayout, bytes: &[u8]) -> OperationWork {
    let command = OperationCommand { chip, facts: chip.facts(), layout, bytes };
    let class = layout.class.as_str();
    let class = if class.len() > 1 && class.starts_with('s') { &class[1..] } else { class };
    let work = match class {
        "CONV" => command.convolution_work(),
        "MM" => command.matmul_work(),
        "MM2" => command.matmul2_work(),
        "CMP" => command.compare_work(),
        "SFU" => command.special_work(),
        "LIN" => command.linear_work(),
        "AR" => command.arithmetic_work(),
        "PorD" => command.pool_work(),
        "RQ&sDQ" | "RQ&DQ" => command.quantise_work(),
        "SG" => command.gather_work(),
        "SGL" => command.gather_lines(),
        "CW&sBC" | "CW&BC" => command.transpose_work(),
        "VC" => command.correlate_work(),
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
    fn element_count(&self) -> u128 {
        self.n * self.c * self.h * self.w
    }
}

fn round_up(value: u128, to: u128) -> u128 {
    value.div_ceil(to) * to
}

/// Returns the index of an element type's width in arrays for 32, 16, 8 and 4 bits.
fn width_index(dtype: u128) -> usize {
    match dtype {
        2 | 4 => 0,
        1 | 3 | 5 => 1,
        6 => 3,
        _ => 2,
    }
}

fn size_bytes(dtype: u128) -> u128 {
    [4, 2, 1, 1][width_index(dtype)]
}

/// Code of 32-bit floats, which the matrix cube does not support.
const FP32: u128 = 2;

impl OperationCommand<'_> {
    fn register_value(&self, name: &str) -> u128 {
        u128::from(self.layout.field_value(self.bytes, name).unwrap_or(0))
    }

    fn sub_type(&self) -> u128 {
        self.register_value("tsk_eu_typ")
    }

    fn result_shape(&self) -> OperandShape {
        OperandShape {
            n: self.register_value("res0_n"),
            c: self.register_value("res0_c"),
            h: self.register_value("res0_h"),
            w: self.register_value("res0_w"),
        }
    }

    fn lane_count(&self) -> u128 {
        u128::from(self.facts.lanes)
    }

    fn lane_elements(&self, dtype: u128) -> u128 {
        u128::from(self.facts.elements[width_index(dtype)])
    }

    fn cube_elements(&self, dtype: u128) -> u128 {
        u128::from(self.facts.cube[width_index(dtype)])
    }

    fn operand_type(&self) -> u128 {
        self.register_value("opt_opd0_prec")
    }

    fn result_type(&self) -> u128 {
        self.register_value("opt_res0_prec")
    }

    fn work_at_rate(asked: u128, done: u128, rate: u128) -> OperationWork {
        let cycles = if rate == 0 { 0 } else { asked.div_ceil(rate) };
        OperationWork { asked, done, cycles, ..OperationWork::default() }
    }

    fn convolution_work(&self) -> OperationWork {
        let (shape, dtype) = (self.result_shape(), self.operand_type());
        let (kernel, channels) =
            (self.register_value("opd1_h") * self.register_value("opd1_w"), self.register_value("opd0_c"));
        let bias = self.register_value("opt_opd2_const");
        let per_result = |channels: u128| (2 * channels * kernel + bias).saturating_sub(1);
        let plane = shape.h * shape.w;
        let asked = shape.element_count() * per_result(channels);
        let (plane, channels, rate) = match dtype {
            FP32 => (round_up(plane, self.lane_elements(dtype)), channels, self.lane_elements(dtype)),
            _ => (
                round_up(plane, CUBE_ROWS),
                round_up(channels, self.cube_elements(dtype)),
                self.cube_elements(dtype) * CUBE_ROWS,
            ),
        };
        let done = shape.n * round_up(shape.c, self.lane_count()) * plane * per_result(channels);
        Self::work_at_rate(asked, done, rate * self.lane_count() * 2)
    }

    fn matmul_work(&self) -> OperationWork {
        let dtype = self.operand_type();
        let (mut rows, mut inner) =
            (self.register_value("opd0_n"), self.register_value("opd0_w") * self.register_value("opd0_c"));
        if self.register_value("opt_left_tran") == 1 {
            std::mem::swap(&mut rows, &mut inner);
        }
        let (channels, columns) = (self.register_value("res0_c"), self.register_value("res0_w"));
        let padded = round_up(channels, self.lane_count()) * round_up(columns, self.lane_elements(dtype));
        let rate = self.lane_elements(dtype) * self.lane_count() * 2;
        Self::work_at_rate(2 * rows * inner * channels * columns, 2 * rows * inner * padded, rate)
    }

    fn matmul2_work(&self) -> OperationWork {
        let is_cv = self.chip == Chip::Cv84x6;
        let (mut rows, mut inner, mut columns) =
            (self.register_value("res0_c"), self.register_value("opd1_w"), self.register_value("opd1_c"));
        match self.sub_type() {
            5 => std::mem::swap(&mut inner, &mut columns),
            8 | 11 | 13 if is_cv => std::mem::swap(&mut inner, &mut columns),
            6 => (rows, inner, columns) = (inner, rows, inner),
            9 | 12 if is_cv => (rows, inner, columns) = (inner, rows, inner),
            _ => {}
        }
        let result = self.result_type();
        let step = if self.chip == Chip::Bm1688 { self.cube_elements(result) } else { self.lane_elements(result) };
        let done = 2 * round_up(rows, self.lane_count()) * round_up(inner, CUBE_ROWS) * round_up(columns, step);
        let rate = self.cube_elements(self.operand_type()) * CUBE_ROWS * self.lane_count() * 2;
        Self::work_at_rate(2 * rows * inner * columns, done, rate)
    }

    /// Returns the result elements after padding channels to lanes, and height × width to a multiple of `step`.
    fn padded_plane(&self, step: u128) -> u128 {
        let shape = self.result_shape();
        shape.n * round_up(shape.c, self.lane_count()) * round_up(shape.h * shape.w, step)
    }

    /// Returns the result elements after padding channels to lanes, and the width to a multiple of `step`.
    fn padded_rows(&self, step: u128) -> u128 {
        let shape = self.result_shape();
        shape.n * round_up(shape.c, self.lane_count()) * shape.h * round_up(shape.w, step)
    }

    fn compare_work(&self) -> OperationWork {
        let operand = self.operand_type();
        let selects = self.chip != Chip::Cv84x6 && matches!(self.sub_type(), 23 | 24 | 26);
        let result = if selects { self.register_value("opt_opd2_prec") } else { operand };
        let rate = LANE_BYTES / size_bytes(result) * self.lane_count() * 2;
        Self::work_at_rate(
            2 * self.result_shape().element_count(),
            2 * self.padded_plane(self.lane_elements(operand)),
            rate,
        )
    }

    fn special_work(&self) -> OperationWork {
        let operand = self.operand_type();
        let terms = self.register_value("opd1_n");
        let newer = matches!(self.chip, Chip::Bm1688 | Chip::Cv84x6);
        let (factor, doubled) = match self.sub_type() {
            12 if newer => ((2 * terms).saturating_sub(1), true),
            13 if self.chip == Chip::Bm1688 => ((2 * terms).saturating_sub(1), true),
            12 | 13 => (terms, false),
            17 => (30, false),
            _ => (1, false),
        };
        let rate = self.lane_elements(operand) * self.lane_count() * if doubled { 2 } else { 1 };
        Self::work_at_rate(
            factor * self.result_shape().element_count(),
            factor * self.padded_plane(self.lane_elements(operand)),
            rate,
        )
    }

    fn linear_work(&self) -> OperationWork {
        let result = self.result_type();
        let step = self.lane_elements(if self.chip == Chip::Cv84x6 { self.operand_type() } else { result });
        let rate = LANE_BYTES / size_bytes(result) * self.lane_count() * 2;
        Self::work_at_rate(2 * self.result_shape().element_count(), 2 * self.padded_rows(step), rate)
    }

    fn arithmetic_work(&self) -> OperationWork {
        const DIVIDE: u128 = 12;
        let factor = if self.sub_type() == DIVIDE { 5 } else { 1 };
        let step = self.lane_elements(self.operand_type());
        Self::work_at_rate(
            factor * self.result_shape().element_count(),
            factor * self.padded_plane(step),
            step * factor * self.lane_count(),
        )
    }

    fn pool_work(&self) -> OperationWork {
        let (factor, kernel, rate) = match self.sub_type() {
            0 => (2, self.register_value("opd1_h") * self.register_value("opd1_w"), 2),
            1 | 4 => (2, self.register_value("opd1_h") * self.register_value("opd1_w"), 1),
            2 => (7, 1, 3),
            _ => (7, 1, 7),
        };
        let per_result = (factor * kernel).saturating_sub(1);
        let step = self.lane_elements(self.operand_type());
        Self::work_at_rate(
            per_result * self.result_shape().element_count(),
            per_result * self.padded_plane(step),
            rate * step * self.lane_count(),
        )
    }

    fn quantise_work(&self) -> OperationWork {
        let step = self.lane_elements(self.operand_type());
        Self::work_at_rate(
            3 * self.result_shape().element_count(),
            3 * self.padded_plane(step),
            step * self.lane_count() * 3,
        )
    }

    fn gather_work(&self) -> OperationWork {
        Self::work_at_rate(
            self.result_shape().element_count(),
            self.padded_rows(self.lane_elements(self.operand_type())),
            self.lane_count(),
        )
    }

    fn gather_lines(&self) -> OperationWork {
        let done = self.padded_rows(self.lane_elements(self.result_type()));
        Self::work_at_rate(self.result_shape().element_count(), done, self.lane_count() * self.lane_count())
    }

    fn transpose_work(&self) -> OperationWork {
        let (mut shape, sub, result) = (self.result_shape(), self.sub_type(), self.result_type());
        if self.chip != Chip::Cv84x6 && matches!(sub, 4 | 5) {
            (shape.n, shape.h) = (1, 1);
            if sub == 5 {
                shape.w = 1;
            }
        }
        let step = self.lane_elements(result);
        let plane =
            if (2..=5).contains(&sub) { round_up(shape.h * shape.w, step) } else { shape.h * round_up(shape.w, step) };
        let done = shape.n * round_up(shape.c, self.lane_count()) * plane;
        let rate = LANE_BYTES / size_bytes(result) * if matches!(sub, 3 | 4) { self.lane_count() } else { 1 };
        Self::work_at_rate(shape.element_count(), done, rate)
    }

    fn correlate_work(&self) -> OperationWork {
        let shape = self.result_shape();
        let sizes =
            ["opt_opd0_prec", "opt_opd1_prec", "opt_res0_prec"].map(|name| size_bytes(self.register_value(name)));
        let step = LANE_BYTES / sizes.into_iter().max().unwrap_or(1);
        let rows = match self.chip {
            Chip::Cv84x6 => 1,
            _ => {
                (self.register_value("opd0_c").saturating_sub(1)) * self.register_value("opd0_w")
                    + self.register_value("opd1_w")
            }
        };
        let done = rows * round_up(shape.c, self.lane_count()) * round_up(shape.w, step);
        Self::work_at_rate(rows * shape.c * shape.w, done, step * self.lane_count())
    }

    fn with_delays(&self, class: &str, work: OperationWork) -> OperationWork {
        let sub = self.sub_type();
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
            "RQ&sDQ" | "RQ&DQ" if 2 * self.register_value("res0_addr") == self.register_value("opd0_addr") => 2,
            "RQ&sDQ" | "RQ&DQ" => 1,
            _ => 0,
        };
        OperationWork { initial, conflicts, ..work }
    }
}
