//! Settings of axes that are selected by name.

use models::choice;

choice! {
    /// Storage format of weights and sums.
    pub enum LayoutKind {
        /// Weights and sums in blocks of output channels.
        Blocked = "blocked",
        /// Weights and sums in the layout of the task.
        Plain = "plain",
        /// Groups of 4 bytes along the depth, for 8-bit dot-product instructions.
        Dots = "dots",
    }
}

choice! {
    /// Order of the loops of a sum.
    pub enum SumOrder {
        /// Depth in the outermost loop.
        DepthFirst = "depth_first",
        /// Window in the outermost loop; skips taps that read only padding for a whole tile.
        KernelFirst = "kernel_first",
        /// Loops over depth, columns, rows, outermost first.
        Cxy = "cxy",
        /// Loops over rows, depth, columns, outermost first.
        Ycx = "ycx",
        /// Loops over columns, depth, rows, outermost first.
        Xcy = "xcy",
        /// Loops over columns, rows, depth, outermost first.
        Xyc = "xyc",
    }
}

choice! {
    /// Order of the loops over tiles.
    pub enum TileOrder {
        /// Channels in the outermost loop over tiles.
        Channels = "channels",
        /// Channels in the innermost loop over tiles.
        Space = "space",
        /// Loops over channels, columns, rows, outermost first.
        Cxy = "cxy",
        /// Loops over rows, channels, columns, outermost first.
        Ycx = "ycx",
        /// Loops over columns, channels, rows, outermost first.
        Xcy = "xcy",
        /// Loops over columns, rows, channels, outermost first.
        Xyc = "xyc",
    }
}

choice! {
    /// Time at which sums are finished.
    pub enum SumAt {
        /// Sums of a tile are finished before the next tile starts.
        Tile = "tile",
        /// Sums of all tiles of a group are finished together.
        Cache = "cache",
    }
}

choice! {
    /// Compute location of padded input.
    pub enum PadAt {
        /// Padding is applied inline, where the input is read.
        Inline = "inline",
        /// The whole input is padded once, before all tiles.
        Root = "root",
        /// The input of each step of the parallel loop is padded.
        Outer = "outer",
        /// The input of each vector is padded.
        Tile = "tile",
    }
}

choice! {
    /// Location of a copy of the data that tiles read.
    pub enum CopyAt {
        /// Tiles read the operand without a copy.
        No = "no",
        /// The operand is copied for each step of the parallel loop.
        Outer = "outer",
        /// The operand is copied for each part of the depth (`cache_r`).
        Part = "part",
    }
}

choice! {
    /// Operand of a register tile whose vectors stay in registers while those of the other one are read one by one.
    pub enum HeldOperand {
        /// The input's vectors stay in registers: one broadcast per position.
        Inputs = "inputs",
        /// The vectors of weights stay in registers: one per block of channels.
        Weights = "weights",
    }
}

choice! {
    /// Compute location of the epilogue.
    pub enum WriteAt {
        /// The epilogue is computed in each tile.
        Tile = "tile",
        /// The epilogue is computed once, after all tiles.
        Root = "root",
    }
}

choice! {
    /// Whether the feature of the axis is used.
    pub enum YesNo {
        /// The feature is used.
        Yes = "yes",
        /// The feature is not used.
        No = "no",
    }
}

choice! {
    /// Algorithm of a convolution.
    pub enum Algorithm {
        /// Direct convolution.
        Direct = "direct",
        /// Winograd's algorithm with tiles of 2 × 2.
        Winograd2 = "winograd2",
        /// Winograd's algorithm with tiles of 4 × 4.
        Winograd4 = "winograd4",
    }
}

choice! {
    /// Implementation of exponentials and similar functions on CPUs.
    pub enum Functions {
        /// Vectorised approximations, with errors of a few units in the last place.
        Vector = "vector",
        /// A call of the system's math library for each element, as exact as that library.
        Library = "library",
    }
}

choice! {
    /// Order of reduction of pooling windows.
    pub enum Windows {
        /// All positions of a window in one reduction.
        Whole = "whole",
        /// Columns of a window first, then its rows.
        ColumnsFirst = "columns_first",
    }
}

choice! {
    /// Compute location of intermediate results of row operators.
    pub enum HelpersAt {
        /// Intermediate results are computed for each row.
        Row = "row",
        /// Intermediate results are computed once per head, for all of its rows.
        Head = "head",
        /// Intermediate results are computed once, for all rows.
        Root = "root",
    }
}

choice! {
    /// Treatment of key positions that no query of a register tile attends to.
    pub enum Unseen {
        /// Masked positions are skipped in blocks.
        Skipped = "skipped",
        /// Masked positions are computed like the others, and masked afterwards.
        Computed = "computed",
    }
}

choice! {
    /// Signedness of data in 8-bit dot products.
    pub enum Bytes {
        /// Data as signed bytes.
        Signed = "signed",
        /// Data as unsigned bytes.
        Unsigned = "unsigned",
    }
}

choice! {
    /// Location at which groups of four bytes are packed.
    pub enum QuadsAt {
        /// Bytes are grouped once, before all tiles.
        Root = "root",
        /// Bytes are grouped for each tile of columns.
        Outer = "outer",
        /// Bytes are grouped for each channel.
        Channel = "channel",
    }
}

choice! {
    /// Threads that sum an element of the result.
    pub enum SummedBy {
        /// One thread sums an element.
        Thread = "thread",
        /// All threads of a block sum an element.
        Block = "block",
    }
}

choice! {
    /// Arrangement of the parts of a thread's tile.
    pub enum Spread {
        /// Parts are interleaved with those of other threads.
        Apart = "apart",
        /// Each thread computes adjacent elements.
        Together = "together",
    }
}

choice! {
    /// Memory from which the threads of a GPU read operands.
    pub enum StagedIn {
        /// Shared memory.
        Shared = "shared",
        /// Global memory.
        Global = "global",
    }
}

choice! {
    /// Arithmetic unit of products.
    pub enum Unit {
        /// Regular arithmetic units.
        Threads = "threads",
        /// Tensor cores.
        Tensor = "tensor",
    }
}

choice! {
    /// Path of data to shared memory.
    pub enum CopyThrough {
        /// Registers of the threads.
        Registers = "registers",
        /// Asynchronous copies.
        Async = "async",
    }
}

choice! {
    /// Type to which operands are rounded.
    pub enum Precision {
        /// 32-bit floats with a 10-bit fraction.
        Tf32 = "tf32",
    }
}

choice! {
    /// Number of kernels for the steps of a row operator.
    pub enum Kernels {
        /// One kernel for all steps.
        One = "one",
        /// One kernel per step.
        Each = "each",
    }
}
