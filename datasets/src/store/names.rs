//! File and folder names made from arbitrary texts.

const MOST_BYTES: usize = 120;

/// Encodes a text as a file name that is never empty, hidden or a path: keeps letters, digits and `._-`, and
/// percent-encodes all other bytes and a leading dot. Distinct texts give distinct names.
pub(super) fn encode_name(text: &str) -> String {
    let mut name = String::new();
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => name.push(char::from(byte)),
            b'.' if index > 0 => name.push('.'),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    if name.len() > MOST_BYTES || name.is_empty() {
        name.truncate(MOST_BYTES - 40);
        name.push_str(&format!("%23{}", crate::record::key::Key::of_bytes(text.as_bytes())));
    }
    name
}

/// Returns the folder of a target's parts, named with `part_`: some readers reject partitions that repeat a column.
pub(super) fn part_folder(target: &str, host_class: &str) -> String {
    format!("part_target={}/part_host_class={}", encode_name(target), encode_name(host_class))
}

pub(super) fn part_name(hash: &blake3::Hash) -> String {
    format!("part-{}.parquet", hash.to_hex())
}

pub(super) fn is_part(name: &str) -> bool {
    let hash = name.strip_prefix("part-").and_then(|rest| rest.strip_suffix(".parquet"));
    hash.is_some_and(|hash| hash.len() == 64 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
}

#[cfg(test)]
mod tests {
    use super::encode_name;
    use expect_test::expect;

    #[test]
    fn names_never_lead_out_of_a_folder() {
        let encoded = ["epyc-2", "../../etc", "..", "a/b", "größe", "", ".hidden", "a=b"].map(encode_name);
        expect![
            "epyc-2 %2E.%2F..%2Fetc %2E. a%2Fb gr%C3%B6%C3%9Fe %23af1349b9f5f9a1a6a0404dea36dcc949 %2Ehidden a%3Db"
        ]
        .assert_eq(&encoded.join(" "));
        assert_eq!(encode_name(&"é".repeat(500)).len(), 115);
        assert_ne!(encode_name(&"x".repeat(500)), encode_name(&"x".repeat(501)));
    }
}
