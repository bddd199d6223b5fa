//! Parameter structures of CUPTI's profiler: one per call, as declared in `cupti_profiler_host.h`,
//! `cupti_profiler_target.h`, `cupti_range_profiler.h` and `cupti_target.h`. Each begins with its own size, by which
//! CUPTI determines the available fields; later fields are omitted. A test compares all offsets with the headers.

use super::cupti::{CuptiError, CuptiStatus, Result};
use libloading::os::unix::Library;
use std::ffi::{c_char, c_int, c_void};
use std::mem::{offset_of, size_of};

pub type Handle = *mut c_void;
pub type Names = *const *const c_char;

pub struct ParameterLayout {
    pub structure: &'static str,
    /// Size that is passed to CUPTI: the offset of the end of the last field.
    pub size: usize,
    pub fields: Vec<(&'static str, usize)>,
}

macro_rules! calls {
    ($($(#[$doc:meta])* $function:ident = $symbol:literal,
       $name:ident = $structure:literal { $($field:ident = $theirs:literal: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            pub struct $name {
                pub size: usize,
                pub private: Handle,
                $(pub $field: $type,)*
            }

            impl $name {
                /// Returns a structure that contains its size, and zero in all other fields.
                pub fn blank() -> $name {
                    // SAFETY: the structure consists of numbers and addresses, for which zero is a
                    // valid value.
                    let zero: $name = unsafe { std::mem::zeroed() };
                    $name { size: $name::size(), ..zero }
                }

                fn size() -> usize {
                    let ends = [
                        offset_of!($name, private) + size_of::<Handle>(),
                        $(offset_of!($name, $field) + size_of::<$type>(),)*
                    ];
                    ends[ends.len() - 1]
                }
            }
        )*

        #[allow(non_upper_case_globals)]
        pub mod symbols {
            $(pub const $function: &str = $symbol;)*
        }

        pub struct Functions {
            $(pub $function: unsafe extern "C" fn(*mut $name) -> CuptiStatus,)*
        }

        impl Functions {
            pub fn look_up(library: &Library) -> Result<Functions> {
                Ok(Functions {
                    $($function: {
                        // SAFETY: the field has the signature that NVIDIA's header declares for
                        // this name.
                        *unsafe { library.get($symbol.as_bytes()) }.map_err(|_| CuptiError::TooOld($symbol))?
                    },)*
                })
            }
        }

        pub fn layouts() -> Vec<ParameterLayout> {
            vec![$(ParameterLayout {
                structure: $structure,
                size: $name::size(),
                fields: vec![
                    ("structSize", offset_of!($name, size)),
                    ("pPriv", offset_of!($name, private)),
                    $(($theirs, offset_of!($name, $field)),)*
                ],
            },)*]
        }
    };
}

calls! {
    initialize = "cuptiProfilerInitialize",
    Initialize = "CUpti_Profiler_Initialize_Params" {}

    supported = "cuptiProfilerDeviceSupported",
    Supported = "CUpti_Profiler_DeviceSupported_Params" {
        device = "cuDevice": c_int,
        is_supported = "isSupported": c_int,
        architecture = "architecture": c_int,
        sli = "sli": c_int,
        virtual_gpu = "vGpu": c_int,
        confidential = "confidentialCompute": c_int,
        mining = "cmp": c_int,
        wsl = "wsl": c_int,
    }

    availability = "cuptiProfilerGetCounterAvailability",
    Availability = "CUpti_Profiler_GetCounterAvailability_Params" {
        context = "ctx": Handle,
        image_bytes = "counterAvailabilityImageSize": usize,
        image = "pCounterAvailabilityImage": *mut u8,
        with_device_counters = "bAllowDeviceLevelCounters": u8,
    }

    chip_name = "cuptiDeviceGetChipName",
    ChipName = "CUpti_Device_GetChipName_Params" {
        device = "deviceIndex": usize,
        chip = "pChipName": *const c_char,
    }

    make_host = "cuptiProfilerHostInitialize",
    MakeHost = "CUpti_Profiler_Host_Initialize_Params" {
        kind = "profilerType": c_int,
        chip = "pChipName": *const c_char,
        availability = "pCounterAvailabilityImage": *const u8,
        host = "pHostObject": Handle,
    }

    destroy_host = "cuptiProfilerHostDeinitialize",
    DestroyHost = "CUpti_Profiler_Host_Deinitialize_Params" {
        host = "pHostObject": Handle,
    }

    /// Lists the base metrics of one kind. The name of a base metric is the part of metric names before the first dot.
    base_metrics = "cuptiProfilerHostGetBaseMetrics",
    BaseMetrics = "CUpti_Profiler_Host_GetBaseMetrics_Params" {
        host = "pHostObject": Handle,
        kind = "metricType": c_int,
        names = "ppMetricNames": Names,
        count = "numMetrics": usize,
    }

    add_metrics = "cuptiProfilerHostConfigAddMetrics",
    AddMetrics = "CUpti_Profiler_Host_ConfigAddMetrics_Params" {
        host = "pHostObject": Handle,
        names = "ppMetricNames": Names,
        count = "numMetrics": usize,
    }

    config_size = "cuptiProfilerHostGetConfigImageSize",
    ConfigSize = "CUpti_Profiler_Host_GetConfigImageSize_Params" {
        host = "pHostObject": Handle,
        bytes = "configImageSize": usize,
    }

    config = "cuptiProfilerHostGetConfigImage",
    ConfigImage = "CUpti_Profiler_Host_GetConfigImage_Params" {
        host = "pHostObject": Handle,
        bytes = "configImageSize": usize,
        image = "pConfigImage": *mut u8,
    }

    /// Returns the number of passes, in each of which the work is repeated.
    passes = "cuptiProfilerHostGetNumOfPasses",
    Passes = "CUpti_Profiler_Host_GetNumOfPasses_Params" {
        bytes = "configImageSize": usize,
        image = "pConfigImage": *mut u8,
        count = "numOfPasses": usize,
    }

    evaluate = "cuptiProfilerHostEvaluateToGpuValues",
    Evaluate = "CUpti_Profiler_Host_EvaluateToGpuValues_Params" {
        host = "pHostObject": Handle,
        data = "pCounterDataImage": *const u8,
        data_bytes = "counterDataImageSize": usize,
        range = "rangeIndex": usize,
        names = "ppMetricNames": Names,
        count = "numMetrics": usize,
        values = "pMetricValues": *mut f64,
    }

    enable = "cuptiRangeProfilerEnable",
    Enable = "CUpti_RangeProfiler_Enable_Params" {
        context = "ctx": Handle,
        profiler = "pRangeProfilerObject": Handle,
    }

    disable = "cuptiRangeProfilerDisable",
    Disable = "CUpti_RangeProfiler_Disable_Params" {
        profiler = "pRangeProfilerObject": Handle,
    }

    data_size = "cuptiRangeProfilerGetCounterDataSize",
    DataSize = "CUpti_RangeProfiler_GetCounterDataSize_Params" {
        profiler = "pRangeProfilerObject": Handle,
        names = "pMetricNames": Names,
        count = "numMetrics": usize,
        ranges_max = "maxNumOfRanges": usize,
        nodes_max = "maxNumRangeTreeNodes": u32,
        bytes = "counterDataSize": usize,
    }

    begin_data = "cuptiRangeProfilerCounterDataImageInitialize",
    BeginData = "CUpti_RangeProfiler_CounterDataImage_Initialize_Params" {
        profiler = "pRangeProfilerObject": Handle,
        bytes = "counterDataSize": usize,
        data = "pCounterData": *mut u8,
    }

    /// Sets the configuration, the destination of the counters, and whether CUPTI or the caller repeats the work.
    set_config = "cuptiRangeProfilerSetConfig",
    SetConfig = "CUpti_RangeProfiler_SetConfig_Params" {
        profiler = "pRangeProfilerObject": Handle,
        config_bytes = "configSize": usize,
        config = "pConfig": *const u8,
        data_bytes = "counterDataImageSize": usize,
        data = "pCounterDataImage": *mut u8,
        range = "range": c_int,
        replay = "replayMode": c_int,
        ranges_max = "maxRangesPerPass": usize,
        levels = "numNestingLevels": u16,
        first_level = "minNestingLevel": u16,
        pass = "passIndex": usize,
        level = "targetNestingLevel": u16,
    }

    start = "cuptiRangeProfilerStart",
    Start = "CUpti_RangeProfiler_Start_Params" {
        profiler = "pRangeProfilerObject": Handle,
    }

    stop = "cuptiRangeProfilerStop",
    Stop = "CUpti_RangeProfiler_Stop_Params" {
        profiler = "pRangeProfilerObject": Handle,
        pass = "passIndex": usize,
        level = "targetNestingLevel": usize,
        is_last = "isAllPassSubmitted": u8,
    }

    push = "cuptiRangeProfilerPushRange",
    Push = "CUpti_RangeProfiler_PushRange_Params" {
        profiler = "pRangeProfilerObject": Handle,
        name = "pRangeName": *const c_char,
    }

    pop = "cuptiRangeProfilerPopRange",
    Pop = "CUpti_RangeProfiler_PopRange_Params" {
        profiler = "pRangeProfilerObject": Handle,
    }

    decode = "cuptiRangeProfilerDecodeData",
    Decode = "CUpti_RangeProfiler_DecodeData_Params" {
        profiler = "pRangeProfilerObject": Handle,
        dropped = "numOfRangeDropped": usize,
    }
}
