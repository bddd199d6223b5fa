//! Syntax tree of TorchScript's source, a small subset of Python. Types are parsed as expressions.

/// An expression; names and strings are slices of the source.
#[derive(Debug)]
pub(super) enum Expr<'a> {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Name(&'a str),
    Attribute(Box<Expr<'a>>, &'a str),
    Index(Box<Expr<'a>>, Box<Expr<'a>>),
    Call(Box<Call<'a>>),
    List(Vec<Expr<'a>>),
    Tuple(Vec<Expr<'a>>),
    Dict(Vec<(Expr<'a>, Expr<'a>)>),
}

#[derive(Debug)]
pub(super) struct Call<'a> {
    pub callee: Expr<'a>,
    pub arguments: Vec<Expr<'a>>,
    pub keywords: Vec<(&'a str, Expr<'a>)>,
}

/// A statement with its line number, counted from 1.
#[derive(Debug)]
pub(super) struct Statement<'a> {
    pub line: u32,
    pub kind: StatementKind<'a>,
}

#[derive(Debug)]
pub(super) enum StatementKind<'a> {
    /// An assignment; several targets unpack the value.
    Assign {
        targets: Vec<Expr<'a>>,
        is_unpacked: bool,
        value: Expr<'a>,
    },
    Expr(Expr<'a>),
    If {
        condition: Expr<'a>,
        then: Vec<Statement<'a>>,
        otherwise: Vec<Statement<'a>>,
    },
    While {
        condition: Expr<'a>,
        body: Vec<Statement<'a>>,
    },
    For {
        target: Expr<'a>,
        items: Expr<'a>,
        body: Vec<Statement<'a>>,
    },
    With {
        value: Expr<'a>,
        target: Option<&'a str>,
        body: Vec<Statement<'a>>,
    },
    Return(Expr<'a>),
    Pass,
    Break,
    Continue,
}

#[derive(Debug)]
pub(super) struct Function<'a> {
    pub name: &'a str,
    pub parameters: Vec<Parameter<'a>>,
    pub body: Vec<Statement<'a>>,
}

#[derive(Debug)]
pub(super) struct Parameter<'a> {
    pub name: &'a str,
    pub ty: Option<Expr<'a>>,
    pub default: Option<Expr<'a>>,
}

#[derive(Debug)]
pub(super) struct Class<'a> {
    pub name: &'a str,
    pub base: &'a str,
    pub fields: Vec<&'a str>,
    pub constants: Vec<(&'a str, Expr<'a>)>,
    pub methods: Vec<Function<'a>>,
}

#[derive(Debug, Default)]
pub(super) struct Source<'a> {
    pub classes: Vec<Class<'a>>,
    pub functions: Vec<Function<'a>>,
}

/// Returns a called operator's name: `add` for `torch.add`, `prim.NumToTensor` for `ops.prim.NumToTensor`.
pub(super) fn operator_name(callee: &Expr<'_>) -> Option<String> {
    let Expr::Attribute(base, name) = callee else { return None };
    match &**base {
        Expr::Name("torch") => Some((*name).to_owned()),
        Expr::Attribute(root, "aten") if matches!(**root, Expr::Name("ops")) => Some((*name).to_owned()),
        Expr::Attribute(root, library) if matches!(**root, Expr::Name("ops" | "torch")) => {
            Some(format!("{library}.{name}"))
        }
        _ => None,
    }
}
