//! Published measurements of whole servers, read from a table such as `llm_end_to_end.parquet`.

use crate::architecture::Architecture;
use crate::device::{self, GpuFacts};
use crate::error::{Error, Result};
use crate::overhead::{OverheadSample, Overheads};
use crate::plan::{Formats, Parallelism};
use crate::scheme::{Dtype, Scheme};
use crate::server::{Deployment, Framework, ReplicaPool, ServerLoad, ServingMode};
use crate::times::Roofline;
use models::Choice;
use samples::table::{self, Cells, Table, TableColumn};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredServer {
    pub deployment: Deployment,
    pub load: ServerLoad,
    /// Time to the first token and time per later token, in seconds.
    pub seconds: [f64; 2],
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeasuredServers {
    /// Measurements without duplicates.
    pub servers: Vec<MeasuredServer>,
    pub left_out: BTreeMap<String, u64>,
}

impl MeasuredServer {
    /// Returns a key of the server, independent of its load.
    pub fn server_key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash_server(&mut hasher);
        hasher.finish()
    }

    pub fn configuration_key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash_server(&mut hasher);
        let ServerLoad { concurrency, input_tokens, output_tokens } = self.load;
        (concurrency, input_tokens, output_tokens).hash(&mut hasher);
        hasher.finish()
    }

    /// Hashes a server without its framework version: predicting one version from another is too easy a test.
    fn hash_server(&self, hasher: &mut DefaultHasher) {
        let Deployment { model, device, formats, framework, mode, prefill, decode, .. } = &self.deployment;
        (&model.name, &device.system, formats.weights, framework, mode).hash(hasher);
        for ReplicaPool { parallelism: Parallelism { tensor, expert, data }, replicas } in [prefill, decode] {
            (tensor, expert, data, replicas).hash(hasher);
        }
    }

    pub fn overhead_sample(&self) -> Result<OverheadSample> {
        let work = self.deployment.server_work(&self.load, &Roofline)?;
        let ratio = |target: usize| (self.seconds[target] / work.seconds[target]).ln();
        Ok(OverheadSample {
            features: self.deployment.server_features(&self.load, &work),
            ratios: [ratio(0), ratio(1)],
            configuration: self.configuration_key(),
            server: self.server_key(),
        })
    }

    /// Rejects servers that cannot be what their row states, for instance because it counts the GPUs of one of several
    /// workers.
    fn check_plausibility(&self) -> Parsed<()> {
        let MeasuredServer { deployment, load, seconds: [first_token, per_token] } = self;
        if !deployment.decode_memory(&ServerLoad { concurrency: 1, ..*load }).is_sufficient() {
            return Err("one request does not fit in the memory of the stated GPUs".to_owned());
        }
        let answer_s = first_token + (load.output_tokens - 1) as f64 * per_token;
        match answer_s < deployment.least_answer_seconds(load).map_err(|error| error.to_string())? {
            true => Err("faster than the stated GPUs can compute the prompts at their peak rate".to_owned()),
            false => Ok(()),
        }
    }
}

impl MeasuredServers {
    pub fn read_table(path: &Path) -> Result<MeasuredServers> {
        let table = table::read_table(path).map_err(|error| Error::Data(error.to_string()))?;
        MeasuredServers::from_table(&table)
            .map_err(|problem| Error::Data(format!("cannot use the table `{}`: {problem}", path.display())))
    }

    fn from_table(table: &Table) -> std::result::Result<MeasuredServers, String> {
        let rows = ServerRows::new(table)?;
        let mut found = MeasuredServers::default();
        let mut seen = HashSet::new();
        for row in 0..table.rows {
            match rows.parse_server(row) {
                Err(reason) => *found.left_out.entry(reason).or_default() += 1,
                Ok(server) => {
                    let bits = server.seconds.map(|seconds| (seconds * 1e7).round() as u64);
                    match seen.insert((server.configuration_key(), bits)) {
                        true => found.servers.push(server),
                        false => *found.left_out.entry("duplicate measurement".to_owned()).or_default() += 1,
                    }
                }
            }
        }
        match found.servers.is_empty() {
            true => Err(format!("none of the {} rows describes a usable server: {:?}", table.rows, found.left_out)),
            false => Ok(found),
        }
    }

    pub fn learn_overheads(&self, source: &str) -> Result<Overheads> {
        let samples = self.servers.iter().map(MeasuredServer::overhead_sample).collect::<Result<Vec<_>>>()?;
        Overheads::learn_overheads(&samples, source)
    }

    pub fn device_names(&self) -> BTreeSet<&str> {
        self.servers.iter().map(|server| server.deployment.device.name.as_str()).collect()
    }
}

struct ServerRows<'a> {
    table: &'a Table,
}

/// Limit on tokens, requests and GPUs in a row.
const MAX_COUNT: u64 = 1_000_000;

const NEEDED: [&str; 11] = [
    "model_path",
    "system",
    "backend",
    "backend_version",
    "mode",
    "isl",
    "osl",
    "gemm_quant_mode",
    "silicon_data_source",
    "silicon_ttft_ms",
    "silicon_tpot_ms",
];

type Parsed<T> = std::result::Result<T, String>;

impl<'a> ServerRows<'a> {
    fn new(table: &'a Table) -> Parsed<ServerRows<'a>> {
        match NEEDED.iter().find(|name| table.find_column(name).is_none()) {
            Some(name) => Err(format!("the table has no column `{name}`")),
            None => Ok(ServerRows { table }),
        }
    }

    fn read_word(&self, row: usize, name: &str) -> &'a str {
        match self.table.find_column(name) {
            Some(TableColumn { cells: Cells::Words { words, codes }, .. }) => &words[codes[row] as usize],
            _ => "",
        }
    }

    /// Returns a number from a row; None if the cell is empty or 0.
    fn positive_number(&self, row: usize, name: &str) -> Option<f64> {
        match self.table.find_column(name) {
            Some(TableColumn { cells: Cells::Numbers(numbers), .. }) => {
                Some(numbers[row]).filter(|number| *number > 0.0)
            }
            _ => None,
        }
    }

    fn read_count(&self, row: usize, name: &str) -> u64 {
        self.positive_number(row, name).map_or(1, |number| number as u64)
    }

    fn check_counts(&self, row: usize) -> Parsed<()> {
        const COUNTS: [&str; 8] =
            ["isl", "osl", "batch_size", "tp_size", "moe_tp_size", "moe_ep_size", "attention_dp_size", "num_workers"];
        for column in ["", "prefill_", "decode_"].iter().flat_map(|pool| COUNTS.map(|name| format!("{pool}{name}"))) {
            if self
                .positive_number(row, &column)
                .is_some_and(|number| number.fract() != 0.0 || number > MAX_COUNT as f64)
            {
                return Err(format!("`{column}` is not a whole number up to {MAX_COUNT}"));
            }
        }
        Ok(())
    }

    fn parse_server(&self, row: usize) -> Parsed<MeasuredServer> {
        self.check_counts(row)?;
        let model =
            Architecture::load_architecture(self.read_word(row, "model_path")).map_err(|error| error.to_string())?;
        let device = device::find_device(self.read_word(row, "system")).map_err(|error| error.to_string())?;
        let framework = self.read_word(row, "backend");
        let mode = self.read_word(row, "mode");
        let mode = ServingMode::from_name(mode).ok_or_else(|| format!("unknown mode `{mode}`"))?;
        let has_workers = |pool: &str| self.positive_number(row, &format!("{pool}_num_workers")).is_some();
        if mode == ServingMode::Disaggregated && !["prefill", "decode"].into_iter().all(has_workers) {
            return Err("the number of workers is unknown".to_owned());
        }
        let (prefill, decode) = self.replica_pools(row, &model, mode);
        let deployment = Deployment {
            formats: server_formats(&model, device, self.read_word(row, "gemm_quant_mode"))?,
            model,
            device,
            framework: Framework::from_name(framework).ok_or_else(|| format!("unknown framework `{framework}`"))?,
            version: self.read_word(row, "backend_version").to_owned(),
            mode,
            prefill,
            decode,
        };
        let milliseconds = |name: &str| self.positive_number(row, name).ok_or_else(|| format!("`{name}` is empty"));
        let seconds = [milliseconds("silicon_ttft_ms")? / 1e3, milliseconds("silicon_tpot_ms")? / 1e3];
        let server = MeasuredServer { deployment, load: self.parse_load(row)?, seconds };
        server.overhead_sample().map_err(|error| error.to_string())?;
        server.check_plausibility()?;
        Ok(server)
    }

    fn parse_load(&self, row: usize) -> Parsed<ServerLoad> {
        let source = self.read_word(row, "silicon_data_source");
        let stated = source.split_once("silicon_concurrency=").map(|(_, rest)| rest);
        let stated = stated.and_then(|rest| rest.split(|sign: char| !sign.is_ascii_digit()).next()?.parse().ok());
        let batch = self
            .positive_number(row, "batch_size")
            .map(|batch| batch as u64 * self.read_count(row, "attention_dp_size"));
        let concurrency = stated.or(batch).filter(|concurrency| (1..=MAX_COUNT).contains(concurrency));
        let tokens = |name: &str| {
            self.positive_number(row, name).map(|tokens| tokens as u64).ok_or(format!("`{name}` is empty"))
        };
        Ok(ServerLoad {
            concurrency: concurrency.ok_or("the number of concurrent requests is unknown")?,
            input_tokens: tokens("isl")?,
            output_tokens: tokens("osl")?,
        })
    }

    fn replica_pools(&self, row: usize, model: &Architecture, mode: ServingMode) -> (ReplicaPool, ReplicaPool) {
        let pool = |prefix: &str| {
            let count = |name: &str| self.read_count(row, &format!("{prefix}{name}"));
            let stated = StatedParallelism {
                tensor: count("tp_size"),
                expert_tensor: count("moe_tp_size"),
                expert: count("moe_ep_size"),
                data: count("attention_dp_size"),
            };
            ReplicaPool { parallelism: stated.to_parallelism(model), replicas: count("num_workers") }
        };
        match mode {
            ServingMode::Aggregated => (pool(""), pool("")),
            ServingMode::Disaggregated => (pool("prefill_"), pool("decode_")),
        }
    }
}

#[derive(Clone, Copy)]
struct StatedParallelism {
    tensor: u64,
    expert_tensor: u64,
    expert: u64,
    data: u64,
}

impl StatedParallelism {
    /// Infers the degrees of parallelism. Some rows state a product of degrees.
    fn to_parallelism(self, model: &Architecture) -> Parallelism {
        let StatedParallelism { tensor, expert_tensor, expert, data } = self;
        let is_square = expert_tensor == expert && expert > 1;
        if model.experts.is_none() {
            Parallelism { tensor, expert: 1, data }
        } else if is_square && tensor == expert * expert {
            Parallelism { tensor: expert, expert, data: 1 }
        } else if is_square && tensor == 1 && data == expert * expert {
            Parallelism { tensor: 1, expert, data: expert }
        } else {
            Parallelism { tensor, expert: if (tensor * data).is_multiple_of(expert) { expert } else { 1 }, data }
        }
    }
}

/// Returns the number formats of a server. A type that the device does not support applies only to the weights.
fn server_formats(model: &Architecture, device: &GpuFacts, stated: &str) -> Parsed<Formats> {
    let weights = match stated {
        "" => Scheme::Bf16,
        name => Scheme::from_name(name).ok_or_else(|| format!("unknown number format `{name}`"))?,
    };
    let weights = match weights {
        Scheme::Nvfp4 if device.peak_flops(Dtype::Fp4).is_err() => Scheme::Mxfp4Weights,
        Scheme::Nvfp4 if model.quantises_experts_only => Scheme::Mxfp4Mxfp8,
        other => other,
    };
    let cache = if weights == Scheme::Bf16 { Dtype::Bf16 } else { Dtype::Fp8 };
    Ok(Formats { weights, cache })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parallelism(model: &str, stated: [u64; 4]) -> [u64; 3] {
        let [tensor, expert_tensor, expert, data] = stated;
        let model = Architecture::load_architecture(model).expect("a shipped model");
        let Parallelism { tensor, expert, data } =
            StatedParallelism { tensor, expert_tensor, expert, data }.to_parallelism(&model);
        [tensor, expert, data]
    }

    #[test]
    fn degrees_are_read_as_meant() {
        assert_eq!(parallelism("llama-3.1-70b", [8, 8, 1, 1]), [8, 1, 1]);
        assert_eq!(parallelism("deepseek-v3", [8, 8, 1, 1]), [8, 1, 1]);
        assert_eq!(parallelism("deepseek-v3", [64, 8, 8, 1]), [8, 8, 1]);
        assert_eq!(parallelism("deepseek-v3", [1, 8, 8, 64]), [1, 8, 8]);
        assert_eq!(parallelism("deepseek-v3", [2, 1, 4, 2]), [2, 4, 2]);
    }

    #[test]
    fn rows_that_cannot_be_what_they_state_are_left_out() {
        let header = "model_path,system,backend,backend_version,mode,isl,osl,gemm_quant_mode,silicon_data_source,\
                      silicon_ttft_ms,silicon_tpot_ms,tp_size,moe_tp_size,moe_ep_size,prefill_tp_size,prefill_num_workers,\
                      decode_tp_size,decode_num_workers";
        let rows = [
            // 200 prompts of 1,024 tokens take 14 s of four GPUs at their peak rate.
            "meta-llama/Llama-3.1-70B,h100_sxm,vllm,0.1,agg,1024,512,fp8,silicon_concurrency=200;,100,2,4,4,1,,,,",
            "deepseek-ai/DeepSeek-V3,h100_sxm,vllm,0.1,agg,1024,512,fp8,silicon_concurrency=1;,100,20,4,4,1,,,,",
            "deepseek-ai/DeepSeek-V3,gb200,vllm,0.1,agg,1024,512,fp8,silicon_concurrency=1;,100,20,12,12,1,,,,",
            "meta-llama/Llama-3.1-70B,h100_sxm,vllm,0.1,disagg,1024,512,fp8,silicon_concurrency=4;,100,20,,,,4,1,4,",
            "meta-llama/Llama-3.1-70B,h100_sxm,vllm,0.1,disagg,1024,512,fp8,silicon_concurrency=4;,100,20,,,,4,1,4,2",
        ];
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("servers.csv");
        std::fs::write(&path, format!("{header}\n{}\n", rows.join("\n"))).expect("a file");
        let read = MeasuredServers::read_table(&path).expect("servers");
        let [server] = &read.servers[..] else { panic!("{:?}", read.servers) };
        assert_eq!((server.deployment.prefill.replicas, server.deployment.decode.replicas), (1, 2));
        let reasons: Vec<&String> = read.left_out.keys().collect();
        for words in ["at their peak rate", "in the memory", "heads", "number of workers"] {
            assert!(reasons.iter().any(|reason| reason.contains(words)), "{words}: {reasons:?}");
        }
    }

    #[test]
    fn rows_become_servers() {
        let header = "model_path,system,backend,backend_version,mode,isl,osl,gemm_quant_mode,silicon_data_source,\
                      silicon_ttft_ms,silicon_tpot_ms,tp_size,moe_tp_size,moe_ep_size,attention_dp_size,batch_size";
        let row = "meta-llama/Llama-3.1-70B,h100_sxm,vllm,0.1,agg,1024,512,fp8,x; silicon_concurrency=16; y,100,20,4,4,1,1,16";
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("servers.csv");
        let other = row.replace("Llama-3.1-70B", "Llama-9-70B");
        std::fs::write(&path, format!("{header}\n{row}\n{row}\n{other}\n")).expect("a file");
        let read = MeasuredServers::read_table(&path).expect("servers");
        let [server] = &read.servers[..] else { panic!("{:?}", read.left_out) };
        assert_eq!(server.load, ServerLoad { concurrency: 16, input_tokens: 1024, output_tokens: 512 });
        assert_eq!((server.seconds, server.deployment.decode.parallelism.tensor), ([0.1, 0.02], 4));
        assert_eq!(read.left_out.values().sum::<u64>(), 2);
        std::fs::write(&path, "model_path\nx\n").expect("a file");
        let error = MeasuredServers::read_table(&path).expect_err("columns lack").to_string();
        assert!(error.contains("the table has no column `system`"), "{error}");
    }
}
