//! Names of annotations in the trace, as in the vendor's tool.
#![allow(missing_docs)]

/// Names of annotations. The index of a name is its number in the trace.
pub const KEYS: [&str; 38] = [
    "Batch Launch",
    "Kernel Function",
    "Function Type",
    "Function Name",
    "Mode",
    "Cmd Id",
    "Global Idx",
    "uArch Rate",
    "des_cmd_short",
    "des_cmd_id_dep",
    "Data Type",
    "DDR Bandwidth(GB/s)",
    "L2M Bandwidth(GB/s)",
    "Direction",
    "cmd_id_dep",
    "DMA data size(B)",
    "src_info",
    "dst_info",
    "src_start_addr",
    "src_nsize",
    "src_csize",
    "src_hsize",
    "src_wsize",
    "src_nstride",
    "src_cstride",
    "src_hstride",
    "src_wstride",
    "dst_start_addr",
    "dst_nsize",
    "dst_csize",
    "dst_hsize",
    "dst_wsize",
    "dst_nstride",
    "dst_cstride",
    "dst_hstride",
    "dst_wstride",
    "Func Scope Id",
    "Incomplete",
];

pub const BATCH: usize = 0;
pub const KERNEL: usize = 1;
pub const FUNCTION_TYPE: usize = 2;
pub const FUNCTION_NAME: usize = 3;
pub const MODE: usize = 4;
pub const COMMAND_ID: usize = 5;
pub const GLOBAL_INDEX: usize = 6;
pub const RATE: usize = 7;
pub const TIU_SHORT: usize = 8;
pub const TIU_DEPENDENCY: usize = 9;
pub const DATA_TYPE: usize = 10;
pub const DDR: usize = 11;
pub const L2: usize = 12;
pub const DIRECTION: usize = 13;
pub const DEPENDENCY: usize = 14;
pub const SIZE: usize = 15;
pub const SOURCE: usize = 16;
pub const DESTINATION: usize = 17;
pub const SOURCE_FIELDS: usize = 18;
pub const DESTINATION_FIELDS: usize = 27;
pub const SCOPE: usize = 36;
pub const INCOMPLETE: usize = 37;
pub const FIELDS: usize = 9;
