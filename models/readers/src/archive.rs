//! Reads the directory of a zip archive: the location of each entry, whose bytes are read only when needed. Nothing is
//! extracted to disk. Encrypted or overlapping entries, duplicate names, and a local header that disagrees with the
//! directory are refused. An entry may itself be a zip archive: only the directory at the end of the file counts.

use bytes::Bytes;
use flate2::Crc;
use flate2::read::DeflateDecoder;
use models::contents::Contents;
use models::files::open_regular;
use models::graph::Const;
use models::names::shorten_text;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Limit on the directory size, enough for an archive of a million weights.
const MAX_DIRECTORY_BYTES: u64 = 64 << 20;
const MAX_ENTRIES: u64 = 1 << 18;
/// Size of an end record with the longest comment, plus the locator of the 64-bit end record.
const MAX_END_BYTES: u64 = 22 + 65_535 + 20;

const READ_AT_ONCE: usize = 4 << 20;

pub enum ArchiveBytes {
    Memory(Bytes),
    /// A file that is read on demand.
    File {
        path: PathBuf,
        file: File,
        length: u64,
    },
}

impl ArchiveBytes {
    pub fn open(path: &Path) -> io::Result<ArchiveBytes> {
        let file = open_regular(path)?;
        let metadata = file.metadata()?;
        Ok(ArchiveBytes::File { path: path.canonicalize()?, file, length: metadata.len() })
    }

    pub fn byte_length(&self) -> u64 {
        match self {
            ArchiveBytes::Memory(bytes) => bytes.len() as u64,
            ArchiveBytes::File { length, .. } => *length,
        }
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, String> {
        let outside = || format!("bytes {} to {} lie outside of the file", range.start, range.end);
        match self {
            ArchiveBytes::Memory(bytes) => {
                let index = |at: u64| usize::try_from(at).ok().filter(|at| *at <= bytes.len());
                let (start, end) = (index(range.start).ok_or_else(outside)?, index(range.end).ok_or_else(outside)?);
                if start > end { Err(outside()) } else { Ok(bytes.slice(start..end)) }
            }
            ArchiveBytes::File { file, .. } => {
                let length = range.end.checked_sub(range.start).ok_or_else(outside)?;
                // A sparse file can claim any length, so memory grows with the bytes that were read.
                let mut read = Vec::new();
                while (read.len() as u64) < length {
                    let begin = read.len();
                    let left = usize::try_from(length - begin as u64).unwrap_or(usize::MAX);
                    read.resize(begin + left.min(READ_AT_ONCE), 0);
                    file.read_exact_at(&mut read[begin..], range.start + begin as u64).map_err(|error| {
                        if error.kind() == ErrorKind::UnexpectedEof { outside() } else { error.to_string() }
                    })?;
                }
                Ok(read.into())
            }
        }
    }

    fn range_contents(&self, range: Range<u64>) -> Result<Const, String> {
        match self {
            ArchiveBytes::Memory(_) => Ok(Const::Bytes(Contents::new(self.read_range(range)?))),
            ArchiveBytes::File { path, .. } => {
                Ok(Const::File { path: path.clone(), offset: range.start, length: range.end - range.start })
            }
        }
    }
}

struct Entry {
    range: Range<u64>,
    size: u64,
    crc: u32,
    is_deflated: bool,
}

pub struct Archive {
    store: ArchiveBytes,
    entries: BTreeMap<String, Entry>,
}

/// Lists the entry names in the directory of an archive without checking the entries.
pub fn list_entry_names(store: &ArchiveBytes) -> Result<Vec<String>, String> {
    let directory = Directory::find_directory(store)?;
    let bytes = store.read_range(directory.range)?;
    let mut fields = Fields { bytes: &bytes };
    (0..directory.count)
        .map(|_| {
            fields.take_bytes(28)?;
            let (name, extra, comment) = (fields.read_u16()?, fields.read_u16()?, fields.read_u16()?);
            fields.take_bytes(12)?;
            let name = String::from_utf8_lossy(fields.take_bytes(name.into())?).into_owned();
            fields.take_bytes(extra.into())?;
            fields.take_bytes(comment.into())?;
            Ok(name)
        })
        .collect()
}

impl Archive {
    /// Reads the directory and checks it against the local header of each entry.
    pub fn read(store: ArchiveBytes) -> Result<Archive, String> {
        let directory = Directory::find_directory(&store)?;
        let bytes = store.read_range(directory.range.clone())?;
        let mut entries = BTreeMap::new();
        let mut fields = Fields { bytes: &bytes };
        for _ in 0..directory.count {
            let (name, entry) = parse_entry(&mut fields, &store, directory.range.start)?;
            let shown = shorten_text(&name);
            if entries.insert(name, entry).is_some() {
                return Err(format!("two entries have the name `{shown}`"));
            }
        }
        let places = entries.iter().map(|(name, entry)| (name, &entry.range));
        let mut order: Vec<(&String, &Range<u64>)> = places.filter(|(_, range)| !range.is_empty()).collect();
        order.sort_by_key(|(_, range)| range.start);
        if let Some(pair) = order.windows(2).find(|pair| pair[0].1.end > pair[1].1.start) {
            return Err(format!("entries `{}` and `{}` overlap", shorten_text(pair[0].0), shorten_text(pair[1].0)));
        }
        Ok(Archive { store, entries })
    }

    pub fn entry_names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    pub fn entry_length(&self, name: &str) -> Option<u64> {
        self.entries.get(name).map(|entry| entry.size)
    }

    fn find_entry(&self, name: &str) -> Result<&Entry, String> {
        self.entries.get(name).ok_or_else(|| format!("the archive has no entry `{}`", shorten_text(name)))
    }

    fn stored_range(&self, name: &str) -> Result<Range<u64>, String> {
        let entry = self.find_entry(name)?;
        if entry.is_deflated {
            return Err(format!("entry `{}` is compressed", shorten_text(name)));
        }
        Ok(entry.range.clone())
    }

    pub fn check_stored(&self) -> Result<(), String> {
        self.entry_names().try_for_each(|name| self.stored_range(name).map(drop))
    }

    /// Reads an uncompressed ("stored") entry of at most `most` bytes.
    pub fn read_entry(&self, name: &str, most: u64) -> Result<Bytes, String> {
        let range = self.stored_range(name)?;
        let length = range.end - range.start;
        if length > most {
            return Err(format!("entry `{}` has {length} bytes, more than the limit of {most}", shorten_text(name)));
        }
        self.store.read_range(range)
    }

    pub fn entry_contents(&self, name: &str, start: u64, length: u64) -> Result<Const, String> {
        let range = self.stored_range(name)?;
        let end = start.checked_add(length).filter(|end| *end <= range.end - range.start).ok_or_else(|| {
            format!(
                "entry `{}` has {} bytes, too few for {length} bytes at offset {start}",
                shorten_text(name),
                range.end - range.start
            )
        })?;
        self.store.range_contents(range.start + start..range.start + end)
    }

    /// Streams a stored or deflated entry; the stream fails at its end if size or checksum differ from the directory.
    /// A deflated entry may expand without limit: the caller bounds how much it reads.
    pub fn stream_entry(&self, name: &str) -> Result<impl Read + '_, String> {
        let entry = self.find_entry(name)?;
        let packed = ArchiveSlice { store: &self.store, range: entry.range.clone() };
        let inflated: Box<dyn Read + '_> = match entry.is_deflated {
            true => Box::new(DeflateDecoder::new(packed)),
            false => Box::new(packed),
        };
        Ok(Checked { inner: inflated, found: Crc::new(), size: entry.size, crc: entry.crc })
    }

    pub fn file_length(&self) -> u64 {
        self.store.byte_length()
    }

    /// Hashes the bytes of these entries, and the names and positions of all entries.
    pub fn hash_entries(&self, names: &[&str]) -> Result<String, String> {
        let mut hasher = blake3::Hasher::new();
        for (name, Entry { range, .. }) in &self.entries {
            hasher.update(format!("{name} {} {}\n", range.start, range.end).as_bytes());
        }
        for name in names {
            hasher.update(&self.store.read_range(self.find_entry(name)?.range.clone())?);
        }
        Ok(hasher.finalize().to_hex().to_string())
    }
}

struct ArchiveSlice<'a> {
    store: &'a ArchiveBytes,
    range: Range<u64>,
}

impl Read for ArchiveSlice<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.range.end - self.range.start).unwrap_or(usize::MAX);
        let length = buffer.len().min(left).min(READ_AT_ONCE);
        let end = self.range.start + length as u64;
        buffer[..length].copy_from_slice(&self.store.read_range(self.range.start..end).map_err(io::Error::other)?);
        self.range.start = end;
        Ok(length)
    }
}

/// A stream that fails at its end unless length and checksum match.
struct Checked<Inner> {
    inner: Inner,
    found: Crc,
    size: u64,
    crc: u32,
}

impl<Inner: Read> Read for Checked<Inner> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.size = (self.size.checked_sub(length as u64))
            .ok_or_else(|| io::Error::other("the entry is longer than the directory states"))?;
        self.found.update(&buffer[..length]);
        if length == 0 && !buffer.is_empty() && (self.size != 0 || self.found.sum() != self.crc) {
            return Err(io::Error::other("the entry is damaged: wrong length or checksum"));
        }
        Ok(length)
    }
}

struct Directory {
    range: Range<u64>,
    count: u64,
}

impl Directory {
    fn find_directory(store: &ArchiveBytes) -> Result<Directory, String> {
        let length = store.byte_length();
        let start = length.saturating_sub(MAX_END_BYTES);
        let tail = store.read_range(start..length)?;
        // The comment must reach the end of the file, so a signature inside a comment does not match.
        let is_end = |at: &usize| {
            tail[*at..].starts_with(b"PK\x05\x06")
                && tail
                    .get(at + 20..at + 22)
                    .is_some_and(|size| at + 22 + usize::from(u16::from_le_bytes([size[0], size[1]])) == tail.len())
        };
        let last = tail.len().checked_sub(22).ok_or("the file is too short for a zip archive")?;
        let end = (0..=last).rev().find(is_end).ok_or("the file is not a zip archive, or it is truncated")?;
        let mut fields = Fields { bytes: &tail[end + 4..] };
        let (disk, first_disk) = (fields.read_u16()?, fields.read_u16()?);
        let (here, count) = (u64::from(fields.read_u16()?), u64::from(fields.read_u16()?));
        let (size, offset) = (u64::from(fields.read_u32()?), u64::from(fields.read_u32()?));
        let is_wide = here == 0xFFFF || size == 0xFFFF_FFFF || offset == 0xFFFF_FFFF;
        let (disks, here, count, size, offset) = match is_wide {
            true => wide_end(store, &tail[..end])?,
            false => (u32::from(disk) + u32::from(first_disk), here, count, size, offset),
        };
        if disks != 0 || here != count {
            return Err("archives that are split into several files are not supported".to_owned());
        }
        let stop = offset.checked_add(size).filter(|stop| *stop <= start + end as u64);
        let stop = stop.ok_or_else(|| {
            format!("the archive directory ({size} bytes at offset {offset}) lies outside of the file")
        })?;
        if size > MAX_DIRECTORY_BYTES || count > MAX_ENTRIES || count * 46 > size {
            return Err(format!("the archive directory claims {count} entries in {size} bytes"));
        }
        Ok(Directory { range: offset..stop, count })
    }
}

/// Reads the 64-bit end record, if its locator immediately precedes the regular end record.
fn wide_end(store: &ArchiveBytes, before: &[u8]) -> Result<(u32, u64, u64, u64, u64), String> {
    let locator = before.len().checked_sub(20).map(|at| &before[at..]).filter(|bytes| bytes.starts_with(b"PK\x06\x07"));
    let mut fields =
        Fields { bytes: &locator.ok_or("the end record of the 64-bit archive directory is missing")?[4..] };
    fields.read_u32()?;
    let at = fields.read_u64()?;
    let stop = at.checked_add(56).filter(|stop| *stop <= store.byte_length());
    let end =
        store.read_range(at..stop.ok_or("the end record of the 64-bit archive directory lies outside of the file")?)?;
    if !end.starts_with(b"PK\x06\x06") {
        return Err("the end record of the 64-bit archive directory is damaged".to_owned());
    }
    let mut fields = Fields { bytes: &end[16..] };
    let disks = fields.read_u32()?.saturating_add(fields.read_u32()?);
    Ok((disks, fields.read_u64()?, fields.read_u64()?, fields.read_u64()?, fields.read_u64()?))
}

fn parse_entry(fields: &mut Fields<'_>, store: &ArchiveBytes, limit: u64) -> Result<(String, Entry), String> {
    if fields.take_bytes(4)? != b"PK\x01\x02" {
        return Err("the archive directory is damaged".to_owned());
    }
    fields.take_bytes(4)?;
    let (flags, method) = (fields.read_u16()?, fields.read_u16()?);
    fields.take_bytes(4)?;
    let crc = fields.read_u32()?;
    let (mut packed, mut size) = (u64::from(fields.read_u32()?), u64::from(fields.read_u32()?));
    let (name, extra, comment) = (fields.read_u16()?, fields.read_u16()?, fields.read_u16()?);
    fields.take_bytes(8)?;
    let mut offset = u64::from(fields.read_u32()?);
    let name = std::str::from_utf8(fields.take_bytes(name.into())?)
        .map_err(|_| "the name of an entry is not UTF-8")?
        .to_owned();
    let mut extra = Fields { bytes: fields.take_bytes(extra.into())? };
    fields.take_bytes(comment.into())?;
    let shown = shorten_text(&name);
    while extra.bytes.len() >= 4 {
        let (id, length) = (extra.read_u16()?, extra.read_u16()?);
        let mut field = Fields { bytes: extra.take_bytes(length.into())? };
        if id == 1 {
            for number in [&mut size, &mut packed, &mut offset] {
                if *number == 0xFFFF_FFFF {
                    *number = field.read_u64()?;
                }
            }
        }
    }
    if flags & 1 != 0 {
        return Err(format!("entry `{shown}` is encrypted"));
    }
    let is_deflated = match method {
        0 if packed == size => false,
        8 => true,
        _ => return Err(format!("entry `{shown}` uses a compression method other than deflate")),
    };
    // The local header has its own lengths of the name and the extra field.
    let head = offset.checked_add(30).filter(|head| *head <= limit);
    let head = head.ok_or_else(|| format!("entry `{shown}` does not lie before the archive directory"))?;
    let local = store.read_range(offset..(head + name.len() as u64).min(limit))?;
    let mut local_fields = Fields { bytes: &local };
    if local_fields.take_bytes(4)? != b"PK\x03\x04" {
        return Err(format!("there is no local header at the offset that the directory states for entry `{shown}`"));
    }
    local_fields.take_bytes(22)?;
    let (local_name, local_extra) = (u64::from(local_fields.read_u16()?), u64::from(local_fields.read_u16()?));
    let start = head + local_name + local_extra;
    let stop = start.checked_add(packed).filter(|stop| *stop <= limit);
    let stop =
        stop.ok_or_else(|| format!("entry `{shown}` of {packed} bytes does not lie before the archive directory"))?;
    if local_fields.bytes != name.as_bytes() || local_name != name.len() as u64 {
        return Err(format!("entry `{shown}` has a different name in its local header"));
    }
    Ok((name, Entry { range: start..stop, size, crc, is_deflated }))
}

struct Fields<'a> {
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take_bytes(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or("the archive directory is truncated")?;
        self.bytes = rest;
        Ok(taken)
    }

    fn read_u16(&mut self) -> Result<u16, String> {
        Ok(u16::from_le_bytes(self.take_bytes(2)?.try_into().expect("two bytes")))
    }

    fn read_u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.take_bytes(4)?.try_into().expect("four bytes")))
    }

    fn read_u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.take_bytes(8)?.try_into().expect("eight bytes")))
    }
}
