//! Follows the program of a TorchScript file as far as its values are known, and adds an operator to the graph for each call that
//! computes a tensor.
//!
//! Nothing of the file is run as code of this machine: statements are those of the parsed source, functions are those of the file
//! or the operators that have a rule, and the number of steps is bounded.

use super::heap::{Heap, MAX_NESTING, Value, is_tensor};
use super::library::{Definition, Library};
use super::syntax::{Call, Expr, Function, Statement, StatementKind, operator_name};
use super::tensors::Tensors;
use crate::torch::import::MAX_VALUES;
use crate::{Outcome, Refusal, malformed, shown, unsupported};
use std::collections::HashMap;
use std::rc::Rc;

/// Expressions and statements that are followed.
const MAX_STEPS: u64 = 1 << 23;
/// Calls, blocks and expressions within each other.
const MAX_DEPTH: usize = 400;

/// Local variables by their names.
type Frame<'a> = HashMap<&'a str, Value>;

/// Arguments by their places, and by their names.
type Arguments<'a> = (Vec<Value>, Vec<(&'a str, Value)>);

/// What follows a statement.
enum Flow {
    Next,
    Break,
    Continue,
    Return(Value),
}

/// Calls an operator on known values. Returns None if it belongs to the graph.
pub(super) type Builtins = fn(&mut Interpreter<'_>, &str, &[Value], &[(&str, Value)]) -> Outcome<Option<Value>>;

/// A program in the course of being followed.
pub(super) struct Interpreter<'a> {
    library: &'a Library<'a>,
    builtins: Builtins,
    pub heap: Heap,
    pub tensors: Tensors<'a>,
    /// Tensors that stand in the source as `CONSTANTS.c0` and so on.
    pub constants: Vec<Value>,
    steps: u64,
    depth: usize,
    /// The function and the line that are followed.
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

    /// Names the operator or the line that was refused last.
    pub fn place(&self) -> String {
        let (function, line) = self.place;
        self.tensors.refused.clone().unwrap_or_else(|| format!("function `{}`, line {line}", shown(function)))
    }

    fn enter(&mut self) -> Outcome<()> {
        self.steps += 1;
        self.depth += 1;
        if self.steps > MAX_STEPS {
            return unsupported(format!("it takes more than {MAX_STEPS} steps"));
        }
        if self.depth > MAX_DEPTH {
            return unsupported(format!("its calls are nested deeper than {MAX_DEPTH}"));
        }
        Ok(())
    }

    /// Finds a method of an object.
    pub fn method(&self, object: usize, name: &str) -> Outcome<&'a Function<'a>> {
        let class = &self.heap.objects[object].class;
        let found = self.library.class(class)?.methods.iter().find(|method| method.name == name);
        found.map_or_else(|| malformed(format!("`{}` has no method `{}`", shown(class), shown(name))), Ok)
    }

    /// Calls a method of an object.
    pub fn call_method(
        &mut self,
        object: usize,
        name: &str,
        mut given: Vec<Value>,
        keywords: &[(&'a str, Value)],
    ) -> Outcome<Value> {
        let method = self.method(object, name)?;
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
        self.enter()?;
        let outer = self.place;
        let mut frame = Frame::new();
        if given.len() > function.parameters.len() {
            return malformed(format!("`{}` is given {} arguments", shown(function.name), given.len()));
        }
        for (index, parameter) in function.parameters.iter().enumerate() {
            let named = || keywords.iter().find(|(name, _)| *name == parameter.name).map(|(_, value)| *value);
            let value = match (given.get(index).copied().or_else(named), &parameter.default) {
                (Some(value), _) => value,
                (None, Some(default)) => self.eval(&mut Frame::new(), default)?,
                (None, None) => {
                    let (name, parameter) = (shown(function.name), shown(parameter.name));
                    return malformed(format!("`{name}` is not given `{parameter}`"));
                }
            };
            frame.insert(parameter.name, value);
        }
        self.place.0 = function.name;
        let flow = self.block(&mut frame, &function.body)?;
        self.place = outer;
        self.depth -= 1;
        Ok(if let Flow::Return(value) = flow { value } else { Value::None })
    }

    fn block(&mut self, frame: &mut Frame<'a>, statements: &'a [Statement<'a>]) -> Outcome<Flow> {
        self.enter()?;
        for statement in statements {
            self.steps += 1;
            self.place.1 = statement.line;
            match self.statement(frame, &statement.kind)? {
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

    fn statement(&mut self, frame: &mut Frame<'a>, statement: &'a StatementKind<'a>) -> Outcome<Flow> {
        match statement {
            StatementKind::Pass => {}
            StatementKind::Break => return Ok(Flow::Break),
            StatementKind::Continue => return Ok(Flow::Continue),
            StatementKind::Return(value) => return Ok(Flow::Return(self.eval(frame, value)?)),
            StatementKind::Expr(value) => drop(self.eval(frame, value)?),
            StatementKind::Assign { targets, is_unpacked, value } => {
                if let Some(Expr::Name(name)) = targets.first() {
                    self.tensors.target = name;
                }
                let value = self.eval(frame, value)?;
                self.assign(frame, targets, *is_unpacked, value)?;
            }
            StatementKind::If { condition, then, otherwise } => {
                let condition = self.eval(frame, condition)?;
                return match self.truth(condition)? {
                    true => self.block(frame, then),
                    false => self.block(frame, otherwise),
                };
            }
            StatementKind::While { condition, body } => loop {
                let value = self.eval(frame, condition)?;
                if !self.truth(value)? {
                    return Ok(Flow::Next);
                }
                match self.block(frame, body)? {
                    Flow::Next | Flow::Continue => {}
                    Flow::Break => return Ok(Flow::Next),
                    flow => return Ok(flow),
                }
            },
            StatementKind::For { target, items, body } => return self.for_each(frame, target, items, body),
            StatementKind::With { value, target, body } => return self.with(frame, value, *target, body),
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
        let items = self.eval(frame, items)?;
        let Some(count) = self.heap.items(items).map(<[Value]>::len) else {
            return unsupported("it repeats a part for each element of something that is no list");
        };
        for index in 0..count {
            let Some(&item) = self.heap.items(items).and_then(|items| items.get(index)) else { break };
            match target {
                Expr::Tuple(targets) => self.assign(frame, targets, true, item)?,
                target => self.assign(frame, std::slice::from_ref(target), false, item)?,
            }
            match self.block(frame, body)? {
                Flow::Next | Flow::Continue => {}
                Flow::Break => break,
                flow => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    /// Follows a block within a context, such as that gradients are not needed.
    fn with(
        &mut self,
        frame: &mut Frame<'a>,
        value: &'a Expr<'a>,
        target: Option<&'a str>,
        body: &'a [Statement<'a>],
    ) -> Outcome<Flow> {
        let Value::Object(object) = self.eval(frame, value)? else {
            return unsupported("it enters a context that is no object of the file");
        };
        let entered = self.call_method(object, "__enter__", Vec::new(), &[])?;
        if let Some(target) = target {
            frame.insert(target, entered);
        }
        let flow = self.block(frame, body)?;
        let parameters = self.method(object, "__exit__")?.parameters.len();
        self.call_method(object, "__exit__", vec![Value::None; parameters.saturating_sub(1)], &[])?;
        Ok(flow)
    }

    fn assign(
        &mut self,
        frame: &mut Frame<'a>,
        targets: &'a [Expr<'a>],
        is_unpacked: bool,
        value: Value,
    ) -> Outcome<()> {
        let values = match (is_unpacked, value) {
            (false, value) => vec![value],
            (true, Value::Missing) => vec![Value::Missing; targets.len()],
            (true, value) => self.heap.items(value).unwrap_or_default().to_vec(),
        };
        if values.len() != targets.len() {
            return malformed(format!("{} names take {} values", targets.len(), values.len()));
        }
        self.heap.charge(values.len())?;
        for (target, value) in targets.iter().zip(values) {
            match target {
                Expr::Name(name) => drop(frame.insert(name, value)),
                Expr::Attribute(base, name) => {
                    let Value::Object(object) = self.eval(frame, base)? else {
                        return malformed("it sets an attribute of something that is no object");
                    };
                    self.heap.charge(4)?;
                    self.heap.objects[object].attributes.insert((*name).into(), value);
                }
                _ => return unsupported("it assigns to something else than a name or an attribute"),
            }
        }
        Ok(())
    }

    /// Whether a condition holds, which must be known.
    fn truth(&mut self, value: Value) -> Outcome<bool> {
        match value {
            Value::Bool(flag) => Ok(flag),
            Value::Int(number) => Ok(number != 0),
            value if is_tensor(value) => match self.tensors.number(value, &self.heap)? {
                Some(number) => Ok(number != 0.0),
                None => unsupported("which part of the program it runs depends on the data"),
            },
            Value::Missing => unsupported("which part of the program it runs depends on an operator that was left out"),
            _ => malformed("a condition is no flag"),
        }
    }

    pub(super) fn eval(&mut self, frame: &mut Frame<'a>, expr: &'a Expr<'a>) -> Outcome<Value> {
        self.enter()?;
        let value = match expr {
            Expr::None => Value::None,
            Expr::Bool(flag) => Value::Bool(*flag),
            Expr::Int(number) => Value::Int(*number),
            Expr::Float(number) => Value::Float(*number),
            Expr::Text(text) => self.heap.text(text)?,
            Expr::Name(name) => match frame.get(name) {
                Some(value) => *value,
                None if matches!(*name, "__torch__" | "CONSTANTS") => self.heap.path(name)?,
                None => return malformed(format!("`{}` has no value", shown(name))),
            },
            Expr::Attribute(base, name) => {
                let base = self.eval(frame, base)?;
                self.attribute(base, name)?
            }
            Expr::Index(base, index) => {
                let (base, index) = (self.eval(frame, base)?, self.eval(frame, index)?);
                self.item(base, index)?
            }
            Expr::List(items) => {
                let items = self.eval_all(frame, items)?;
                self.heap.list(items)?
            }
            Expr::Tuple(items) => {
                let items = self.eval_all(frame, items)?;
                self.heap.tuple(items)?
            }
            Expr::Dict(entries) => {
                let mut values = Vec::new();
                for (key, value) in entries {
                    values.push((self.eval(frame, key)?, self.eval(frame, value)?));
                }
                self.heap.dict(values)?
            }
            Expr::Call(call) => self.call(frame, call)?,
        };
        self.depth -= 1;
        Ok(value)
    }

    fn eval_all(&mut self, frame: &mut Frame<'a>, all: &'a [Expr<'a>]) -> Outcome<Vec<Value>> {
        all.iter().map(|one| self.eval(frame, one)).collect()
    }

    fn attribute(&mut self, base: Value, name: &'a str) -> Outcome<Value> {
        match base {
            Value::Path(at) if &*self.heap.texts[at] == "CONSTANTS" => {
                let index = name.strip_prefix('c').and_then(|index| index.parse::<usize>().ok());
                match index.and_then(|index| self.constants.get(index)) {
                    Some(&value) => Ok(value),
                    None => malformed(format!("there is no constant `{}`", shown(name))),
                }
            }
            Value::Path(at) => {
                let path = format!("{}.{name}", self.heap.texts[at]);
                self.heap.path(&path)
            }
            Value::Object(at) => self.attribute_of(at, name),
            Value::Tuple(at) => {
                let sequence = &self.heap.sequences[at];
                let Some(class) = &sequence.class else { return malformed("a tuple has no names") };
                let place = self.library.class(class)?.fields.iter().position(|field| *field == name);
                let item = place.and_then(|place| sequence.items.get(place));
                item.map_or_else(|| malformed(format!("a tuple has no `{}`", shown(name))), |item| Ok(*item))
            }
            Value::Missing => Ok(Value::Missing),
            _ => malformed(format!("`{}` is asked of something that is no object", shown(name))),
        }
    }

    fn attribute_of(&mut self, object: usize, name: &str) -> Outcome<Value> {
        if let Some(&value) = self.heap.objects[object].attributes.get(name) {
            return Ok(value);
        }
        let class = Rc::clone(&self.heap.objects[object].class);
        let constants = &self.library.class(&class)?.constants;
        match constants.iter().find(|(constant, _)| *constant == name) {
            Some((_, value)) => self.eval(&mut Frame::new(), value),
            None => malformed(format!("`{}` has no attribute `{}`", shown(&class), shown(name))),
        }
    }

    fn call(&mut self, frame: &mut Frame<'a>, call: &'a Call<'a>) -> Outcome<Value> {
        if let Expr::Name(name) = call.callee
            && !frame.contains_key(name)
        {
            return self.call_word(frame, name, call);
        }
        if let Some(name) = operator_name(&call.callee) {
            let (given, keywords) = self.arguments(frame, call)?;
            return self.operator(&name, given, &keywords);
        }
        if let Expr::Attribute(base, name) = &call.callee {
            let base = self.eval(frame, base)?;
            if let Value::Object(object) = base {
                let (given, keywords) = self.arguments(frame, call)?;
                return self.call_method(object, name, given, &keywords);
            }
            if let (Value::Path(class), "__new__") = (base, *name) {
                let class = Rc::clone(&self.heap.texts[class]);
                return self.heap.object(class);
            }
            let callee = self.attribute(base, name)?;
            return self.call_value(frame, callee, call);
        }
        let callee = self.eval(frame, &call.callee)?;
        self.call_value(frame, callee, call)
    }

    /// Calls a function or a class of the file.
    fn call_value(&mut self, frame: &mut Frame<'a>, callee: Value, call: &'a Call<'a>) -> Outcome<Value> {
        let Value::Path(path) = callee else { return malformed("it calls something that is no function") };
        let path = Rc::clone(&self.heap.texts[path]);
        let (given, keywords) = self.arguments(frame, call)?;
        let library = self.library;
        match library.find(&path)? {
            Definition::Function(function) => self.call_function(function, &given, &keywords),
            Definition::Class(class) if class.base == "NamedTuple" => self.heap.named_tuple(given, path),
            Definition::Class(_) => {
                let object = self.heap.object(path)?;
                if let Value::Object(at) = object {
                    self.call_method(at, "__init__", given, &keywords)?;
                }
                Ok(object)
            }
        }
    }

    fn arguments(&mut self, frame: &mut Frame<'a>, call: &'a Call<'a>) -> Outcome<Arguments<'a>> {
        let given = self.eval_all(frame, &call.arguments)?;
        let keywords = call.keywords.iter().map(|(name, value)| Ok((*name, self.eval(frame, value)?)));
        Ok((given, keywords.collect::<Outcome<_>>()?))
    }

    /// Calls a function that is written without a module. Some of them take types.
    fn call_word(&mut self, frame: &mut Frame<'a>, name: &'a str, call: &'a Call<'a>) -> Outcome<Value> {
        match (name, call.arguments.as_slice()) {
            ("uninitialized", _) => Ok(Value::None),
            ("annotate" | "unchecked_cast", [ty, value]) => {
                let value = self.eval(frame, value)?;
                match ty {
                    Expr::Name(to @ ("int" | "float" | "bool" | "number")) if is_tensor(value) => {
                        let to = if *to == "number" { "ScalarImplicit" } else { to };
                        self.operator(to, vec![value], &[])
                    }
                    _ => Ok(value),
                }
            }
            ("isinstance", [value, ty]) => {
                let value = self.eval(frame, value)?;
                Ok(Value::Bool(is_instance(value, ty)))
            }
            ("getattr", [base, Expr::Text(name)]) => {
                let base = self.eval(frame, base)?;
                self.attribute(base, name)
            }
            _ => {
                let (given, keywords) = self.arguments(frame, call)?;
                self.operator(name, given, &keywords)
            }
        }
    }

    /// Calls an operator: what it makes of known values, or a part of the graph.
    fn operator(&mut self, name: &str, given: Vec<Value>, keywords: &[(&str, Value)]) -> Outcome<Value> {
        if self.tensors.emit.builder.next().0 > MAX_VALUES {
            return unsupported(format!("it has more than {MAX_VALUES} tensors up to here"));
        }
        // What reads a whole list takes as many steps; `enter` checks their number.
        let read: usize = given.iter().map(|&value| self.heap.items(value).map_or(0, <[Value]>::len)).sum();
        self.steps += (read / 16) as u64;
        if let Some(value) = (self.builtins)(self, name, &given, keywords)? {
            return Ok(value);
        }
        self.tensors.call(name, &given, keywords, &mut self.heap)
    }

    /// Collects all tensors of a result in their order.
    pub fn flatten(&mut self, value: Value, nesting: usize, all: &mut Vec<Value>) -> Outcome<()> {
        self.heap.charge(1)?;
        if nesting > MAX_NESTING {
            return unsupported("its result is nested too deeply");
        }
        let items: Vec<Value> = match value {
            value if is_tensor(value) => {
                all.push(value);
                Vec::new()
            }
            Value::Dict(at) => self.heap.dicts[at].iter().map(|(_, value)| *value).collect(),
            value => self.heap.items(value).unwrap_or_default().to_vec(),
        };
        items.into_iter().try_for_each(|item| self.flatten(item, nesting + 1, all))
    }

    /// Ends the program: an exception that it raises.
    pub fn raise(&self, message: &str) -> Refusal {
        Refusal::Malformed(format!("the program refuses its inputs: {}", shown(message)))
    }
}

/// Whether a value is of a type as the source writes it.
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
