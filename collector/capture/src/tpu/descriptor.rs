//! Decoding of command descriptors. The register layouts and the table of valid commands are text files in `tables/`,
//! parsed once. No field crosses a 64-bit boundary.

use super::block::word_at;
use super::chip::{Chip, Engine};
use std::collections::HashMap;
use std::sync::LazyLock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub offset: u16,
    pub width: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorLayout {
    pub class: String,
    pub bytes: usize,
    /// Fields in bit order. A name that occurs twice is listed once: at its first place, with its last bits.
    pub fields: Vec<Field>,
    slots: HashMap<String, Place>,
    hot: [Option<Place>; HOT.len()],
}

/// Fields whose positions are resolved once per layout, because they are accessed for every record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum HotField {
    Type,
    SubType,
    CommandType,
    SpecialFunction,
    Short,
    Dependency,
    Format,
    SourceHigh,
    SourceLow,
    DestinationHigh,
    DestinationLow,
    SourceHigh8,
    DestinationHigh8,
    Immediate,
}

const HOT: [&str; 14] = [
    "tsk_typ",
    "tsk_eu_typ",
    "cmd_type",
    "cmd_special_function",
    "cmd_short",
    "cmd_id_dep",
    "src_data_format",
    "src_start_addr_h13",
    "src_start_addr_l32",
    "dst_start_addr_h13",
    "dst_start_addr_l32",
    "src_start_addr_h8",
    "dst_start_addr_h8",
    "imm",
];

impl DescriptorLayout {
    pub fn find_field(&self, name: &str) -> Option<Place> {
        self.slots.get(name).copied()
    }

    pub fn field_value(&self, bytes: &[u8], name: &str) -> Option<u64> {
        self.find_field(name).map(|place| extract_bits(bytes, place))
    }

    pub fn hot_value(&self, bytes: &[u8], field: HotField) -> Option<u64> {
        self.hot[field as usize].map(|place| extract_bits(bytes, place))
    }
}

/// Extracts the bits of a field. Missing bytes are read as zero.
pub fn extract_bits(bytes: &[u8], place: Place) -> u64 {
    let at = usize::from(place.offset / 64) * 8;
    let mut buffer = [0; 8];
    let part = bytes.get(at..).unwrap_or(&[]);
    let length = part.len().min(8);
    buffer[..length].copy_from_slice(&part[..length]);
    let value = u64::from_le_bytes(buffer) >> (place.offset % 64);
    if place.width >= 64 { value } else { value & ((1 << place.width) - 1) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Tiu,
    Dma,
    Cdma,
}

impl Stream {
    pub fn engine_stream(engine: Engine) -> Stream {
        match engine {
            Engine::Tiu => Stream::Tiu,
            Engine::Gdma | Engine::Sdma => Stream::Dma,
            Engine::Cdma => Stream::Cdma,
        }
    }
}

#[derive(Clone, Debug)]
struct FieldEntry {
    layout: u16,
    name: String,
}

#[derive(Debug, Default)]
pub struct Decoder {
    layouts: Vec<DescriptorLayout>,
    tiu: HashMap<(bool, u32, u32), FieldEntry>,
    dma: HashMap<(bool, u32, u32), FieldEntry>,
    cdma: HashMap<(bool, u32, u32), FieldEntry>,
    is_bm1688: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Decoded<'a> {
    pub layout: &'a DescriptorLayout,
    pub number: u16,
}

impl Decoder {
    pub fn for_chip(chip: Chip) -> &'static Decoder {
        static DECODERS: LazyLock<[Decoder; 4]> =
            LazyLock::new(|| [Chip::Aks, Chip::Aksv, Chip::Bm1688, Chip::Cv84x6].map(build_decoder));
        &DECODERS[chip as usize]
    }

    pub fn layout_at(&self, number: u16) -> &DescriptorLayout {
        &self.layouts[usize::from(number)]
    }

    /// Decodes the descriptor at the start of `bytes`. Returns `None` if there is no valid one or if it is truncated.
    pub fn decode(&self, stream: Stream, bytes: &[u8]) -> Option<Decoded<'_>> {
        let entry = self.find_entry(stream, bytes)?;
        let layout = self.layout_at(entry.layout);
        (bytes.len() >= layout.bytes).then_some(Decoded { layout, number: entry.layout })
    }

    pub fn printed_name(&self, layout: &DescriptorLayout, bytes: &[u8]) -> &str {
        let (kind, sub) = (layout.hot_value(bytes, HotField::Type), layout.hot_value(bytes, HotField::SubType));
        let short = layout.class.starts_with('s');
        match (kind, sub) {
            (Some(kind), Some(sub)) => {
                self.tiu.get(&(short, kind as u32, sub as u32)).map_or("unknown", |entry| entry.name.as_str())
            }
            _ => "unknown",
        }
    }

    fn find_entry(&self, stream: Stream, bytes: &[u8]) -> Option<&FieldEntry> {
        if bytes.len() < 8 {
            return None;
        }
        let (low, high) = (word_at(bytes, 0), word_at(bytes, 1));
        match stream {
            Stream::Tiu => {
                let (short, kind) = (low & 1 == 1, high >> 9 & 15);
                let whole = self.tiu.get(&(short, kind, high >> 13 & 31));
                whole.or_else(|| self.tiu.get(&(false, kind, high >> 13 & 7)))
            }
            Stream::Dma => {
                let short = low >> 3 & 1 == 1;
                let (kind, sub) = if self.is_bm1688 { (high & 15, high >> 4 & 7) } else { (high & 31, high >> 5 & 7) };
                self.dma.get(&(short, kind, sub))
            }
            Stream::Cdma => self.cdma.get(&(false, low >> 4 & 15, low >> 8 & 7)),
        }
    }
}

/// Maximum length of the zero padding that may follow the system command at the end of a stream.
const TRAILING_ZERO_BYTES: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocatedCommand {
    pub at: usize,
    pub layout: u16,
}

/// Decodes up to `limit` commands. Also returns the offset of the first command that cannot be decoded, if any.
pub fn decode_stream(chip: Chip, stream: Stream, bytes: &[u8], limit: usize) -> (Vec<LocatedCommand>, Option<usize>) {
    let decoder = Decoder::for_chip(chip);
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() && found.len() < limit {
        let Some(decoded) = decoder.decode(stream, &bytes[at..]) else {
            let is_padding = bytes[at..].iter().all(|byte| *byte == 0);
            return (found, (!is_padding).then_some(at));
        };
        let layout = decoded.layout;
        let body = &bytes[at..at + layout.bytes];
        let sub = layout.hot_value(body, HotField::SpecialFunction);
        let is_system = matches!(layout.class.as_str(), "SYS" | "sDMA_sys" | "sCDMA_sys");
        let ends = match (chip, stream) {
            (_, Stream::Cdma) => sub == Some(0) && is_system,
            (Chip::Cv84x6, Stream::Dma) => sub == Some(0) && is_system,
            (Chip::Bm1688 | Chip::Cv84x6, Stream::Tiu) => {
                is_system
                    && layout.hot_value(body, HotField::SubType) == Some(31)
                    && layout.field_value(body, "rsvd1").is_some_and(|v| v == 1)
            }
            _ => false,
        };
        let chain_end = chip == Chip::Bm1688 && stream == Stream::Dma && is_system && sub == Some(0);
        let next = at + layout.bytes;
        if !(chain_end && next >= bytes.len()) {
            found.push(LocatedCommand { at, layout: decoded.number });
        }
        at = next;
        let rest = &bytes[at..];
        if ends || is_system && rest.len() <= TRAILING_ZERO_BYTES && rest.iter().all(|byte| *byte == 0) {
            break;
        }
    }
    (found, None)
}

fn build_decoder(chip: Chip) -> Decoder {
    let letter = chip.facts().letter;
    let mut decoder = Decoder { is_bm1688: chip == Chip::Bm1688, ..Decoder::default() };
    let classes = read_layouts(letter, &mut decoder);
    let mut here = false;
    for line in include_str!("tables/descriptors.txt").lines() {
        if let Some(chips) = line.strip_prefix('[') {
            here = chips.contains(letter);
        } else if here && !line.starts_with('#') && !line.is_empty() {
            read_descriptor(line, &classes, &mut decoder);
        }
    }
    decoder
}

fn read_descriptor(line: &str, classes: &HashMap<String, u16>, decoder: &mut Decoder) {
    let (head, subs) = line.split_once(" = ").expect("the built-in table is valid");
    let mut words = head.split(' ');
    let stream = words.next().expect("the built-in table is valid");
    let kind: u32 = words.next().and_then(|word| word.parse().ok()).expect("the built-in table is valid");
    for class in words {
        let either = class.ends_with('*');
        let class = class.trim_end_matches('*');
        let Some(&layout) = classes.get(class) else { continue };
        let add = |map: &mut HashMap<_, _>, short, sub, name: &str| {
            map.insert((short, kind, sub), FieldEntry { layout, name: name.to_owned() });
        };
        let short = class.starts_with('s');
        if stream == "tiu" {
            for item in subs.split("; ") {
                let (sub, name) = item.split_once(' ').expect("the built-in table is valid");
                let sub = sub.parse().expect("the built-in table is valid");
                add(&mut decoder.tiu, short, sub, name);
                if either {
                    add(&mut decoder.tiu, !short, sub, name);
                }
            }
        } else {
            for sub in subs.split(' ').map(|sub| sub.parse().expect("the built-in table is valid")) {
                match stream {
                    "dma" => add(&mut decoder.dma, short, sub, ""),
                    _ => add(&mut decoder.cdma, false, sub, ""),
                }
            }
        }
    }
}

fn read_layouts(letter: char, decoder: &mut Decoder) -> HashMap<String, u16> {
    let (mut parts, mut classes) = (HashMap::new(), HashMap::new());
    for line in include_str!("tables/layouts.txt").lines() {
        if let Some(part) = line.strip_prefix('@') {
            let (name, fields) = part.split_once(" = ").expect("the built-in table is valid");
            parts.insert(name, fields);
            continue;
        }
        let Some((heads, rest)) = line.split_once(" : ").filter(|_| !line.starts_with('#')) else { continue };
        let (bits, fields) = rest.split_once(" : ").expect("the built-in table is valid");
        for head in heads.split(' ') {
            let (class, chips) = head.rsplit_once('/').expect("the built-in table is valid");
            if chips.contains(letter) {
                let layout = read_layout(class, bits.parse().expect("the built-in table is valid"), fields, &parts);
                classes.insert(class.to_owned(), decoder.layouts.len() as u16);
                decoder.layouts.push(layout);
            }
        }
    }
    classes
}

fn read_layout(class: &str, size: usize, text: &str, parts: &HashMap<&str, &str>) -> DescriptorLayout {
    let (mut fields, mut offset) = (Vec::new(), 0);
    read_fields(text, parts, &mut |name: String, width| {
        let place = Place { offset, width };
        offset += u16::from(width);
        match fields.iter_mut().find(|field: &&mut Field| field.name == name) {
            Some(field) => field.place = place,
            None => fields.push(Field { name, place }),
        }
    });
    assert_eq!(usize::from(offset), size, "the fields of {class} do not fill it");
    let slots: HashMap<_, _> = fields.iter().map(|field| (field.name.clone(), field.place)).collect();
    let hot = HOT.map(|name| slots.get(name).copied());
    DescriptorLayout { class: class.to_owned(), bytes: size / 8, fields, slots, hot }
}

fn read_fields(text: &str, parts: &HashMap<&str, &str>, add: &mut impl FnMut(String, u8)) {
    for token in text.split(' ') {
        if let Some(part) = token.strip_prefix('@') {
            read_fields(parts[part], parts, add);
            continue;
        }
        let (name, width) = token.rsplit_once(':').expect("the built-in table is valid");
        let (name, width) = (name.replace('~', " "), width.parse().expect("the built-in table is valid"));
        match name.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
            Some((before, (letters, after))) => {
                letters.chars().for_each(|letter| add(format!("{before}{letter}{after}"), width));
            }
            None => add(name, width),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_fill_their_size_and_no_field_crosses_a_word() {
        for chip in [Chip::Aks, Chip::Aksv, Chip::Bm1688, Chip::Cv84x6] {
            let decoder = Decoder::for_chip(chip);
            assert!(decoder.layouts.len() > 20, "{chip:?}");
            for layout in &decoder.layouts {
                for field in &layout.fields {
                    let Place { offset, width } = field.place;
                    assert!(offset / 64 == (offset + u16::from(width) - 1) / 64, "{} {}", layout.class, field.name);
                }
            }
        }
    }
}
