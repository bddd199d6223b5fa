//! Resolves the input types of a model: every dimension gets a number.

use super::import::Importer;
use super::scope::{Scope, Slot};
use super::stated::{has_unknown_rank, stated_type};
use super::{messages, tensor};
use crate::escape_name;
use models::error::Result;
use models::graph::Const;
use models::types::{Dim, TensorType};
use passes::fold::contents_of;
use std::collections::{BTreeMap, BTreeSet};

impl<'a> Importer<'a> {
    pub(super) fn add_inputs(&mut self, graph: &'a messages::Graph, scope: &mut Scope<'a>) -> Result<()> {
        let given: Vec<&messages::ValueInfo> =
            graph.input.iter().filter(|info| scope.find_name(&info.name).is_none()).collect();
        self.check_names(&given)?;
        self.check_sequence(&given)?;
        let symbols = self.bind_symbols(&given)?;
        self.check_extents(&given, &symbols)?;
        for info in given {
            let place = || format!("input `{}`", escape_name(&info.name));
            let id = if let Some(bound) = self.options.bindings.get(&info.name) {
                self.emit.builder.add_constant(&info.name, bound.tensor_type().clone(), contents_of(bound))?
            } else {
                let ty = stated_type(info).map_err(|reason| self.unsupported(place(), reason))?;
                let ty = self.resolve_type(info, ty, &symbols)?;
                match self.options.values.get(&info.name) {
                    Some(numbers) => {
                        let bound = bind_numbers(&ty, numbers).map_err(|reason| self.malformed(place(), reason))?;
                        self.emit.builder.add_constant(&info.name, ty, bound)?
                    }
                    None => self.emit.builder.add_input(&info.name, ty)?,
                }
            };
            let code = info.ty.as_ref().and_then(|ty| ty.tensor.as_ref()).map_or(0, |tensor| tensor.elem_type);
            if let Some(narrow) = tensor::narrow_type(code) {
                self.emit.set_narrow(id, narrow);
            }
            self.bind_slot(&info.name, Slot::Value(id), scope)?;
        }
        Ok(())
    }

    fn check_names(&self, given: &[&messages::ValueInfo]) -> Result<()> {
        const MAX_LISTED: usize = 20;
        let options = self.options;
        for name in options.shapes.keys().chain(options.bindings.keys()).chain(options.values.keys()) {
            if !given.iter().any(|info| info.name == *name) {
                let mut names: Vec<String> =
                    given.iter().take(MAX_LISTED).map(|info| format!("`{}`", escape_name(&info.name))).collect();
                if given.len() > MAX_LISTED {
                    names.push(format!("and {} more", given.len() - MAX_LISTED));
                }
                let flag = if options.shapes.contains_key(name) {
                    "`--shape` names this input, but "
                } else if options.values.contains_key(name) {
                    "`--bind` names this input, but "
                } else {
                    ""
                };
                let reason = format!("{flag}the model has no such input; the inputs are {}", names.join(", "));
                return Err(self.malformed(format!("input `{}`", escape_name(name)), reason));
            }
        }
        Ok(())
    }

    /// Checks that each input dimension gets a number; one error lists all dimensions without a number.
    fn check_extents(&self, given: &[&messages::ValueInfo], symbols: &BTreeMap<String, i64>) -> Result<()> {
        if let Some(info) = given.iter().find(|info| has_unknown_rank(info) && self.extents_given(info).is_none()) {
            let name = escape_name(&info.name);
            let reason =
                format!("the file states no shape; set it with `--shape {name}=N`, or `NxN…` for more dimensions");
            return Err(self.malformed(format!("input `{name}`"), reason));
        }
        let mut open: Vec<(&messages::ValueInfo, TensorType)> = Vec::new();
        for &info in given {
            let Ok(ty) = stated_type(info) else { continue };
            let is_open = |(index, dim): (usize, &Dim)| self.resolve_extent(dim, index, symbols).is_none();
            if self.extents_given(info).is_none() && ty.shape.iter().enumerate().any(is_open) {
                open.push((info, ty));
            }
        }
        let Some((first, _)) = open.first() else { return Ok(()) };
        let types: Vec<String> =
            open.iter().map(|(info, ty)| format!("`{}` is {ty}", escape_name(&info.name))).collect();
        let flags: Vec<String> = open
            .iter()
            .map(|(info, ty)| {
                let dims =
                    ty.shape.iter().enumerate().map(|(index, dim)| match self.resolve_extent(dim, index, symbols) {
                        Some(extent) => extent.to_string(),
                        None => "N".to_owned(),
                    });
                format!("`--shape {}={}`", escape_name(&info.name), dims.collect::<Vec<_>>().join("x"))
            })
            .collect();
        let place = match open.len() {
            1 => format!("input `{}`", escape_name(&first.name)),
            count => format!("{count} inputs"),
        };
        let is_of_sequence = |dim: &Dim| matches!(dim, Dim::Symbol(name) if is_sequence(name));
        let has_sequence = open.iter().any(|(_, ty)| ty.shape.iter().any(is_of_sequence));
        let by_length = if has_sequence { "; `--sequence N` sets those of sequences" } else { "" };
        let reason = format!(
            "some dimensions are not fixed ({}); set them with {}, with a number for each N{by_length}",
            types.join(", "),
            flags.join(" ")
        );
        Err(self.malformed(place, reason))
    }

    /// Returns a dimension's extent from the file, its symbol, the batch size or the sequence length; None if unknown.
    fn resolve_extent(&self, dim: &Dim, index: usize, symbols: &BTreeMap<String, i64>) -> Option<i64> {
        let name = match dim {
            Dim::Known(extent) => return Some(*extent),
            Dim::Symbol(name) => name,
        };
        let is_batch = name.to_lowercase().contains("batch") || ((name == "N" || name.is_empty()) && index == 0);
        let of_name = if is_sequence(name) { self.options.sequence } else { None };
        symbols.get(name.as_str()).copied().or_else(|| is_batch.then_some(self.options.batch)).or(of_name)
    }

    fn check_sequence(&self, given: &[&messages::ValueInfo]) -> Result<()> {
        let types: Vec<TensorType> = given.iter().filter_map(|info| stated_type(info).ok()).collect();
        let dims = types.iter().flat_map(|ty| &ty.shape);
        let symbols: BTreeSet<&Dim> = dims.filter(|dim| matches!(dim, Dim::Symbol(_))).collect();
        let has_sequence = symbols.iter().any(|dim| matches!(dim, Dim::Symbol(name) if is_sequence(name)));
        if self.options.sequence.is_none() || has_sequence {
            return Ok(());
        }
        let named: Vec<String> = symbols.iter().map(|dim| format!("`{}`", escape_name(&dim.to_string()))).collect();
        let open = if named.is_empty() { "none".to_owned() } else { named.join(", ") };
        let reason = format!(
            "`--sequence` has no effect: no dimension has the name of a sequence length; unknown dimensions are {open}"
        );
        Err(self.malformed("inputs".to_owned(), reason))
    }

    /// Returns the value of each named dimension, as determined by the shapes that options give to inputs. Files give
    /// one name to independent dimensions by mistake, so different sizes are only noted.
    fn bind_symbols(&mut self, given: &[&messages::ValueInfo]) -> Result<BTreeMap<String, i64>> {
        let mut symbols: BTreeMap<String, i64> = BTreeMap::new();
        for info in given {
            let Some(extents) = self.extents_given(info) else { continue };
            let Ok(ty) = stated_type(info) else { continue };
            if ty.rank() != extents.len() && !has_unknown_rank(info) {
                let reason = format!("the input is {ty}, but the given shape has {} dimensions", extents.len());
                return Err(self.malformed(format!("input `{}`", escape_name(&info.name)), reason));
            }
            for (dim, extent) in ty.shape.iter().zip(extents) {
                // Dimensions without a name are independent of each other.
                if let Dim::Symbol(name) = dim
                    && !name.is_empty()
                    && let Some(earlier) = symbols.insert(name.clone(), extent)
                    && earlier != extent
                {
                    self.notes.push(format!(
                        "input `{}`: the given shapes have the sizes {earlier} and {extent} for the dimension `{}`, which \
                         the file calls one; inputs without a given shape take {extent}",
                        escape_name(&info.name),
                        escape_name(name)
                    ));
                }
            }
        }
        Ok(symbols)
    }

    /// Returns whether options change input extents; the types that the file states for other values are then invalid.
    pub(super) fn is_reshaped(&self, graph: &messages::Graph) -> bool {
        graph.input.iter().any(|info| match (self.extents_given(info), stated_type(info)) {
            (Some(extents), Ok(stated)) => {
                let differs = |(dim, extent): (&Dim, &i64)| matches!(dim, Dim::Known(stated) if stated != extent);
                stated.shape.iter().zip(&extents).any(differs)
            }
            _ => false,
        })
    }

    fn extents_given(&self, info: &messages::ValueInfo) -> Option<Vec<i64>> {
        let options = self.options;
        let of_tensor = || options.bindings.get(&info.name).and_then(|tensor| tensor.tensor_type().extents());
        let of_numbers = || {
            let numbers = options.values.get(&info.name)?;
            if has_unknown_rank(info) {
                return Some(if numbers.len() == 1 { Vec::new() } else { vec![numbers.len() as i64] });
            }
            let ty = stated_type(info).ok()?;
            matches!(ty.shape[..], [Dim::Symbol(_)]).then(|| vec![numbers.len() as i64])
        };
        options.shapes.get(&info.name).cloned().or_else(of_tensor).or_else(of_numbers)
    }

    fn resolve_type(
        &self,
        info: &messages::ValueInfo,
        mut ty: TensorType,
        symbols: &BTreeMap<String, i64>,
    ) -> Result<TensorType> {
        if let Some(extents) = self.extents_given(info) {
            return Ok(TensorType::new(ty.dtype, &extents));
        }
        for (index, dim) in ty.shape.iter_mut().enumerate() {
            match self.resolve_extent(dim, index, symbols) {
                Some(extent) => *dim = Dim::Known(extent),
                None => {
                    let reason = format!("dimension {index} is not fixed");
                    return Err(self.malformed(format!("input `{}`", escape_name(&info.name)), reason));
                }
            }
        }
        Ok(ty)
    }
}

fn bind_numbers(ty: &TensorType, numbers: &[f64]) -> std::result::Result<Const, String> {
    let (low, high) = crate::finite_range(ty.dtype);
    let fits = |number: f64| ty.dtype.is_float() || (number.fract() == 0.0 && (low..=high).contains(&number));
    if let Some(number) = numbers.iter().find(|number| !fits(**number)) {
        return Err(format!("`--bind` sets {number}, which {ty} cannot hold"));
    }
    match numbers {
        [number] => Ok(Const::Fill(*number)),
        numbers if ty.element_count() == Some(numbers.len() as u64) => Ok(Const::Small(numbers.to_vec())),
        numbers => Err(format!("`--bind` sets {} numbers, which do not fit {ty}", numbers.len())),
    }
}

/// Returns whether a dimension name denotes a sequence length that excludes past tokens.
fn is_sequence(name: &str) -> bool {
    let name = name.to_lowercase();
    name.contains("seq") && !["batch", "past", "total", "+"].iter().any(|other| name.contains(other))
}
