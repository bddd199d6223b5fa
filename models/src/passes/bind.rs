//! Gives symbols of dimensions their numbers.

use super::rebuild::Rebuild;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::types::Dim;
use std::collections::{BTreeMap, BTreeSet};

impl Graph {
    /// The dimension symbols it holds.
    pub fn symbols(&self) -> BTreeSet<String> {
        let dims = self.values.iter().flat_map(|value| &value.ty.shape);
        let names = dims.filter_map(|dim| match dim {
            Dim::Symbol(name) => Some(name.clone()),
            Dim::Known(_) => None,
        });
        names.collect()
    }

    /// The same graph with numbers for some or all of its symbols; every other shape follows from the rules.
    pub fn bind(&self, symbols: &BTreeMap<String, i64>) -> Result<Graph> {
        self.check()?;
        let known = self.symbols();
        if let Some(name) = symbols.keys().find(|name| !known.contains(*name)) {
            let reason = match known.len() {
                0 => format!("there is no symbol `{name}`: all dimensions are numbers"),
                _ => format!("there is no symbol `{name}`; the symbols are {}", Vec::from_iter(known).join(", ")),
            };
            return Err(Error::Model { model: self.name.clone(), reason });
        }
        let mut rebuild = Rebuild::with_symbols(self, symbols.clone())?;
        for node in &self.nodes {
            rebuild.copy(node)?;
        }
        rebuild.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph() -> Graph {
        let text = r#"
            graph "symbols"
            input %0 "x": f32[batch,8]
            input %1 "y": f32[batch,more]
            %2 "z": f32[batch,8] = softmax(%0) axis=1 log=false
            output %2, %1
        "#;
        Graph::from_text(text).unwrap()
    }

    #[test]
    fn bound_symbols_become_numbers_everywhere() {
        let bound = graph().bind(&BTreeMap::from([("batch".to_owned(), 4)])).unwrap();
        let types: Vec<String> = bound.values.iter().map(|value| value.ty.to_string()).collect();
        assert_eq!(types, ["f32[4,8]", "f32[4,more]", "f32[4,8]"]);
        assert_eq!(bound.symbols(), BTreeSet::from(["more".to_owned()]));
    }

    #[test]
    fn an_unknown_symbol_and_an_impossible_number_are_refused() {
        let says =
            |name: &str, extent| graph().bind(&BTreeMap::from([(name.to_owned(), extent)])).unwrap_err().to_string();
        assert_eq!(says("bach", 4), "model `symbols`: there is no symbol `bach`; the symbols are batch, more");
        assert!(says("batch", -4).contains("negative extent -4"));
    }
}
