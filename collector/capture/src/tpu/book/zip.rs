//! Minimal writer of ZIP archives. Members are compressed while they are rendered, at the fastest level. Sheets are so
//! repetitive that higher levels take much longer and save little.

use flate2::Crc;
use flate2::write::DeflateEncoder;
use std::io::Write;

pub struct ZipMember {
    name: String,
    crc: Crc,
    out: DeflateEncoder<Vec<u8>>,
}

pub struct Packed {
    name: String,
    crc: u32,
    bytes: Vec<u8>,
    size: u64,
}

impl ZipMember {
    pub fn new(name: impl Into<String>) -> ZipMember {
        let out = DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        ZipMember { name: name.into(), crc: Crc::new(), out }
    }

    pub fn add(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
        self.out.write_all(bytes).expect("writing to memory succeeds");
    }

    pub fn finish(self) -> Packed {
        let size = self.out.total_in();
        let bytes = self.out.finish().expect("writing to memory succeeds");
        Packed { name: self.name, crc: self.crc.sum(), bytes, size }
    }
}

/// Maximum size of a member and of the archive without ZIP64.
const LIMIT: u64 = u32::MAX as u64;

pub fn write_archive(members: &[Packed], out: &mut impl Write) -> std::io::Result<()> {
    let (mut offset, mut directory) = (0u64, Vec::new());
    for member in members {
        let too_large = member.size > LIMIT || offset + member.bytes.len() as u64 > LIMIT;
        if too_large {
            return Err(std::io::Error::other(format!("`{}` would make the workbook larger than 4 GiB", member.name)));
        }
        let head = shared_head(member);
        directory.extend_from_slice(b"PK\x01\x02\x14\x00");
        directory.extend_from_slice(&head);
        // No comment, first disk, no attributes.
        directory.extend_from_slice(&[0; 10]);
        directory.extend_from_slice(&(offset as u32).to_le_bytes());
        directory.extend_from_slice(member.name.as_bytes());
        out.write_all(b"PK\x03\x04")?;
        out.write_all(&head)?;
        out.write_all(member.name.as_bytes())?;
        out.write_all(&member.bytes)?;
        offset += 4 + head.len() as u64 + member.name.len() as u64 + member.bytes.len() as u64;
    }
    let count = (members.len() as u16).to_le_bytes();
    out.write_all(&directory)?;
    out.write_all(b"PK\x05\x06\0\0\0\0")?;
    out.write_all(&[count, count].concat())?;
    out.write_all(&(directory.len() as u32).to_le_bytes())?;
    out.write_all(&(offset as u32).to_le_bytes())?;
    out.write_all(&[0, 0])
}

/// Returns the fields that are equal in a member's local header and in its directory entry.
fn shared_head(member: &Packed) -> Vec<u8> {
    const VERSION: u16 = 20;
    const NAMES_ARE_UTF8: u16 = 1 << 11;
    const DEFLATED: u16 = 8;
    // Constant date 1980-01-01, so that equal captures produce equal workbooks.
    const DATE: u32 = 0x0021_0000;
    let mut head = Vec::new();
    for value in [VERSION, NAMES_ARE_UTF8, DEFLATED] {
        head.extend_from_slice(&value.to_le_bytes());
    }
    for value in [DATE, member.crc, member.bytes.len() as u32, member.size as u32] {
        head.extend_from_slice(&value.to_le_bytes());
    }
    head.extend_from_slice(&(member.name.len() as u16).to_le_bytes());
    head.extend_from_slice(&[0, 0]);
    head
}
