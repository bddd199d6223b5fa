//! Table of all TVM functions that this program calls, with their argument counts, which are checked before each call:
//! a function reads past its arguments if one is missing. All names of a role are looked up when the libraries are
//! opened, so that a missing function is an error at the start.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRole {
    /// Runs artifacts; loads only TVM's small runtime library.
    Runner,
    /// Compiles; also loads TVM's compiler library.
    Builder,
}

#[derive(Clone, Copy, Debug)]
pub struct Name {
    pub text: &'static str,
    /// Number of arguments, including optional arguments that are passed as None.
    pub arguments: usize,
    pub role: NameRole,
    pub(super) index: usize,
}

macro_rules! names {
    ($($identifier:ident = $text:literal, $arguments:literal, $role:ident;)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Index { $($identifier),* }
        $(
            #[doc = concat!("`", $text, "`")]
            pub const $identifier: Name =
                Name { text: $text, arguments: $arguments, role: NameRole::$role, index: Index::$identifier as usize };
        )*
        pub const ALL: &[Name] = &[$($identifier),*];
    };
}

names! {
    // the runtime
    NUM_THREADS = "runtime.NumThreads", 0, Runner;
    CONFIG_THREADPOOL = "runtime.config_threadpool", 3, Runner;
    TIME_EVALUATOR = "runtime.RPCTimeEvaluator", 12, Runner;
    // expressions
    PRIM_TYPE = "ir.PrimType", 1, Builder;
    INT_IMMEDIATE = "ir.IntImm", 3, Builder;
    FLOAT_IMMEDIATE = "ir.FloatImm", 3, Builder;
    VARIABLE = "ir.Var", 3, Builder;
    RANGE = "ir.Range_from_min_extent", 3, Builder;
    ITERATOR = "tirx.IterVar", 5, Builder;
    CALL_OPERATOR = "ir.Call", 6, Builder;
    GET_OPERATOR = "ir.GetOp", 1, Builder;
    REGISTER_OPERATOR = "ir.RegisterOp", 2, Builder;
    HAS_ATTRIBUTE = "ir.OpHasAttr", 2, Builder;
    GET_ATTRIBUTE = "ir.OpGetAttr", 2, Builder;
    SET_ATTRIBUTE = "ir.RegisterOpAttr", 4, Builder;
    SHUFFLE = "prim.Shuffle", 3, Builder;
    ADD = "prim._OpAdd", 3, Builder;
    SUB = "prim._OpSub", 3, Builder;
    MUL = "prim._OpMul", 3, Builder;
    DIV = "prim._OpDiv", 3, Builder;
    FLOOR_DIV = "prim._OpFloorDiv", 3, Builder;
    FLOOR_MOD = "prim._OpFloorMod", 3, Builder;
    MAX = "prim._OpMax", 3, Builder;
    MIN = "prim._OpMin", 3, Builder;
    GREATER_EQUAL = "prim._OpGE", 3, Builder;
    LESS = "prim._OpLT", 3, Builder;
    AND = "prim._OpAnd", 3, Builder;
    CAST = "prim._cast", 3, Builder;
    SELECT = "prim.Select", 4, Builder;
    IF_THEN_ELSE = "prim._OpIfThenElse", 4, Builder;
    ABS = "tirx.abs", 2, Builder;
    FLOOR = "tirx.floor", 2, Builder;
    EQUAL = "prim._OpEQ", 3, Builder;
    NOT_EQUAL = "prim._OpNE", 3, Builder;
    LESS_EQUAL = "prim._OpLE", 3, Builder;
    GREATER = "prim._OpGT", 3, Builder;
    OR = "prim._OpOr", 3, Builder;
    NOT = "prim.Not", 2, Builder;
    TRUNCATED_MOD = "prim._OpTruncMod", 3, Builder;
    BITWISE_AND = "prim.bitwise_and", 3, Builder;
    BITWISE_OR = "prim.bitwise_or", 3, Builder;
    BITWISE_XOR = "prim.bitwise_xor", 3, Builder;
    BITWISE_NOT = "prim.bitwise_not", 2, Builder;
    LEFT_SHIFT = "prim.left_shift", 3, Builder;
    RIGHT_SHIFT = "prim.right_shift", 3, Builder;
    CEIL = "prim.ceil", 2, Builder;
    NEARBYINT = "tirx.nearbyint", 2, Builder;
    TRUNC = "tirx.trunc", 2, Builder;
    IS_NAN = "tirx.isnan", 2, Builder;
    IS_INF = "tirx.isinf", 2, Builder;
    // tensor expressions
    TENSOR_LOAD = "te.TensorLoad", 2, Builder;
    COMMUTATIVE_REDUCER = "te.CommReducer", 5, Builder;
    REDUCE = "te.Reduce", 7, Builder;
    COMPUTE = "te.ComputeOp", 5, Builder;
    OPERATION_OUTPUT = "te.OpGetOutput", 2, Builder;
    PLACEHOLDER = "te.Placeholder", 3, Builder;
    CREATE_PRIM_FUNC = "te.CreatePrimFunc", 2, Builder;
    MODULE_FROM_FUNCTION = "ir.Module_FromExpr", 2, Builder;
    // schedules
    SCHEDULE = "s_tir.schedule.TracedSchedule", 5, Builder;
    SCHEDULE_MODULE = "s_tir.schedule.ScheduleGetMod", 1, Builder;
    SCHEDULE_TRACE = "s_tir.schedule.ScheduleGetTrace", 1, Builder;
    GET_BLOCK = "s_tir.schedule.ScheduleGetSBlock", 3, Builder;
    GET_LOOPS = "s_tir.schedule.ScheduleGetLoops", 2, Builder;
    SPLIT = "s_tir.schedule.ScheduleSplit", 5, Builder;
    FUSE = "s_tir.schedule.ScheduleFuse", 3, Builder;
    REORDER = "s_tir.schedule.ScheduleReorder", 2, Builder;
    PARALLEL = "s_tir.schedule.ScheduleParallel", 2, Builder;
    VECTORIZE = "s_tir.schedule.ScheduleVectorize", 2, Builder;
    UNROLL = "s_tir.schedule.ScheduleUnroll", 2, Builder;
    CACHE_READ = "s_tir.schedule.ScheduleCacheRead", 5, Builder;
    CACHE_WRITE = "s_tir.schedule.ScheduleCacheWrite", 5, Builder;
    COMPUTE_AT = "s_tir.schedule.ScheduleComputeAt", 5, Builder;
    REVERSE_COMPUTE_AT = "s_tir.schedule.ScheduleReverseComputeAt", 5, Builder;
    COMPUTE_INLINE = "s_tir.schedule.ScheduleComputeInline", 2, Builder;
    DECOMPOSE_REDUCTION = "s_tir.schedule.ScheduleDecomposeReduction", 3, Builder;
    REGISTER_REDUCER = "s_tir.schedule.RegisterReducer", 3, Builder;
    FACTOR_REDUCTION = "s_tir.schedule.ScheduleRFactor", 3, Builder;
    ANNOTATE = "s_tir.schedule.ScheduleAnnotate", 4, Builder;
    BIND = "s_tir.schedule.ScheduleBind", 3, Builder;
    ADD_UNIT_LOOP = "s_tir.schedule.ScheduleAddUnitLoop", 2, Builder;
    STORAGE_ALIGN = "s_tir.schedule.ScheduleStorageAlign", 6, Builder;
    INDEX_MAP = "tirx.IndexMap", 3, Builder;
    TRANSFORM_BLOCK_LAYOUT = "s_tir.schedule.ScheduleTransformBlockLayout", 3, Builder;
    TENSORIZE = "s_tir.schedule.ScheduleTensorize", 4, Builder;
    SET_SCOPE = "s_tir.schedule.ScheduleSetScope", 4, Builder;
    GET_STATEMENT = "s_tir.schedule.ScheduleGet", 2, Builder;
    ENTER_POSTPROC = "s_tir.schedule.ScheduleEnterPostproc", 1, Builder;
    TRACE = "s_tir.schedule.Trace", 2, Builder;
    TRACE_SIMPLIFIED = "s_tir.schedule.TraceSimplified", 2, Builder;
    TRACE_APPLY = "s_tir.schedule.TraceApplyToSchedule", 4, Builder;
    TRACE_AS_JSON = "s_tir.schedule.TraceAsJSON", 2, Builder;
    TRACE_APPLY_JSON = "s_tir.schedule.TraceApplyJSONToSchedule", 2, Builder;
    // functions written by hand
    BUFFER_TYPE = "tirx.BufferType", 10, Builder;
    BUFFER_VARIABLE = "tirx.BufferVar", 3, Builder;
    BUFFER_LOAD = "tirx.BufferLoad", 3, Builder;
    BUFFER_STORE = "tirx.BufferStore", 4, Builder;
    BUFFER_DATA = "tirx.BufferData", 1, Builder;
    BUFFER_REGION = "tirx.BufferRegion", 2, Builder;
    BUFFER_ACCESS = "tirx.BufferAccessPtr", 6, Builder;
    POINTER_TYPE = "ir.PointerType", 2, Builder;
    STRING_IMMEDIATE = "ir.StringImm", 2, Builder;
    TYPE_MISSING = "ir.TypeMissing", 0, Builder;
    MAKE_OBJECT = "ffi.MakeObjectFromPackedArgs", 3, Builder;
    EVALUATE = "tirx.Evaluate", 2, Builder;
    FOR = "tirx.For", 9, Builder;
    SEQUENCE = "tirx.SeqStmt", 2, Builder;
    SCHEDULABLE_BLOCK = "s_tir.SBlock", 10, Builder;
    SCHEDULABLE_BLOCK_REALIZE = "s_tir.SBlockRealize", 4, Builder;
    ATTRIBUTE = "tirx.AttrStmt", 5, Builder;
    IF_STATEMENT = "tirx.IfThenElse", 4, Builder;
    STRUCTURAL_MAP = "ffi.StructuralMap", 4, Builder;
    MODULE_FUNCTION = "ir.Module_Lookup_str", 2, Builder;
    MODULE_VARIABLE = "ir.Module_GetGlobalVar", 2, Builder;
    MODULE_ADD = "ir.Module_Add", 4, Builder;
    PRIM_FUNCTION = "tirx.PrimFunc", 5, Builder;
    TENSOR_INTRINSIC = "s_tir.TensorIntrin", 2, Builder;
    TENSOR_INTRINSIC_REGISTER = "s_tir.TensorIntrinRegister", 3, Builder;
    // MetaSchedule
    META_RULES_LLVM = "s_tir.meta_schedule.ScheduleRuleDefaultLLVM", 0, Builder;
    META_POSTPROCS_LLVM = "s_tir.meta_schedule.PostprocDefaultLLVM", 0, Builder;
    META_MUTATORS_LLVM = "s_tir.meta_schedule.MutatorDefaultLLVM", 0, Builder;
    META_RULES_CUDA = "s_tir.meta_schedule.ScheduleRuleDefaultCUDA", 0, Builder;
    META_POSTPROCS_CUDA = "s_tir.meta_schedule.PostprocDefaultCUDA", 0, Builder;
    META_MUTATORS_CUDA = "s_tir.meta_schedule.MutatorDefaultCUDA", 0, Builder;
    META_TENSOR_CORE_RULE = "s_tir.meta_schedule.ScheduleRuleMultiLevelTilingTensorCore", 8, Builder;
    META_POSTPROCS_TENSOR_CORE = "s_tir.meta_schedule.PostprocDefaultCUDATensorCore", 0, Builder;
    META_POST_ORDER = "s_tir.meta_schedule.SpaceGeneratorPostOrderApply", 4, Builder;
    META_CONTEXT = "s_tir.meta_schedule.TuneContext", 8, Builder;
    META_INITIALIZE = "s_tir.meta_schedule.TuneContextInitialize", 1, Builder;
    META_DESIGN_SPACE = "s_tir.meta_schedule.SpaceGeneratorGenerateDesignSpace", 2, Builder;
    META_POSTPROC_APPLY = "s_tir.meta_schedule.PostprocApply", 2, Builder;
    META_CANDIDATE = "s_tir.meta_schedule.MeasureCandidate", 2, Builder;
    META_PER_STORE_FEATURE = "s_tir.meta_schedule.FeatureExtractorPerStoreFeature", 4, Builder;
    META_EVOLUTION = "s_tir.meta_schedule.SearchStrategyEvolutionarySearch", 8, Builder;
    META_PRE_TUNING = "s_tir.meta_schedule.SearchStrategyPreTuning", 6, Builder;
    META_CANDIDATES = "s_tir.meta_schedule.SearchStrategyGenerateMeasureCandidates", 1, Builder;
    META_DATABASE = "s_tir.meta_schedule.DatabaseMemoryDatabase", 1, Builder;
    META_COMMIT_WORKLOAD = "s_tir.meta_schedule.DatabaseCommitWorkload", 2, Builder;
    META_COMMIT_RECORD = "s_tir.meta_schedule.DatabaseCommitTuningRecord", 2, Builder;
    META_RECORD = "s_tir.meta_schedule.TuningRecord", 5, Builder;
    META_COST_MODEL = "s_tir.meta_schedule.CostModelPyCostModel", 4, Builder;
    META_EXTRACT_FROM = "s_tir.meta_schedule.FeatureExtractorExtractFrom", 3, Builder;
    // from IR to code
    TARGET = "target.Target", 1, Builder;
    TARGET_WITH_HOST = "target.WithHost", 2, Builder;
    BUILD_LLVM = "target.build.llvm", 2, Builder;
    TARGET_HAS_FEATURE = "target.target_has_feature", 2, Builder;
    SYSTEM_CPU = "target.llvm_get_system_cpu", 0, Builder;
    SYSTEM_TRIPLE = "target.llvm_get_system_triple", 0, Builder;
    IS_VALID_CPU = "target.llvm_is_valid_cpu", 2, Builder;
    LLVM_VERSION = "target.llvm_version_major", 0, Builder;
    RUN_PASS = "transform.RunPass", 2, Builder;
    MODULE_WRITE = "ffi.ModuleWriteToFile", 3, Builder;
    MODULE_SOURCE = "ffi.ModuleInspectSource", 2, Builder;
    LOAD_LLVM_IR = "ffi.Module.load_from_file.ll", 2, Builder;
    TEXT_OF = "ffi.ReprPrint", 1, Builder;
    BIND_TARGET = "tirx.transform.BindTarget", 1, Builder;
    CANONICALIZE_LOOP = "s_tir.transform.CanonicalizeLoop", 0, Builder;
    LOWER_CROSS_THREAD_REDUCTION = "s_tir.transform.LowerCrossThreadReduction", 0, Builder;
    LOWER_INIT_BLOCK = "s_tir.transform.LowerInitBlock", 0, Builder;
    PLAN_BUFFER_ALLOCATION = "s_tir.transform.PlanAndUpdateBufferAllocationLocation", 0, Builder;
    CONVERT_BLOCKS_TO_OPAQUE = "s_tir.transform.ConvertBlocksToOpaque", 0, Builder;
    COMPACT_BUFFER_ALLOCATION = "s_tir.transform.CompactBufferAllocation", 1, Builder;
    LOWER_MATCH_BUFFER = "s_tir.transform.LowerMatchBuffer", 0, Builder;
    SCHEDULABLE_SIMPLIFY = "s_tir.transform.StmtSimplify", 0, Builder;
    ANNOTATE_IRREGULAR_LOOP = "s_tir.transform.AnnotateIrregularLoop", 0, Builder;
    LOWER_OPAQUE_BLOCK = "s_tir.transform.LowerOpaqueBlock", 0, Builder;
    FLATTEN_BUFFER = "tirx.transform.FlattenBuffer", 0, Builder;
    BF16_COMPUTE_LEGALIZE = "tirx.transform.BF16ComputeLegalize", 0, Builder;
    NARROW_DATA_TYPE = "tirx.transform.NarrowDataType", 1, Builder;
    LOOP_PARTITION = "s_tir.transform.LoopPartition", 0, Builder;
    VECTORIZE_LOOP = "tirx.transform.VectorizeLoop", 1, Builder;
    STORAGE_REWRITE = "tirx.transform.StorageRewrite", 0, Builder;
    HOIST_IF_THEN_ELSE = "s_tir.transform.HoistIfThenElse", 0, Builder;
    UNROLL_LOOP = "tirx.transform.UnrollLoop", 0, Builder;
    RENORMALIZE_SPLIT_PATTERN = "s_tir.transform.RenormalizeSplitPattern", 0, Builder;
    SIMPLIFY = "tirx.transform.StmtSimplify", 0, Builder;
    REMOVE_NO_OP = "tirx.transform.RemoveNoOp", 0, Builder;
    REWRITE_UNSAFE_SELECT = "s_tir.transform.RewriteUnsafeSelect", 0, Builder;
    COMMON_SUBEXPRESSIONS = "tirx.transform.CommonSubexprElim", 0, Builder;
    VERIFY_MEMORY = "tirx.transform.VerifyMemory", 0, Builder;
    ANNOTATE_ENTRY = "tirx.transform.AnnotateEntryFunc", 0, Builder;
    SPLIT_HOST_DEVICE = "tirx.transform.SplitHostDevice", 0, Builder;
    MAKE_PACKED_API = "tirx.transform.MakePackedAPI", 0, Builder;
    BF16_STORAGE_LEGALIZE = "tirx.transform.BF16StorageLegalize", 0, Builder;
    FROM_JSON_GRAPH = "ffi.FromJSONGraphString", 1, Builder;
    LOWER_TVM_BUILTIN = "tirx.transform.LowerTVMBuiltin", 0, Builder;
    LOWER_INTRINSIC = "tirx.transform.LowerIntrin", 0, Builder;
    // what only GPUs need
    BUILD_CUDA = "target.build.cuda", 2, Builder;
    BUILD_OPENCL = "target.build.opencl", 2, Builder;
    JSON_GRAPH = "ffi.ToJSONGraphString", 2, Builder;
    FILTER = "tirx.transform.Filter", 1, Builder;
    FUNCTION_ATTRIBUTES = "ir.BaseFunc_Attrs", 1, Builder;
    ATTRIBUTES_MAP = "ir.DictAttrsGetDict", 1, Builder;
    LIFT_THREAD_BINDING = "s_tir.transform.LiftThreadBinding", 0, Builder;
    MANIFEST_SHARED_MEMORY = "s_tir.transform.ManifestSharedMemoryLocalStage", 0, Builder;
    LOWER_AUTO_COPY = "s_tir.transform.LowerAutoCopy", 0, Builder;
    UNIFY_THREAD_BINDING = "s_tir.transform.UnifyThreadBinding", 0, Builder;
    INJECT_PERMUTED_LAYOUT = "s_tir.transform.InjectPermutedLayout", 0, Builder;
    INJECT_SOFTWARE_PIPELINE = "s_tir.transform.InjectSoftwarePipeline", 0, Builder;
    INJECT_VIRTUAL_THREAD = "s_tir.transform.InjectVirtualThread", 0, Builder;
    INJECT_DOUBLE_BUFFER = "s_tir.transform.InjectDoubleBuffer", 0, Builder;
    THREAD_SYNC = "s_tir.transform.ThreadSync", 1, Builder;
    INFER_FRAGMENT = "s_tir.transform.InferFragment", 0, Builder;
    LOWER_THREAD_ALLREDUCE = "s_tir.transform.LowerThreadAllreduce", 0, Builder;
    INJECT_ASYNC_COPY = "s_tir.transform.InjectPTXAsyncCopy", 0, Builder;
    MERGE_SHARED_ALLOCATIONS = "s_tir.transform.MergeSharedMemoryAllocations", 0, Builder;
    LOWER_WARP_MEMORY = "tirx.transform.LowerWarpMemory", 0, Builder;
}
