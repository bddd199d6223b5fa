//! Columns of the workbook's sheets, in order. Except for layer and derived columns, their names are keys of events.

/// Columns of TIU sheets. Columns without data are omitted. `{…}` expands to one column per letter.
const TIU: &str = "Engine Id|Core Id|Global Idx|Cmd Id|Layer Id|Layer Name|Function Type|Function Name|Alg Cycle|\
Asic Cycle|Start Time(ns)|End Time(ns)|Avg Cycle Last 200|Alg Ops|uArch Ops|uArch Rate|Data Type|des_cmd_id_dep|\
des_res0_{nchw}|des_res0_{nchw}_str|des_opd0_{nchw}|des_opd0_{nchw}_str|des_opd1_{nchw}|des_opd1_{nchw}_str|\
des_opd2_n_str|des_res0_addr|des_res1_addr|des_opd0_addr|des_opd1_addr|des_opd2_addr|des_opd3_addr|des_tsk_typ|\
des_tsk_eu_typ|des_cmd_short|des_opt_res0_prec|des_opt_opd0_prec|des_opt_opd1_prec|des_opt_opd2_prec|\
des_short_opd0_str|des_opt_opd{012345}_const|des_opt_res_add|des_opt_res0_sign|des_opt_opd0_sign|des_opt_opd1_sign|\
des_opt_opd2_sign|des_opd0_rt_pad|des_opd1_x_ins0|des_opd0_up_pad|des_opd0_lf_pad|des_opt_left_tran|des_pad_mode|\
des_opd0_y_ins0|des_opd1_y_ins0|des_short_res0_str|des_short_opd1_str|des_sym_range|des_opt_rq|des_op_code|\
des_opt_kernel_rotate|des_res_op_x_str|des_res_op_y_str|des_opd0_x_ins0|des_tsk_opd_num|des_opd0_dn_pad|des_intr_en|\
des_opt_relu|des_pwr_step";

const DMA: &str = "Engine Id|Core Id|Global Idx|Cmd Id|Layer Id|Layer Name|Function Type|Function Name|\
DMA data size(B)|Start Time(ns)|End Time(ns)|Asic Cycle|Stall Cycle|DDR Bandwidth(GB/s)|L2M Bandwidth(GB/s)|Direction|\
Data Type|cmd_id_dep|cmd_special_function|src_start_addr|dst_start_addr|src_{nchw}size|dst_{nchw}size|src_{nchw}stride|\
dst_{nchw}stride|nchw_copy|stride_enable|src_data_format|cmd_type|index_csize|index_hsize|index_cstride|index_hstride|\
mask_start_addr_h8|mask_start_addr_l32|mask_data_format|localmem_mask_h32|localmem_mask_l32|fill_constant_en|\
constant_value|index|cmd_short|intr_en";

fn expand_columns(text: &str) -> Vec<String> {
    let each = |name: &str| -> Vec<String> {
        match name.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
            Some((before, (letters, after))) => {
                letters.chars().map(|letter| format!("{before}{letter}{after}")).collect()
            }
            None => vec![name.to_owned()],
        }
    };
    text.split('|').flat_map(each).collect()
}

pub fn tiu_columns() -> Vec<String> {
    expand_columns(TIU)
}

pub fn dma_columns() -> Vec<String> {
    expand_columns(DMA)
}

pub fn is_derived(name: &str) -> bool {
    matches!(name, "Core Id" | "Global Idx" | "Layer Id" | "Layer Name" | "Avg Cycle Last 200" | "Data Type")
}

pub fn is_hexadecimal(name: &str) -> bool {
    name.contains("addr") || name.contains("mask")
}
