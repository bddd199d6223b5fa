//! Settings of axes that are selected by name.

use models::choice;

choice! {
    /// Storage format of weights and sums.
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
    /// Order of the loops of a sum.
    pub enum SumOrder {
        /// Depth as the outermost loop.
        DepthFirst = "depth_first",
        /// Window as the outermost loop; skips taps that read only padding for a whole tile.
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
    /// Order of the loops over tiles.
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
    /// Time at which sums are finished.
    pub enum SumAt {
        /// Each tile, before the next tile starts.
        Tile = "tile",
        /// All tiles of a group together.
        Cache = "cache",
    }
}

choice! {
    /// Compute location of padded input.
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
    /// Location of a copy of the data that tiles read.
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
    /// Compute location of the epilogue.
    pub enum WriteAt {
        /// In each tile.
        Tile = "tile",
        /// Once, after all tiles.
        Root = "root",
    }
}

choice! {
    /// Whether the feature of the axis is used.
    pub enum YesNo {
        /// Yes.
        Yes = "yes",
        /// No.
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
        /// All window positions in one reduction.
        Whole = "whole",
        /// Columns first, then rows.
        ColumnsFirst = "columns_first",
    }
}

choice! {
    /// Compute location of intermediate results of row operators.
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
    /// Treatment of key positions that no query of a register tile attends to.
    pub enum Unseen {
        /// Skipped, in blocks of positions that no query of the tile attends to.
        Skipped = "skipped",
        /// Computed, then masked.
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
        /// Once, before all tiles.
        Root = "root",
        /// For each tile of columns.
        Outer = "outer",
        /// For each channel.
        Channel = "channel",
    }
}

choice! {
    /// Threads that sum an element of the result.
    pub enum SummedBy {
        /// One thread.
        Thread = "thread",
        /// All threads of a block.
        Block = "block",
    }
}

choice! {
    /// Arrangement of the parts of a thread's tile.
    pub enum Spread {
        /// Interleaved with the parts of other threads.
        Apart = "apart",
        /// Adjacent elements for each thread.
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
