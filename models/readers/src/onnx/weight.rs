//! Estimates the memory of a decoded file: an empty attribute takes two bytes in the file but hundreds in memory.

use super::messages::{
    Attribute, Dimension, Entry, Function, Graph, Node, OperatorSet, SparseTensor, Tensor, ValueInfo,
};
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// Memory limit of decoded messages, in bytes per byte of the file.
const MEMORY_PER_BYTE: u64 = 24;
/// Fixed part of the memory limit, for a file of any size.
const MEMORY_BYTES_FIXED: u64 = 64 << 20;

const MAX_DEPTH: usize = 100;

#[derive(Clone, Copy)]
enum Kind {
    Model,
    OperatorSet,
    Function,
    Graph,
    Node,
    Attribute,
    Tensor,
    Sparse,
    Entry,
    Value,
    Type,
    TensorType,
    Shape,
    Dimension,
    Text,
}

impl Kind {
    /// Returns the message kind of a field, if each of its occurrences allocates memory.
    fn field_kind(self, tag: u32) -> Option<Kind> {
        Some(match (self, tag) {
            (Kind::Model, 7) | (Kind::Attribute, 6) => Kind::Graph,
            (Kind::Model, 8) | (Kind::Function, 9) => Kind::OperatorSet,
            (Kind::Model, 25) => Kind::Function,
            (Kind::Graph, 1) | (Kind::Function, 7) => Kind::Node,
            (Kind::Graph | Kind::Attribute, 5) | (Kind::Sparse, 1) => Kind::Tensor,
            (Kind::Graph, 15) | (Kind::Attribute, 22) => Kind::Sparse,
            (Kind::Graph, 11..=13) => Kind::Value,
            (Kind::Node, 5) | (Kind::Function, 11) => Kind::Attribute,
            (Kind::Tensor, 13) => Kind::Entry,
            (Kind::Value, 2) => Kind::Type,
            (Kind::Type, 1) => Kind::TensorType,
            (Kind::TensorType, 2) => Kind::Shape,
            (Kind::Shape, 1) => Kind::Dimension,
            (Kind::Node, 1 | 2) | (Kind::Function, 4 | 5) | (Kind::Attribute, 9) => Kind::Text,
            _ => return None,
        })
    }

    fn message_bytes(self) -> u64 {
        let bytes = match self {
            Kind::Model => 0,
            Kind::OperatorSet => size_of::<OperatorSet>(),
            Kind::Function => size_of::<Function>(),
            Kind::Graph => size_of::<Graph>(),
            Kind::Node => size_of::<Node>(),
            Kind::Attribute => size_of::<Attribute>(),
            Kind::Tensor => size_of::<Tensor>(),
            Kind::Sparse => size_of::<SparseTensor>(),
            Kind::Entry => size_of::<Entry>(),
            Kind::Value => size_of::<ValueInfo>(),
            // Included in `ValueInfo`.
            Kind::Type | Kind::TensorType | Kind::Shape => 0,
            Kind::Dimension => size_of::<Dimension>(),
            Kind::Text => size_of::<bytes::Bytes>(),
        };
        bytes as u64
    }
}

pub fn excess_reason(file: &[u8]) -> Option<String> {
    let most = MEMORY_PER_BYTE.saturating_mul(file.len() as u64).saturating_add(MEMORY_BYTES_FIXED);
    let found = decoded_bytes(file, Kind::Model, 0);
    (found > most).then(|| {
        format!(
            "the decoded messages would take {} MiB, {} times the file size",
            found >> 20,
            found / file.len().max(1) as u64
        )
    })
}

/// Sums the decoded sizes of all fields. Stops at the first damaged one, which the decoder reports.
fn decoded_bytes(message: &[u8], kind: Kind, depth: usize) -> u64 {
    let mut total = 0;
    let _ = add_fields(message, kind, depth, &mut total);
    total
}

fn add_fields(mut message: &[u8], kind: Kind, depth: usize, total: &mut u64) -> Result<(), DecodeError> {
    while !message.is_empty() {
        let (tag, wire) = decode_key(&mut message)?;
        let found = kind.field_kind(tag).filter(|_| wire == WireType::LengthDelimited && depth < MAX_DEPTH);
        let Some(field) = found else {
            skip_field(wire, tag, &mut message, DecodeContext::default())?;
            continue;
        };
        let length = decode_varint(&mut message)?;
        let parts = usize::try_from(length).ok().and_then(|length| message.split_at_checked(length));
        let Some((inner, rest)) = parts else { return Ok(()) };
        message = rest;
        *total = total.saturating_add(field.message_bytes()).saturating_add(decoded_bytes(inner, field, depth + 1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::messages::Model;
    use super::*;
    use prost::Message;

    #[test]
    fn empty_attributes_are_counted_before_they_are_decoded() {
        let node = Node { attribute: vec![Attribute::default(); 4_000_000], ..Node::default() };
        let graph = Graph { node: vec![node], ..Graph::default() };
        let bytes = Model { graph: Some(graph), ..Model::default() }.encode_to_vec();
        let why = excess_reason(&bytes).expect("it is too much");
        assert!(why.contains("times the file"), "{why}");
        // An honest file's attributes have names and values.
        let attribute = Attribute { name: "kernel_shape".to_owned(), ints: vec![3, 3], ..Attribute::default() };
        let node =
            Node { input: vec!["input.layer4.1.relu".to_owned(); 3], attribute: vec![attribute; 5], ..Node::default() };
        let graph = Graph { node: vec![node; 20_000], ..Graph::default() };
        let bytes = Model { graph: Some(graph), ..Model::default() }.encode_to_vec();
        assert_eq!(excess_reason(&bytes), None);
    }

    #[test]
    fn damaged_files_end() {
        for bytes in [&[0x3a, 0xff, 0xff, 0xff, 0xff, 0x0f][..], &[0xff; 20], &[0x3b], &[]] {
            assert_eq!(excess_reason(bytes), None);
        }
    }
}
