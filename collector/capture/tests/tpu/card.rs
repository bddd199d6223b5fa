//! Generator of small captures, so that the reader is tested on raw bytes without other programs.

use std::path::{Path, PathBuf};

pub const TIU: u32 = 3;
pub const GDMA: u32 = 4;
pub const NODES: u32 = 5;
pub const EXTRAS: u32 = 6;

pub const DDR: u32 = 0;
pub const LMEM: u32 = 2;

/// A file under construction and its declared record counts, which stay the same when the bytes are damaged.
#[derive(Clone, Default)]
pub struct File(pub Vec<u8>, pub Vec<(&'static str, usize)>);

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

impl File {
    pub fn block(mut self, kind: u32, body: &[u8]) -> File {
        self.0.extend(words(&[kind, body.len() as u32]));
        self.0.extend(body);
        self
    }

    fn declare(mut self, stream: &'static str, count: usize) -> File {
        self.1.push((stream, count));
        self
    }

    /// Adds TIU records: start, end, id, last word.
    pub fn tiu(self, records: &[[u32; 4]]) -> File {
        self.declare("tiu", records.len())
            .block(TIU, &records.iter().flat_map(|record| words(record)).collect::<Vec<_>>())
    }

    /// Adds GDMA records: start, end, id, bytes written to DDR, bytes written to local memory, handshakes.
    pub fn gdma(self, records: &[[u32; 6]]) -> File {
        let record = |[start, end, id, out, local, handshakes]: &[u32; 6]| {
            let mut row = [0; 16];
            (row[0], row[1], row[2], row[5], row[10], row[12]) = (*start, *end, *id, *out, *local, *handshakes);
            words(&row)
        };
        self.declare("gdma", records.len()).block(GDMA, &records.iter().flat_map(record).collect::<Vec<_>>())
    }

    pub fn nodes(self, values: &[u32]) -> File {
        self.block(NODES, &words(values))
    }

    pub fn extras(self, descriptors: &[Vec<u8>]) -> File {
        let mut body = Vec::new();
        for (index, descriptor) in descriptors.iter().enumerate() {
            body.extend(words(&[index as u32, 1, descriptor.len() as u32]));
            body.extend(descriptor);
        }
        self.block(EXTRAS, &body)
    }
}

pub fn node(engine: u32, op: u32, sub: u32, extra: u32) -> u32 {
    1 | engine << 7 | op << 10 | sub << 15 | extra << 20
}

pub fn generated(engine: u32, function: u32, variant: u32) -> u32 {
    13 | engine << 7 | function << 10 | (variant & 31) << 15 | (variant >> 5) << 20
}

pub fn route(dtype: u32, from: u32, to: u32) -> u32 {
    dtype | from << 4 | to << 6
}

pub fn reset(engine: u32) -> u32 {
    12 | engine << 7
}

pub fn kernel(name: &str) -> Vec<u32> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let text = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    std::iter::once((name.len() as u32) << 7).chain(text).collect()
}

pub const KERNEL_END: u32 = 15;

/// Returns the two handshakes at the start of every AKS capture, as records and as nodes.
pub fn preamble() -> (Vec<[u32; 4]>, Vec<[u32; 6]>, Vec<u32>) {
    let tiu = vec![[1000, 1010, 0, 2], [1100, 1200, 1, 2]];
    let gdma = vec![[900, 911, 0, 0, 0, 0], [1050, 1061, 1, 0, 0, 0]];
    let pair = [node(1, 6, 3, 0), node(0, 15, 9, 0)];
    (tiu, gdma, [pair, pair].concat())
}

pub fn small_core(shift: u32) -> File {
    let (mut tiu, mut gdma, mut nodes) = preamble();
    tiu.extend([[2000, 2499, 0, 0], [2600, 3099, 1, 8]]);
    gdma.extend([[1990, 2989, 0, 0, 65536, 1024], [3000, 3199, 1, 8192, 0, 128]]);
    nodes.extend(kernel("mm"));
    nodes.extend([reset(0), reset(1)]);
    nodes.push(node(1, 0, 0, route(1, DDR, LMEM)));
    nodes.push(node(0, 2, 4, 1));
    nodes.push(node(1, 0, 0, route(1, LMEM, DDR)));
    nodes.push(node(0, 3, 14, 1));
    nodes.push(KERNEL_END);
    for record in &mut tiu {
        (record[0], record[1]) = (record[0].wrapping_add(shift), record[1].wrapping_add(shift));
    }
    for record in &mut gdma {
        (record[0], record[1]) = (record[0].wrapping_add(shift), record[1].wrapping_add(shift));
    }
    File::default().tiu(&tiu).gdma(&gdma).nodes(&nodes)
}

pub fn write(folder: &Path, cores: &[(u32, File)]) -> PathBuf {
    write_of("5", folder, cores)
}

pub fn write_of(arch: &str, folder: &Path, cores: &[(u32, File)]) -> PathBuf {
    let capture = folder.join("cdm_profile_data_dev0-0");
    std::fs::create_dir_all(&capture).unwrap();
    let mut text = format!("arch={arch}\ntpu_freq=1000\nmax_record_num=4096\n");
    for (number, file) in cores {
        for (stream, count) in &file.1 {
            text.push_str(&format!("core{number}_{stream}_record={count}\n"));
        }
    }
    std::fs::write(capture.join("global.profile"), text).unwrap();
    for (number, file) in cores {
        std::fs::write(capture.join(format!("cdmlib0_{number}.profile")), &file.0).unwrap();
    }
    capture
}

/// Returns a descriptor with fields given as first bit, width and value.
pub fn descriptor(bits: usize, fields: &[(usize, u32, u64)]) -> Vec<u8> {
    let mut bytes = vec![0u8; bits / 8];
    for &(first, width, value) in fields {
        for bit in (0..width as usize).filter(|bit| value >> bit & 1 == 1) {
            bytes[(first + bit) / 8] |= 1 << ((first + bit) % 8);
        }
    }
    bytes
}
