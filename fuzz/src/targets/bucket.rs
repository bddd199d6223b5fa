//! Parses arbitrary texts as a bucket's listing (S3's XML); only names of a store's shared files may result.

use super::valid_text;
use engine::sharing::list_page;
use std::path::{Component, Path};

pub fn run(bytes: &[u8]) {
    let text = valid_text(bytes);
    for prefix in ["", "stores/a/"] {
        let (names, next) = list_page(text, prefix);
        for name in names {
            assert!(Path::new(&name).components().all(|part| matches!(part, Component::Normal(_))), "{name}");
            assert!(["dataset/", "hosts/", "configs/"].iter().any(|folder| name.starts_with(folder)), "{name}");
        }
        assert!(next.is_none_or(|next| text.contains(&next)));
    }
}
