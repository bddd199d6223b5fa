//! Parses TorchScript's source by recursive descent.

use super::lexer::{Spanned, Token, tokens};
use super::syntax::{Call, Class, Expr, Function, Parameter, Source, Statement, StatementKind};

/// Expressions and blocks within each other.
const MAX_DEPTH: usize = 96;

struct Parser<'a> {
    tokens: Vec<Spanned<'a>>,
    at: usize,
    depth: usize,
}

type Parsed<T> = Result<T, String>;

/// Parses a source file.
pub(super) fn parse(source: &str) -> Parsed<Source<'_>> {
    let mut parser = Parser { tokens: tokens(source)?, at: 0, depth: 0 };
    let mut parsed = Source::default();
    loop {
        match parser.peek() {
            Token::End => return Ok(parsed),
            Token::Newline => parser.at += 1,
            Token::Name("class") => {
                let class = parser.class()?;
                parsed.classes.push(class);
            }
            Token::Name("def") => {
                let function = parser.function()?;
                parsed.functions.push(function);
            }
            // Imports and operator versions of old files.
            Token::Name("import" | "op_version_set") => parser.skip_line(),
            _ => return Err(parser.unexpected("a class or a function")),
        }
    }
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).map_or(Token::End, |spanned| spanned.token)
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.at).map_or(0, |spanned| spanned.line)
    }

    fn advance(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn unexpected(&self, expected: &str) -> String {
        let found = match self.peek() {
            Token::Name(text) | Token::Number(text) | Token::Symbol(text) => format!("`{}`", crate::shown(text)),
            Token::Text(_) => "a text".to_owned(),
            Token::Newline | Token::Indent | Token::Dedent => "the end of the line".to_owned(),
            Token::End => "the end of the file".to_owned(),
        };
        format!("line {}: {found} stands where {expected} is expected", self.line())
    }

    fn takes(&mut self, symbol: &str) -> bool {
        let is_there = self.peek() == Token::Symbol(symbol);
        self.at += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, symbol: &str) -> Parsed<()> {
        if self.takes(symbol) { Ok(()) } else { Err(self.unexpected(&format!("`{symbol}`"))) }
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let is_there = self.peek() == Token::Name(word);
        self.at += usize::from(is_there);
        is_there
    }

    fn name(&mut self) -> Parsed<&'a str> {
        match self.peek() {
            Token::Name(name) => {
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.unexpected("a name")),
        }
    }

    fn end_of_line(&mut self) -> Parsed<()> {
        match self.advance() {
            Token::Newline => Ok(()),
            _ => {
                self.at -= 1;
                Err(self.unexpected("the end of the line"))
            }
        }
    }

    fn skip_line(&mut self) {
        while !matches!(self.advance(), Token::Newline | Token::End) {}
    }

    /// Runs a part of the parser one level deeper.
    fn nested<T>(&mut self, part: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_DEPTH {
            return Err(format!("line {}: expressions are nested deeper than {MAX_DEPTH}", self.line()));
        }
        self.depth += 1;
        let parsed = part(self);
        self.depth -= 1;
        parsed
    }

    fn class(&mut self) -> Parsed<Class<'a>> {
        self.at += 1;
        let name = self.name()?;
        self.expect("(")?;
        let base = if let Token::Name(base) = self.peek() { base } else { "" };
        self.at += usize::from(!base.is_empty());
        self.expect(")")?;
        self.expect(":")?;
        self.end_of_line()?;
        let mut class = Class { name, base, fields: Vec::new(), constants: Vec::new(), methods: Vec::new() };
        if self.peek() != Token::Indent {
            return Ok(class);
        }
        self.at += 1;
        loop {
            match self.peek() {
                Token::Dedent => {
                    self.at += 1;
                    return Ok(class);
                }
                Token::End => return Ok(class),
                Token::Name("def") => class.methods.push(self.function()?),
                Token::Name(name) => self.field(&mut class, name)?,
                Token::Newline => self.at += 1,
                _ => return Err(self.unexpected("an attribute or a method")),
            }
        }
    }

    /// Parses the declaration of an attribute, such as `weight : Tensor` or `p : Final[float] = 0.5`.
    fn field(&mut self, class: &mut Class<'a>, name: &'a str) -> Parsed<()> {
        self.at += 1;
        if name == "pass" || name.starts_with("__") || self.peek() != Token::Symbol(":") {
            self.skip_line();
            return Ok(());
        }
        self.at += 1;
        self.expression()?;
        class.fields.push(name);
        if self.takes("=") {
            let value = self.expression()?;
            class.constants.push((name, value));
        }
        self.end_of_line()
    }

    fn function(&mut self) -> Parsed<Function<'a>> {
        self.at += 1;
        let name = self.name()?;
        self.expect("(")?;
        let mut parameters = Vec::new();
        while !self.takes(")") {
            // What follows a star can only be given by its name.
            if !self.takes("*") {
                let name = self.name()?;
                let ty = if self.takes(":") { Some(self.expression()?) } else { None };
                let default = if self.takes("=") { Some(self.expression()?) } else { None };
                parameters.push(Parameter { name, ty, default });
            }
            if !self.takes(",") && self.peek() != Token::Symbol(")") {
                return Err(self.unexpected("`,` or `)`"));
            }
        }
        if self.takes("->") {
            self.expression()?;
        }
        let body = self.block()?;
        Ok(Function { name, parameters, body })
    }

    fn block(&mut self) -> Parsed<Vec<Statement<'a>>> {
        self.expect(":")?;
        self.end_of_line()?;
        if self.peek() != Token::Indent {
            return Err(self.unexpected("a block"));
        }
        self.at += 1;
        self.nested(|parser| {
            let mut statements = Vec::new();
            loop {
                match parser.peek() {
                    Token::Dedent => {
                        parser.at += 1;
                        return Ok(statements);
                    }
                    Token::End => return Ok(statements),
                    Token::Newline => parser.at += 1,
                    _ => statements.push(parser.statement()?),
                }
            }
        })
    }

    fn statement(&mut self) -> Parsed<Statement<'a>> {
        let line = self.line();
        let word = if let Token::Name(name) = self.peek() { name } else { "" };
        self.at += 1;
        let kind = match word {
            "if" => return self.conditional(line),
            "while" => StatementKind::While { condition: self.expression()?, body: self.block()? },
            "for" => {
                let target = self.expressions()?.0;
                if !self.takes_word("in") {
                    return Err(self.unexpected("`in`"));
                }
                StatementKind::For { target, items: self.expression()?, body: self.block()? }
            }
            "with" => {
                let value = self.expression()?;
                let target = if self.takes_word("as") { Some(self.name()?) } else { None };
                StatementKind::With { value, target, body: self.block()? }
            }
            "return" if self.peek() == Token::Newline => StatementKind::Return(Expr::None),
            "return" => StatementKind::Return(self.expressions()?.0),
            "pass" => StatementKind::Pass,
            "break" => StatementKind::Break,
            "continue" => StatementKind::Continue,
            "def" | "lambda" | "class" => return Err(format!("line {line}: functions within functions are not read")),
            _ => {
                self.at -= 1;
                self.assignment()?
            }
        };
        if !matches!(kind, StatementKind::While { .. } | StatementKind::For { .. } | StatementKind::With { .. }) {
            self.end_of_line()?;
        }
        Ok(Statement { line, kind })
    }

    fn conditional(&mut self, line: u32) -> Parsed<Statement<'a>> {
        let (condition, then) = (self.expression()?, self.block()?);
        let next = self.line();
        let otherwise = match () {
            () if self.takes_word("elif") => {
                let inner = self.nested(|parser| parser.conditional(next))?;
                vec![inner]
            }
            () if self.takes_word("else") => self.block()?,
            () => Vec::new(),
        };
        Ok(Statement { line, kind: StatementKind::If { condition, then, otherwise } })
    }

    /// Parses `a = x`, `a : T = x`, `a, b, = x`, or an expression alone.
    fn assignment(&mut self) -> Parsed<StatementKind<'a>> {
        let (target, is_unpacked) = self.expressions()?;
        if self.takes(":") {
            self.expression()?;
        }
        if !self.takes("=") {
            return Ok(StatementKind::Expr(target));
        }
        let value = self.expressions()?.0;
        let targets = match target {
            Expr::Tuple(targets) if is_unpacked => targets,
            target => vec![target],
        };
        Ok(StatementKind::Assign { targets, is_unpacked, value })
    }

    /// Parses expressions with commas between them as one tuple, and whether there was a comma.
    fn expressions(&mut self) -> Parsed<(Expr<'a>, bool)> {
        let first = self.expression()?;
        if self.peek() != Token::Symbol(",") {
            return Ok((first, false));
        }
        let mut all = vec![first];
        while self.takes(",") {
            if matches!(self.peek(), Token::Newline | Token::Symbol("=" | ":")) || self.peek() == Token::Name("in") {
                break;
            }
            all.push(self.expression()?);
        }
        Ok((Expr::Tuple(all), true))
    }

    fn expression(&mut self) -> Parsed<Expr<'a>> {
        self.nested(|parser| {
            let mut parsed = parser.atom()?;
            // Each link makes the tree one level deeper.
            for _ in 0..MAX_DEPTH {
                parsed = match parser.peek() {
                    Token::Symbol(".") => {
                        parser.at += 1;
                        Expr::Attribute(Box::new(parsed), parser.name()?)
                    }
                    Token::Symbol("[") => {
                        parser.at += 1;
                        let index = parser.elements("]")?;
                        let index = one_or_tuple(index);
                        Expr::Index(Box::new(parsed), Box::new(index))
                    }
                    Token::Symbol("(") => {
                        parser.at += 1;
                        parser.call(parsed)?
                    }
                    _ => return Ok(parsed),
                };
            }
            Err(format!("line {}: more than {MAX_DEPTH} attributes and calls in a row", parser.line()))
        })
    }

    fn call(&mut self, callee: Expr<'a>) -> Parsed<Expr<'a>> {
        let (mut arguments, mut keywords) = (Vec::new(), Vec::new());
        while !self.takes(")") {
            let is_named = self.tokens.get(self.at + 1).is_some_and(|next| next.token == Token::Symbol("="));
            match self.peek() {
                Token::Name(name) if is_named => {
                    self.at += 2;
                    keywords.push((name, self.expression()?));
                }
                _ => arguments.push(self.expression()?),
            }
            if !self.takes(",") && self.peek() != Token::Symbol(")") {
                return Err(self.unexpected("`,` or `)`"));
            }
        }
        Ok(Expr::Call(Box::new(Call { callee, arguments, keywords })))
    }

    /// Parses expressions up to a closing bracket.
    fn elements(&mut self, close: &str) -> Parsed<(Vec<Expr<'a>>, bool)> {
        let (mut elements, mut has_comma) = (Vec::new(), false);
        while !self.takes(close) {
            elements.push(self.expression()?);
            if self.takes(",") {
                has_comma = true;
            } else if self.peek() != Token::Symbol(close) {
                return Err(self.unexpected(&format!("`,` or `{close}`")));
            }
        }
        Ok((elements, has_comma))
    }

    fn atom(&mut self) -> Parsed<Expr<'a>> {
        Ok(match self.advance() {
            Token::Name("None") => Expr::None,
            Token::Name("True") => Expr::Bool(true),
            Token::Name("False") => Expr::Bool(false),
            Token::Name("inf") => Expr::Float(f64::INFINITY),
            Token::Name("nan") => Expr::Float(f64::NAN),
            Token::Name(name) => Expr::Name(name),
            Token::Number(text) => self.number(text, "")?,
            Token::Symbol("-") => match self.advance() {
                Token::Number(text) => self.number(text, "-")?,
                Token::Name("inf") => Expr::Float(f64::NEG_INFINITY),
                Token::Name("nan") => Expr::Float(f64::NAN),
                _ => return Err(self.before("a number")),
            },
            Token::Text(raw) => self.text(raw),
            Token::Symbol("(") => one_or_tuple(self.elements(")")?),
            Token::Symbol("[") => Expr::List(self.elements("]")?.0),
            Token::Symbol("{") => self.dict()?,
            _ => return Err(self.before("an expression")),
        })
    }

    /// Describes the token that was taken last.
    fn before(&mut self, expected: &str) -> String {
        self.at -= 1;
        self.unexpected(expected)
    }

    fn number(&self, text: &str, sign: &str) -> Parsed<Expr<'a>> {
        let signed = format!("{sign}{text}");
        if let Ok(number) = signed.parse::<i64>() {
            return Ok(Expr::Int(number));
        }
        match signed.parse::<f64>() {
            Ok(number) => Ok(Expr::Float(number)),
            Err(_) => Err(format!("line {}: `{}` is no number", self.line(), crate::shown(text))),
        }
    }

    /// Joins texts that stand next to each other.
    fn text(&mut self, first: &str) -> Expr<'a> {
        let mut text = unescaped(first);
        while let Token::Text(more) = self.peek() {
            self.at += 1;
            text.push_str(&unescaped(more));
        }
        Expr::Text(text)
    }

    fn dict(&mut self) -> Parsed<Expr<'a>> {
        let mut entries = Vec::new();
        while !self.takes("}") {
            let key = self.expression()?;
            self.expect(":")?;
            entries.push((key, self.expression()?));
            if !self.takes(",") && self.peek() != Token::Symbol("}") {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
        Ok(Expr::Dict(entries))
    }
}

fn one_or_tuple((mut elements, has_comma): (Vec<Expr<'_>>, bool)) -> Expr<'_> {
    match elements.pop() {
        Some(only) if elements.is_empty() && !has_comma => only,
        Some(last) => {
            elements.push(last);
            Expr::Tuple(elements)
        }
        None => Expr::Tuple(elements),
    }
}

/// Resolves the escapes that PyTorch writes.
fn unescaped(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(sign) = chars.next() {
        if sign != '\\' {
            text.push(sign);
            continue;
        }
        match chars.next() {
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some(other) => text.push(other),
            None => {}
        }
    }
    text
}
