//! Source files of a TorchScript archive; finds their classes and functions by full name.

use super::parser::parse_source;
use super::syntax::{Class, Function, Source};
use crate::archive::Archive;
use crate::{Outcome, malformed};
use std::collections::BTreeMap;
use std::io::Read;

/// Limit on the source size of a small file; it grows with the archive.
const MAX_SOURCE_BYTES: u64 = 2 << 20;

pub(super) struct Texts(BTreeMap<String, String>);

impl Texts {
    /// Reads all source files. Their total size may not exceed the archive size plus a constant.
    pub fn read(archive: &Archive, top: &str) -> Result<Texts, String> {
        let folder = format!("{top}code/");
        let mut left = MAX_SOURCE_BYTES + archive.file_length();
        let mut texts = BTreeMap::new();
        for name in archive.entry_names() {
            let Some(module) = name.strip_prefix(&folder).and_then(|name| name.strip_suffix(".py")) else { continue };
            let bytes = read_entry(archive, name, left)?;
            left -= bytes.len() as u64;
            let text =
                String::from_utf8(bytes).map_err(|_| format!("entry `{}` is not UTF-8", crate::escape_name(name)))?;
            texts.insert(module.replace('/', "."), text);
        }
        Ok(Texts(texts))
    }
}

pub(super) fn read_entry(archive: &Archive, name: &str, most: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let unreadable = |error: std::io::Error| format!("entry `{}` cannot be read: {error}", crate::escape_name(name));
    archive.stream_entry(name)?.take(most + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    match bytes.len() as u64 > most {
        true => Err(format!("entry `{}` has more than {most} bytes", crate::escape_name(name))),
        false => Ok(bytes),
    }
}

pub(super) struct Library<'a> {
    sources: BTreeMap<&'a str, Result<Source<'a>, String>>,
}

pub(super) enum Definition<'a, 'l> {
    Class(&'l Class<'a>),
    Function(&'l Function<'a>),
}

impl<'a> Library<'a> {
    pub fn parse(texts: &'a Texts) -> Library<'a> {
        let sources = texts.0.iter().map(|(module, text)| (module.as_str(), parse_source(text)));
        Library { sources: sources.collect() }
    }

    /// Finds a definition by its full name, such as `__torch__.torch.nn.functional.relu`.
    pub fn find_definition<'l>(&'l self, path: &str) -> Outcome<Definition<'a, 'l>> {
        let (module, name) = path.rsplit_once('.').unwrap_or(("", path));
        let source = match self.sources.get(module) {
            Some(Ok(source)) => source,
            Some(Err(reason)) => return malformed(format!("source of `{}`: {reason}", crate::escape_name(module))),
            None => return malformed(format!("the source of `{}` is missing", crate::escape_name(path))),
        };
        if let Some(class) = source.classes.iter().find(|class| class.name == name) {
            return Ok(Definition::Class(class));
        }
        match source.functions.iter().find(|function| function.name == name) {
            Some(function) => Ok(Definition::Function(function)),
            None => malformed(format!("`{}` is not defined", crate::escape_name(path))),
        }
    }

    pub fn find_class<'l>(&'l self, path: &str) -> Outcome<&'l Class<'a>> {
        match self.find_definition(path)? {
            Definition::Class(class) => Ok(class),
            Definition::Function(_) => malformed(format!("`{}` is not a class", crate::escape_name(path))),
        }
    }
}
