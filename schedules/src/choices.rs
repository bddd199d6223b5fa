//! Settings of axes that are selected by name.

use models::choice;

choice! {
    /// How weights and sums are stored.
    pub enum LayoutKind {
        /// Blocks of output channels.
        Blocked = "blocked",
        /// Same layout as in the task.
        Plain = "plain",
        /// Groups of 4 bytes along the depth, for 8-bit dot-product instructions.
        Dots = "dots",
    }
}

choice! {
    /// The order of the loops of a sum.
    pub enum SumOrder {
        /// Depth as the outermost loop.
        DepthFirst = "depth_first",
        /// Window as the outermost loop; skips taps that are padding for a whole tile.
        KernelFirst = "kernel_first",
        /// Depth, columns, rows.
        Cxy = "cxy",
        /// Rows, depth, columns.
        Ycx = "ycx",
        /// Columns, depth, rows.
        Xcy = "xcy",
        /// Columns, rows, depth.
        Xyc = "xyc",
    }
}

choice! {
    /// The order of the loops over tiles.
    pub enum TileOrder {
        /// Channels as the outermost loop.
        Channels = "channels",
        /// Channels as the innermost loop.
        Space = "space",
        /// Channels, columns, rows.
        Cxy = "cxy",
        /// Rows, channels, columns.
        Ycx = "ycx",
        /// Columns, channels, rows.
        Xcy = "xcy",
        /// Columns, rows, channels.
        Xyc = "xyc",
    }
}

choice! {
    /// When sums are finished.
    pub enum SumAt {
        /// Each tile, before the next tile starts.
        Tile = "tile",
        /// All tiles of a group together.
        Cache = "cache",
    }
}

choice! {
    /// Where padded input is computed.
    pub enum PadAt {
        /// Inline, where the input is read.
        Inline = "inline",
        /// Once, before all tiles.
        Root = "root",
        /// For each step of the parallel loop.
        Outer = "outer",
        /// For each vector.
        Tile = "tile",
    }
}

choice! {
    /// Where what tiles read is copied.
    pub enum CopyAt {
        /// No copy.
        No = "no",
        /// For each step of the parallel loop.
        Outer = "outer",
        /// For each part of the depth (`cache_r`).
        Part = "part",
    }
}

choice! {
    /// Where what follows the sums is computed.
    pub enum WriteAt {
        /// In each tile.
        Tile = "tile",
        /// Once, after all tiles.
        Root = "root",
    }
}

choice! {
    /// Whether something is done.
    pub enum YesNo {
        /// Yes.
        Yes = "yes",
        /// No.
        No = "no",
    }
}

choice! {
    /// How a convolution is computed.
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
    /// How exponentials and their kin are computed on CPUs.
    pub enum Functions {
        /// Vectorised approximations, with errors of a few units in the last place.
        Vector = "vector",
        /// A call of the system's math library for each element, as exact as that library.
        Library = "library",
    }
}

choice! {
    /// How windows of pools are reduced.
    pub enum Windows {
        /// All window positions in one reduction.
        Whole = "whole",
        /// Columns first, then rows.
        ColumnsFirst = "columns_first",
    }
}

choice! {
    /// For how much of the result helpers of rows are computed at once.
    pub enum HelpersAt {
        /// For each row.
        Row = "row",
        /// Computed once per head, for all of its rows.
        Head = "head",
        /// Once, for all rows.
        Root = "root",
    }
}

choice! {
    /// What becomes of places that no query of a register tile sees.
    pub enum Unseen {
        /// Skipped, in blocks of positions that no query of the tile attends to.
        Skipped = "skipped",
        /// Computed, then masked.
        Computed = "computed",
    }
}

choice! {
    /// Whether data enters products of bytes with a sign.
    pub enum Bytes {
        /// Data as signed bytes.
        Signed = "signed",
        /// Data as unsigned bytes.
        Unsigned = "unsigned",
    }
}

choice! {
    /// Where quads of bytes are put together.
    pub enum QuadsAt {
        /// Once, before all tiles.
        Root = "root",
        /// For each tile of columns.
        Outer = "outer",
        /// For each channel.
        Channel = "channel",
    }
}

choice! {
    /// Who sums an element of the result.
    pub enum SummedBy {
        /// One thread.
        Thread = "thread",
        /// All threads of a block.
        Block = "block",
    }
}

choice! {
    /// Whether even parts of a thread's tile lie apart.
    pub enum Spread {
        /// Interleaved with the parts of other threads.
        Apart = "apart",
        /// Adjacent elements for each thread.
        Together = "together",
    }
}

choice! {
    /// Where the threads of a GPU read operands from.
    pub enum StagedIn {
        /// Shared memory.
        Shared = "shared",
        /// Global memory.
        Global = "global",
    }
}

choice! {
    /// What multiplies.
    pub enum Unit {
        /// Regular arithmetic units.
        Threads = "threads",
        /// Tensor cores.
        Tensor = "tensor",
    }
}

choice! {
    /// What pieces go through on their way to shared memory.
    pub enum CopyThrough {
        /// Registers of the threads.
        Registers = "registers",
        /// Asynchronous copies.
        Async = "async",
    }
}

choice! {
    /// To what operands are rounded.
    pub enum Precision {
        /// 32-bit floats with a 10-bit fraction.
        Tf32 = "tf32",
    }
}

choice! {
    /// How many kernels compute the steps of a row.
    pub enum Kernels {
        /// One kernel for all steps.
        One = "one",
        /// One kernel per step.
        Each = "each",
    }
}
