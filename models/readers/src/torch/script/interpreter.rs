//! Interprets the program of a TorchScript file symbolically, and adds an operator to the graph for each call that
//! computes a tensor. No code of the file is executed, and the number of steps is bounded.

use super::heap::{Heap, MAX_NESTING, Value, is_tensor};
use super::library::{Definition, Library};
use super::syntax::{Call, Expr, Function, Statement, StatementKind, operator_name};
use super::tensors::Tensors;
use crate::torch::import::MAX_VALUES;
use crate::{Outcome, Refusal, escape_name, malformed, unsupported};
use std::collections::HashMap;
use std::rc::Rc;

const MAX_STEPS: u64 = 1 << 23;
const MAX_DEPTH: usize = 400;

type Frame<'a> = HashMap<&'a str, Value>;

type Arguments<'a> = (Vec<Value>, Vec<(&'a str, Value)>);

enum Flow {
    Next,
    Break,
    Continue,
    Return(Value),
}

/// A function that evaluates operators on known values; returns None if the operator must be added to the graph.
pub(super) type Builtins = fn(&mut Interpreter<'_>, &str, &[Value], &[(&str, Value)]) -> Outcome<Option<Value>>;

pub(super) struct Interpreter<'a> {
    library: &'a Library<'a>,
    builtins: Builtins,
    pub heap: Heap,
    pub tensors: Tensors<'a>,
    /// Tensor constants, which the source names `CONSTANTS.c0` and so on.
    pub constants: Vec<Value>,
    steps: u64,
    depth: usize,
    place: (&'a str, u32),
}

impl<'a> Interpreter<'a> {
    pub fn new(
        library: &'a Library<'a>,
        builtins: Builtins,
        heap: Heap,
        tensors: Tensors<'a>,
        constants: Vec<Value>,
    ) -> Interpreter<'a> {
        Interpreter { library, builtins, heap, tensors, constants, steps: 0, depth: 0, place: ("", 0) }
    }

    pub fn error_place(&self) -> String {
        let (function, line) = self.place;
        if function.is_empty() && self.tensors.refused.is_none() {
            return "result of the program".to_owned();
        }
        self.tensors.refused.clone().unwrap_or_else(|| format!("function `{}`, line {line}", escape_name(function)))
    }

    fn enter_scope(&mut self) -> Outcome<()> {
        self.steps += 1;
        self.depth += 1;
        if self.steps > MAX_STEPS {
            return unsupported(format!("the program takes more than {MAX_STEPS} steps"));
        }
        if self.depth > MAX_DEPTH {
            return unsupported(format!("calls are nested deeper than {MAX_DEPTH} levels"));
        }
        Ok(())
    }

    pub fn find_method(&self, object: usize, name: &str) -> Outcome<&'a Function<'a>> {
        let class = &self.heap.objects[object].class;
        let found = self.library.find_class(class)?.methods.iter().find(|method| method.name == name);
        found.map_or_else(|| malformed(format!("`{}` has no method `{}`", escape_name(class), escape_name(name))), Ok)
    }

    pub fn call_method(
        &mut self,
        object: usize,
        name: &str,
        mut given: Vec<Value>,
        keywords: &[(&'a str, Value)],
    ) -> Outcome<Value> {
        let method = self.find_method(object, name)?;
        given.insert(0, Value::Object(object));
        let path = Rc::clone(&self.heap.objects[object].path);
        let outer = (!path.is_empty()).then(|| std::mem::replace(&mut self.tensors.scope, path));
        let value = self.call_function(method, &given, keywords)?;
        if let Some(outer) = outer {
            self.tensors.scope = outer;
        }
        Ok(value)
    }

    fn call_function(
        &mut self,
        function: &'a Function<'a>,
        given: &[Value],
        keywords: &[(&'a str, Value)],
    ) -> Outcome<Value> {
        self.enter_scope()?;
        let outer = self.place;
        let mut frame = Frame::new();
        if given.len() > function.parameters.len() {
            return malformed(format!("`{}` cannot take {} arguments", escape_name(function.name), given.len()));
        }
        for (index, parameter) in function.parameters.iter().enumerate() {
            let named = || keywords.iter().find(|(name, _)| *name == parameter.name).map(|(_, value)| *value);
            let value = match (given.get(index).copied().or_else(named), &parameter.default) {
                (Some(value), _) => value,
                (None, Some(default)) => self.eval_expr(&mut Frame::new(), default)?,
                (None, None) => {
                    let (name, parameter) = (escape_name(function.name), escape_name(parameter.name));
                    return malformed(format!("the argument `{parameter}` of `{name}` is missing"));
                }
            };
            frame.insert(parameter.name, value);
        }
        self.place.0 = function.name;
        let flow = self.run_block(&mut frame, &function.body)?;
        self.place = outer;
        self.depth -= 1;
        Ok(if let Flow::Return(value) = flow { value } else { Value::None })
    }

    fn run_block(&mut self, frame: &mut Frame<'a>, statements: &'a [Statement<'a>]) -> Outcome<Flow> {
        self.enter_scope()?;
        for statement in statements {
            self.steps += 1;
            self.place.1 = statement.line;
            match self.run_statement(frame, &statement.kind)? {
                Flow::Next => {}
                flow => {
                    self.depth -= 1;
                    return Ok(flow);
                }
            }
        }
        self.depth -= 1;
        Ok(Flow::Next)
    }

    fn run_statement(&mut self, frame: &mut Frame<'a>, statement: &'a StatementKind<'a>) -> Outcome<Flow> {
        match statement {
            StatementKind::Pass => {}
            StatementKind::Break => return Ok(Flow::Break),
            StatementKind::Continue => return Ok(Flow::Continue),
            StatementKind::Return(value) => return Ok(Flow::Return(self.eval_expr(frame, value)?)),
            StatementKind::Expr(value) => drop(self.eval_expr(frame, value)?),
            StatementKind::Assign { targets, is_unpacked, value } => {
                if let Some(Expr::Name(name)) = targets.first() {
                    self.tensors.target = name;
                }
                let value = self.eval_expr(frame, value)?;
                self.assign_targets(frame, targets, *is_unpacked, value)?;
            }
            StatementKind::If { condition, then, otherwise } => {
                let condition = self.eval_expr(frame, condition)?;
                return match self.known_truth(condition)? {
                    true => self.run_block(frame, then),
                    false => self.run_block(frame, otherwise),
                };
            }
            StatementKind::While { condition, body } => loop {
                let value = self.eval_expr(frame, condition)?;
                if !self.known_truth(value)? {
                    return Ok(Flow::Next);
                }
                match self.run_block(frame, body)? {
                    Flow::Next | Flow::Continue => {}
                    Flow::Break => return Ok(Flow::Next),
                    flow => return Ok(flow),
                }
            },
            StatementKind::For { target, items, body } => return self.for_each(frame, target, items, body),
            StatementKind::With { value, target, body } => return self.run_with(frame, value, *target, body),
        }
        Ok(Flow::Next)
    }

    fn for_each(
        &mut self,
        frame: &mut Frame<'a>,
        target: &'a Expr<'a>,
        items: &'a Expr<'a>,
        body: &'a [Statement<'a>],
    ) -> Outcome<Flow> {
        let items = self.eval_expr(frame, items)?;
        let Some(count) = self.heap.sequence_items(items).map(<[Value]>::len) else {
            return unsupported("iterating over a value that is not a list");
        };
        for index in 0..count {
            let Some(&item) = self.heap.sequence_items(items).and_then(|items| items.get(index)) else { break };
            match target {
                Expr::Tuple(targets) => self.assign_targets(frame, targets, true, item)?,
                target => self.assign_targets(frame, std::slice::from_ref(target), false, item)?,
            }
            match self.run_block(frame, body)? {
                Flow::Next | Flow::Continue => {}
                Flow::Break => break,
                flow => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    fn run_with(
        &mut self,
        frame: &mut Frame<'a>,
        value: &'a Expr<'a>,
        target: Option<&'a str>,
        body: &'a [Statement<'a>],
    ) -> Outcome<Flow> {
        let Value::Object(object) = self.eval_expr(frame, value)? else {
            return unsupported("a context manager that is not an object of the file");
        };
        let entered = self.call_method(object, "__enter__", Vec::new(), &[])?;
        if let Some(target) = target {
            frame.insert(target, entered);
        }
        let flow = self.run_block(frame, body)?;
        let parameters = self.find_method(object, "__exit__")?.parameters.len();
        self.call_method(object, "__exit__", vec![Value::None; parameters.saturating_sub(1)], &[])?;
        Ok(flow)
    }

    fn assign_targets(
        &mut self,
        frame: &mut Frame<'a>,
        targets: &'a [Expr<'a>],
        is_unpacked: bool,
        value: Value,
    ) -> Outcome<()> {
        let values = match (is_unpacked, value) {
            (false, value) => vec![value],
            (true, Value::Missing) => vec![Value::Missing; targets.len()],
            (true, value) => self.heap.sequence_items(value).unwrap_or_default().to_vec(),
        };
        if values.len() != targets.len() {
            return malformed(format!("cannot unpack {} targets from {} values", targets.len(), values.len()));
        }
        self.heap.charge_units(values.len())?;
        for (target, value) in targets.iter().zip(values) {
            match target {
                Expr::Name(name) => drop(frame.insert(name, value)),
                Expr::Attribute(base, name) => {
                    let Value::Object(object) = self.eval_expr(frame, base)? else {
                        return malformed("setting an attribute of a value that is not an object");
                    };
                    self.heap.charge_units(4)?;
                    self.heap.objects[object].attributes.insert((*name).into(), value);
                }
                _ => return unsupported("assigning to a target that is not a name or an attribute"),
            }
        }
        Ok(())
    }

    /// Returns whether a condition is true; fails if it depends on the data.
    fn known_truth(&mut self, value: Value) -> Outcome<bool> {
        match value {
            Value::Bool(flag) => Ok(flag),
            Value::Int(number) => Ok(number != 0),
            value if is_tensor(value) => match self.tensors.known_number(value, &self.heap)? {
                Some(number) => Ok(number != 0.0),
                None => unsupported("a branch whose condition depends on input data"),
            },
            Value::Missing => unsupported("a branch whose condition depends on a skipped operator"),
            _ => malformed("a condition is not a boolean"),
        }
    }

    pub(super) fn eval_expr(&mut self, frame: &mut Frame<'a>, expr: &'a Expr<'a>) -> Outcome<Value> {
        self.enter_scope()?;
        let value = match expr {
            Expr::None => Value::None,
            Expr::Bool(flag) => Value::Bool(*flag),
            Expr::Int(number) => Value::Int(*number),
            Expr::Float(number) => Value::Float(*number),
            Expr::Text(text) => self.heap.add_text(text)?,
            Expr::Name(name) => match frame.get(name) {
                Some(value) => *value,
                None if matches!(*name, "__torch__" | "CONSTANTS") => self.heap.add_path(name)?,
                None => return malformed(format!("the variable `{}` is not defined", escape_name(name))),
            },
            Expr::Attribute(base, name) => {
                let base = self.eval_expr(frame, base)?;
                self.read_attribute(base, name)?
            }
            Expr::Index(base, index) => {
                let (base, index) = (self.eval_expr(frame, base)?, self.eval_expr(frame, index)?);
                self.get_item(base, index)?
            }
            Expr::List(items) => {
                let items = self.eval_all(frame, items)?;
                self.heap.add_list(items)?
            }
            Expr::Tuple(items) => {
                let items = self.eval_all(frame, items)?;
                self.heap.add_tuple(items)?
            }
            Expr::Dict(entries) => {
                let mut values = Vec::new();
                for (key, value) in entries {
                    values.push((self.eval_expr(frame, key)?, self.eval_expr(frame, value)?));
                }
                self.heap.add_dict(values)?
            }
            Expr::Call(call) => self.eval_call(frame, call)?,
        };
        self.depth -= 1;
        Ok(value)
    }

    fn eval_all(&mut self, frame: &mut Frame<'a>, all: &'a [Expr<'a>]) -> Outcome<Vec<Value>> {
        all.iter().map(|one| self.eval_expr(frame, one)).collect()
    }

    fn read_attribute(&mut self, base: Value, name: &'a str) -> Outcome<Value> {
        match base {
            Value::Path(at) if &*self.heap.texts[at] == "CONSTANTS" => {
                let index = name.strip_prefix('c').and_then(|index| index.parse::<usize>().ok());
                match index.and_then(|index| self.constants.get(index)) {
                    Some(&value) => Ok(value),
                    None => malformed(format!("the constant `{}` does not exist", escape_name(name))),
                }
            }
            Value::Path(at) => {
                let path = format!("{}.{name}", self.heap.texts[at]);
                self.heap.add_path(&path)
            }
            Value::Object(at) => self.attribute_of(at, name),
            Value::Tuple(at) => {
                let sequence = &self.heap.sequences[at];
                let Some(class) = &sequence.class else { return malformed("reading a field of a tuple without names") };
                let place = self.library.find_class(class)?.fields.iter().position(|field| *field == name);
                let item = place.and_then(|place| sequence.items.get(place));
                item.map_or_else(
                    || malformed(format!("the tuple has no field `{}`", escape_name(name))),
                    |item| Ok(*item),
                )
            }
            Value::Missing => Ok(Value::Missing),
            _ => malformed(format!("reading the attribute `{}` of a value that is not an object", escape_name(name))),
        }
    }

    fn attribute_of(&mut self, object: usize, name: &str) -> Outcome<Value> {
        if let Some(&value) = self.heap.objects[object].attributes.get(name) {
            return Ok(value);
        }
        let class = Rc::clone(&self.heap.objects[object].class);
        let constants = &self.library.find_class(&class)?.constants;
        match constants.iter().find(|(constant, _)| *constant == name) {
            Some((_, value)) => self.eval_expr(&mut Frame::new(), value),
            None => malformed(format!("`{}` has no attribute `{}`", escape_name(&class), escape_name(name))),
        }
    }

    fn eval_call(&mut self, frame: &mut Frame<'a>, call: &'a Call<'a>) -> Outcome<Value> {
        if let Expr::Name(name) = call.callee
            && !frame.contains_key(name)
        {
            return self.call_word(frame, name, call);
        }
        if let Some(name) = operator_name(&call.callee) {
            let (given, keywords) = self.eval_arguments(frame, call)?;
            return self.call_operator(&name, given, &keywords);
        }
        if let Expr::Attribute(base, name) = &call.callee {
            let base = self.eval_expr(frame, base)?;
            if let Value::Object(object) = base {
                let (given, keywords) = self.eval_arguments(frame, call)?;
                return self.call_method(object, name, given, &keywords);
            }
            if let (Value::Path(class), "__new__") = (base, *name) {
                let class = Rc::clone(&self.heap.texts[class]);
                return self.heap.add_object(class);
            }
            let callee = self.read_attribute(base, name)?;
            return self.call_value(frame, callee, call);
        }
        let callee = self.eval_expr(frame, &call.callee)?;
        self.call_value(frame, callee, call)
    }

    fn call_value(&mut self, frame: &mut Frame<'a>, callee: Value, call: &'a Call<'a>) -> Outcome<Value> {
        let Value::Path(path) = callee else { return malformed("calling a value that is not a function") };
        let path = Rc::clone(&self.heap.texts[path]);
        let (given, keywords) = self.eval_arguments(frame, call)?;
        let library = self.library;
        match library.find_definition(&path)? {
            Definition::Function(function) => self.call_function(function, &given, &keywords),
            Definition::Class(class) if class.base == "NamedTuple" => self.heap.named_tuple(given, path),
            Definition::Class(_) => {
                let object = self.heap.add_object(path)?;
                if let Value::Object(at) = object {
                    self.call_method(at, "__init__", given, &keywords)?;
                }
                Ok(object)
            }
        }
    }

    fn eval_arguments(&mut self, frame: &mut Frame<'a>, call: &'a Call<'a>) -> Outcome<Arguments<'a>> {
        let given = self.eval_all(frame, &call.arguments)?;
        let keywords = call.keywords.iter().map(|(name, value)| Ok((*name, self.eval_expr(frame, value)?)));
        Ok((given, keywords.collect::<Outcome<_>>()?))
    }

    /// Calls a function without a module prefix; some, such as `annotate`, take a type as argument.
    fn call_word(&mut self, frame: &mut Frame<'a>, name: &'a str, call: &'a Call<'a>) -> Outcome<Value> {
        match (name, call.arguments.as_slice()) {
            ("uninitialized", _) => Ok(Value::None),
            ("annotate" | "unchecked_cast", [ty, value]) => {
                let value = self.eval_expr(frame, value)?;
                match ty {
                    Expr::Name(to @ ("int" | "float" | "bool" | "number")) if is_tensor(value) => {
                        let to = if *to == "number" { "ScalarImplicit" } else { to };
                        self.call_operator(to, vec![value], &[])
                    }
                    _ => Ok(value),
                }
            }
            ("isinstance", [value, ty]) => {
                let value = self.eval_expr(frame, value)?;
                Ok(Value::Bool(is_instance(value, ty)))
            }
            ("getattr", [base, Expr::Text(name)]) => {
                let base = self.eval_expr(frame, base)?;
                self.read_attribute(base, name)
            }
            _ => {
                let (given, keywords) = self.eval_arguments(frame, call)?;
                self.call_operator(name, given, &keywords)
            }
        }
    }

    fn call_operator(&mut self, name: &str, given: Vec<Value>, keywords: &[(&str, Value)]) -> Outcome<Value> {
        if self.tensors.emit.builder.next_id().0 > MAX_VALUES {
            return unsupported(format!("the model has more than {MAX_VALUES} tensors"));
        }
        // Reading a list counts one step per 16 elements. The next `enter_scope` checks the limit.
        let read: usize = given.iter().map(|&value| self.heap.sequence_items(value).map_or(0, <[Value]>::len)).sum();
        self.steps += (read / 16) as u64;
        if let Some(value) = (self.builtins)(self, name, &given, keywords)? {
            return Ok(value);
        }
        self.tensors.call_operator(name, &given, keywords, &mut self.heap)
    }

    pub fn flatten_tensors(&mut self, value: Value, nesting: usize, all: &mut Vec<Value>) -> Outcome<()> {
        self.heap.charge_units(1)?;
        if nesting > MAX_NESTING {
            return unsupported("a result that is nested too deeply");
        }
        let items: Vec<Value> = match value {
            value if is_tensor(value) => {
                all.push(value);
                Vec::new()
            }
            Value::Dict(at) => self.heap.dicts[at].iter().map(|(_, value)| *value).collect(),
            value => self.heap.sequence_items(value).unwrap_or_default().to_vec(),
        };
        items.into_iter().try_for_each(|item| self.flatten_tensors(item, nesting + 1, all))
    }

    pub fn raise_error(&self, message: &str) -> Refusal {
        Refusal::Malformed(format!("the program raises an error for these inputs: {}", escape_name(message)))
    }
}

fn is_instance(value: Value, ty: &Expr<'_>) -> bool {
    match ty {
        Expr::Tuple(types) | Expr::List(types) => types.iter().any(|ty| is_instance(value, ty)),
        Expr::Index(base, inner) => match **base {
            Expr::Name("List") => matches!(value, Value::List(_)),
            Expr::Name("Tuple") => matches!(value, Value::Tuple(_)),
            Expr::Name("Dict") => matches!(value, Value::Dict(_)),
            Expr::Name("Optional") => value == Value::None || is_instance(value, inner),
            _ => false,
        },
        Expr::Name("Tensor") => is_tensor(value),
        Expr::Name("int") => matches!(value, Value::Int(_)),
        Expr::Name("float") => matches!(value, Value::Float(_)),
        Expr::Name("bool") => matches!(value, Value::Bool(_)),
        Expr::Name("str") => matches!(value, Value::Text(_)),
        Expr::Name("NoneType") => value == Value::None,
        _ => false,
    }
}
